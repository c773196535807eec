"""A judge that scores, and the same judge ranking: `python -m benchmarks.judges`.

Trains the pocket model with a scripted judge as its only reward, 16 steps with three seeds each
way, tries every attack of the battery on each way of judging, and writes
benchmarks/results/judges.md. The judge's opinion of a completion is 0.6 for the right number, 0.2
for the format and up to 0.2 for its working; asked for a score, it rounds that to 0, 1 or 2 points.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from helpers import PROJECT
from helpers.commands import pipeline
from helpers.presets import PRESETS
from helpers.results.intervals import wilson_interval
from helpers.rewards.judge import JudgeReward, RankingJudgeReward
from helpers.rewards.lab.attacks import JUDGE_BATTERY, with_wrong_answers
from helpers.rewards.lab.scripted_judge import scripted_judge
from helpers.rewards.structure import format_reward
from helpers.runs import Run
from helpers.tags import THINK_ANSWER

SEEDS, RUBRIC = (3407, 1, 2), "The right number, in the format, worked out."
RIGHT, KEPT = "The number is right.", "The format is kept."
CRITERIA = [
    {"criterion": RIGHT, "weight": 3},
    {"criterion": KEPT, "weight": 1},
    {"criterion": "The sum is worked out.", "weight": 1},
]


def merits(text: str, shown: dict) -> dict[str, float]:
    """What a completion has of each criterion, from 0 to 1."""
    working = text.partition("</think>")[0]
    right = THINK_ANSWER.extract_answer(text) == shown["answer"]
    merit = (float(right), format_reward([text])[0], min(1.0, working.count(",") / 4))
    return dict(zip((one["criterion"] for one in CRITERIA), merit, strict=True))


def opinion(text: str, shown: dict) -> float:
    found = merits(text, shown)
    return found.get(shown.get("criterion"), np.dot(list(found.values()), (0.6, 0.2, 0.2)))


def judges(address: str, num_generations: int, orders: int = 1) -> dict:
    given = {"base_url": address, "model": "scripted", "rubric": RUBRIC, "shows": ["answer"]}
    return {
        "score": JudgeReward(**given, points=2, name="score"),
        "row's rubric": JudgeReward(**given, rubric_column="rubric", name="rubric"),
        "rank": RankingJudgeReward(
            **given, num_generations=num_generations, orders=orders, name="rank"
        ),
    }


def train(way: str, seed: int, steps: int) -> dict:
    """One training in this process: dead groups, and the right answers to the holdout after it."""
    from unsloth import FastLanguageModel  # isort: skip  # before trl, always
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from helpers.results.evaluation import right
    from helpers.training import policy

    pocket, run = PRESETS["pocket"], Run("prepared")
    loading = {"max_seq_length": pocket.context, "load_in_4bit": pocket.load_in_4bit}
    model, tokenizer = FastLanguageModel.from_pretrained(pocket.model_path, **loading)
    lora = {"r": pocket.lora_rank, "lora_alpha": pocket.lora_alpha}
    lora |= {"target_modules": policy.LORA_TARGETS, "random_state": seed}
    lora |= {"use_gradient_checkpointing": pocket.gradient_checkpointing}
    model = FastLanguageModel.get_peft_model(model, **lora)
    names = GRPOConfig.__dataclass_fields__.keys() & vars(pocket)  # under the same name
    options = {name: getattr(pocket, name) for name in names}
    options |= {"output_dir": str(run.path(f"{way}-{seed}")), "seed": seed, "max_steps": steps}
    options |= {"bf16": True, "save_strategy": "no", "report_to": "none"}
    with scripted_judge(opinion) as address:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=GRPOConfig(**options),
            reward_funcs=judges(address, pocket.num_generations)[way],
            train_dataset=Dataset.from_parquet(str(run.require("data/train.parquet"))),
        )
        trainer.train()
    logged = [row for row in trainer.state.log_history if "step_time" in row]
    holdout = Dataset.from_parquet(str(run.require("data/holdout.parquet"))).to_pandas()
    limits = {"max_new_tokens": pocket.max_completion_length, "seed": seed, "progress": False}
    groups = policy.sample(model, tokenizer, list(holdout["prompt"]), temperature=1.0, **limits)
    correct = right([text for (text,) in groups], list(holdout["answer"]), THINK_ANSWER)
    dead = np.mean([row["frac_reward_zero_std"] for row in logged])
    return {"dead": float(dead), "right": sum(correct), "n": len(correct)}


def attacked() -> list[str]:
    """A row of the table per attack: what it earns beside a right and a wrong answer. The judge
    looks at number and format alone, and sees each group in two orders.
    """

    def strict(text: str, shown: dict) -> float:
        found = merits(text, shown)
        return found.get(shown.get("criterion"), 0.8 * found[RIGHT] + 0.2 * found[KEPT])

    row = with_wrong_answers([{"answer": "133", "question": "What is 94 + 39?"}])[0]
    honest = [THINK_ANSWER.render("94 + 39 = 133", "133"), THINK_ANSWER.render("…", "7")]
    columns = {"answer": ["133"] * 3, "rubric": [CRITERIA[:2]] * 3, "prompts": ["p"] * 3}
    lines = []
    with scripted_judge(strict) as address:
        for attack in JUDGE_BATTERY:
            group = [honest[0], attack.write(row, THINK_ANSWER, 100), honest[1]]
            cells = []
            for judge in judges(address, 3, orders=2).values():
                scores = asyncio.run(judge(completions=group, **columns))
                cells.append(f"{scores[1]:.2f} ({scores[0]:.2f}, {scores[2]:.2f})")
            lines.append(f"| {attack.name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=16, help="of a training (default: 16)")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)  # way and seed of a process
    args = parser.parse_args()
    if args.train:
        way, seed = args.train
        found = train(way, int(seed), args.steps)
        Run("prepared").path(f"{way}-{seed}.json").write_text(json.dumps(found), encoding="utf-8")
        return
    rows, total = [], {way: np.zeros(3) for way in ("score", "rank")}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"GRPO_RUNS_DIR": folder, "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
        assert pipeline.run("prepared", "pocket", "01", []) == 0
        for seed in SEEDS:
            cells = []
            for way in total:
                command = [sys.executable, "-m", "benchmarks.judges", "--steps", str(args.steps)]
                command += ["--train", way, str(seed)]
                subprocess.run(command, cwd=PROJECT, stdout=subprocess.DEVNULL, check=True)
                path = Run("prepared").require(f"{way}-{seed}.json")
                found = json.loads(path.read_text(encoding="utf-8"))
                total[way] += list(found.values())
                cells += [f"{found['dead']:.0%}", f"{found['right'] / found['n']:.1%}"]
            rows.append(f"| {seed} | {' | '.join(cells)} |")
    cells = []
    for dead, right, n in total.values():
        low, high = wilson_interval(int(right), int(n))
        share = f"{right / n:.1%} ({low:.1%} to {high:.1%})"
        cells += [f"{dead / len(SEEDS):.0%}", share]
    rows.append(f"| all | {' | '.join(cells)} |")
    text = f"""# A judge that scores, and the same judge ranking

`python -m benchmarks.judges --steps {args.steps}`: the pocket model, sums, {args.steps} steps of 64 completions in groups of 8, with a
scripted judge as the only reward ({os.cpu_count()} cores, no GPU). Asked for a score, the judge rounds its opinion to 0, 1 or 2
points; asked for an order, it uses all of it. *Dead* is the mean share of dead groups over the steps, *right* the sampled accuracy on
256 held-out sums afterwards, with a 95 % interval.

| seed | score: dead | score: right | rank: dead | rank: right |
|---|---|---|---|---|
{chr(10).join(rows)}

## Attacks

What each attack of `attacks.JUDGE_BATTERY` earns in a group with a right and a wrong answer (their rewards in brackets). Here the judge
looks at number and format alone, and ranks each group in two orders. It is scripted, so the table shows that what a completion says
reaches it only as text, between the marks. Whether a model is persuaded by that text must be tried on the model.

| attack | score | row's rubric | rank |
|---|---|---|---|
{chr(10).join(attacked())}
"""
    (PROJECT / "benchmarks" / "results" / "judges.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
