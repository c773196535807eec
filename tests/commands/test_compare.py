"""The command `compare`: the settings that differ, accuracies with intervals, and one figure."""

import re
from dataclasses import asdict, replace

import pandas as pd
import pytest

from helpers.presets import PRESETS
from helpers.runs import Run, write_json

POCKET = PRESETS["pocket"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three finished runs with different learning rates, seeds and reward weights. The third has no
    evaluation.
    """
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    for number, name in enumerate(("one", "two", "three")):
        run = Run(name)
        history = pd.DataFrame({"step": range(1, 21), "loss": 0.0, "reward_std": 0.5, "kl": 0.01})
        history["reward"] = history["step"] / 20 + number
        history.to_csv(run.path("metrics.csv"), index=False)
        longest = 200 if number else None
        settings = replace(POCKET, learning_rate=1e-3 * (number + 1), max_seq_length=longest)
        run.record("data", source="arithmetic/sums")
        run.record(
            "training",
            settings=asdict(settings),
            seed=3407 + number,
            rewards=["correctness_reward"],
            weights=[1.0 + (number == 2)],
        )
        if number < 2:
            bounds = [0.4 + number / 4, 0.6 + number / 4]
            entry = {"accuracy": sum(bounds) / 2, "ci95": bounds, "n": 100, "in_format": 1.0}
            baseline = entry | {"accuracy": 0.3}
            write_json(run.path("evaluation.json"), {"baseline": baseline, "trained": entry})
    return tmp_path / "runs"


def test_only_settings_that_differ_are_shown(cli, runs):
    code, out, _ = cli("compare", "one", "two")
    differ, _, rest = out.partition("holdout accuracy")
    assert code == 0 and all(said in differ for said in ("learning_rate", "0.001", "0.002", "3408"))
    assert re.search(r"max_seq_length +None +200\n", differ)
    assert "max_steps" not in differ and "correctness_reward" not in differ, "the same in both"
    assert "75.0% (65.0% to 85.0%)" in rest and "50.0% (40.0% to 60.0%)" in rest
    # the last fifth of 20 steps: (17 + 18 + 19 + 20) / 4 / 20
    assert "0.925" in rest and "1.925" in rest, "the final reward"
    figure = runs / "one" / "figures" / "compare-one-two.png"
    assert figure.is_file() and "runs/one/figures/compare-one-two.png" in out


def test_reward_weights_and_a_missing_evaluation_are_shown(cli, runs):
    code, out, _ = cli("compare", "one", "three")
    assert code == 0 and "not measured" in out
    assert "correctness_reward x 1" in out and "correctness_reward x 2" in out


def test_results_of_lm_evaluation_harness_are_shown_beside_the_accuracies(cli, runs):
    """The files are as lm_eval 0.4.13 wrote them for a merged pocket model: the last of each counts."""
    for time, right in (("2026-11-29T14-11-01.100087", 0.5), ("2026-11-29T15-00-00.000001", 0.75)):
        folder = runs / "one" / "lm_eval" / "merged" / "merged"
        folder.mkdir(parents=True, exist_ok=True)
        measured = {"name": "grpo_holdout", "alias": "grpo_holdout", "sample_len": 256}
        measured |= {"exact_match,answer_block": right, "exact_match_stderr,answer_block": 0.025}
        write_json(folder / f"results_{time}.json", {"results": {"grpo_holdout": measured}})
    code, out, _ = cli("compare", "one", "two")
    shown = out.partition("lm-evaluation-harness\n")[2].splitlines()
    assert code == 0 and shown[0].split() == ["one", "two"]
    assert "merged, grpo_holdout, exact_match,answer_block" in shown[1]
    assert "75.0% ± 4.9%" in shown[1] and "50.0%" not in out.partition("lm-evaluation")[2][:200]
    assert "lm-evaluation-harness" not in cli("compare", "two", "three")[1]
