"""A run folder with everything in it, as the five notebooks leave one, without running them."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd

from helpers.laboratory.measures import Lab
from helpers.presets import PRESETS
from helpers.results.intervals import wilson_interval
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import format_reward
from helpers.runs import Run, write_json
from helpers.tags import THINK_ANSWER

REWARDS = ["correctness_reward", "format_reward"]
ROWS = pd.DataFrame(
    {"question": [f"What is {n} + 1?" for n in range(8)], "answer": [str(n + 1) for n in range(8)]}
)


def proportion(correct: int, n: int = 512) -> dict:
    return {"accuracy": correct / n, "ci95": list(wilson_interval(correct, n)), "n": n}


def entry(correct: int, n: int = 512) -> dict:
    return proportion(correct, n) | {
        "in_format": 0.5,
        "temperature": 1.0,
        "greedy": proportion(correct, n) | {"in_format": 0.5},
    }


def compared(
    won: int = 326, lost: int = 3, both: int = 164, n: int = 512, p: float = 1e-90
) -> dict:
    example = {
        "question": "What is 2 + 1?",
        "answer": "3",
        "before": "2 + 1 = 3",
        "after": THINK_ANSWER.render("2 + 1 = 3", "3"),
    }
    return {
        "before": "baseline",
        "after": "trained",
        "n": n,
        "won": won,
        "lost": lost,
        "both_right": both,
        "both_wrong": n - won - lost - both,
        "p_value": p,
        "difference": (won - lost) / n,
        "difference_ci95": [(won - lost) / n - 0.03, (won - lost) / n + 0.03],
        "won_examples": [example] * min(won, 9),
        "lost_examples": [example] * min(lost, 9),
    }


def history(steps: int = 50) -> pd.DataFrame:
    learned = 1 / (1 + np.exp(4 - np.arange(steps) / 5))
    return pd.DataFrame(
        {
            "step": np.arange(1, steps + 1),
            "loss": 0.1 * learned - 0.1,
            "reward": 0.3 + 1.1 * learned,
            "reward_std": 0.8 - 0.6 * learned,
            "frac_reward_zero_std": 0.8 * learned,
            "kl": 0.05 * learned,
            "completions/mean_length": 15 + 5 * learned,
            "completions/clipped_ratio": 0 * learned,
            **{f"rewards/{name}/mean": 0.2 + 0.75 * learned for name in REWARDS},
        }
    )


def finished_run(**settings) -> Run:
    """The run `told`, under GRPO_RUNS_DIR; settings: fields of the pocket preset to record
    otherwise.
    """
    run, settings = Run("told"), asdict(PRESETS["pocket"]) | settings
    about = {
        "source": settings["source"],
        "seed": 3407,
        "tags": "think/answer",
        "fingerprint": "39d12b00ee4c3ef50872",
    }
    counts = {
        "rows_read": 1515,
        "rows_train": 1000,
        "rows_holdout": 512,
        "dropped": {"empty answer": 3},
    }
    write_json(
        run.path("data_report.json"), about | counts | {"system_prompt": THINK_ANSWER.system_prompt}
    )
    run.record("data", settings=settings, **about)
    lab = Lab([correctness_reward, format_reward], [1.0, 0.5])
    lab.attacks(ROWS)
    lab.signal(
        ROWS, [[f"it is {answer}", THINK_ANSWER.render("so", answer)] for answer in ROWS["answer"]]
    )
    lab.speed()
    write_json(run.path("reward_report.json"), lab.report())
    run.record("rewards", data=about["fingerprint"], functions=REWARDS, weights=[1.0, 0.5], go=True)
    history().to_csv(run.path("metrics.csv"), index=False)
    run.record(
        "training",
        settings=settings,
        seed=3407,
        data=about["fingerprint"],
        rewards=REWARDS,
        weights=[1.0, 0.5],
    )
    run.path("merged/config.json").write_text("{}")
    right = {"baseline": 167, "trained": 490, "unmerged": 488, "merged": 488}
    evaluation = {name: entry(count) for name, count in right.items()}
    comparison = {"sampled": compared(), "greedy": compared(won=300, lost=2)}
    run.record_evaluation(run.section("training"), evaluation, comparison)
    proof = {"kept": 1.0, "unexplained": 1e-6, "logit_difference": 1.7e-5}
    run.record(
        "merge",
        training=run.section("training")["written"],
        dtype="torch.float32",
        **proof,
        quantisation_gap={"original": 2.4, "dequantised": 0.9},
    )
    return run


def change(run: Run, name: str, edit) -> None:
    """Edit one of the run's JSON files: `edit` is given its content and changes it in place."""
    content = json.loads((run.folder / name).read_text(encoding="utf-8"))
    edit(content)
    write_json(run.folder / name, content)
