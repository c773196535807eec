"""What the suite costs in a step of training: notebook 03 against a bare script.

`python -m benchmarks.step` trains with either in turns, each time in a fresh process, and writes
benchmarks/results/step.md; with another `--preset` than pocket, step-PRESET.md. The measure is TRL's own `step_time`, without a training's first step.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.environment import installed_version
from helpers.runs import Run
from helpers.settings import Preset


def bare(run: Run, steps: int):
    """TRL's trainer on Unsloth with the same model, rows, batch and rewards, and nothing else."""
    from unsloth import FastLanguageModel  # isort: skip  # before trl, always
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from helpers.rewards.correctness import correctness_reward
    from helpers.rewards.structure import substantial_format_reward
    from helpers.training.policy import LORA_TARGETS

    preset = Preset(**run.section("data")["settings"])
    loading = {"max_seq_length": preset.context, "load_in_4bit": preset.load_in_4bit}
    model, tokenizer = FastLanguageModel.from_pretrained(preset.model_path, **loading)
    lora = {"r": preset.lora_rank, "lora_alpha": preset.lora_alpha, "target_modules": LORA_TARGETS}
    checkpointing = "unsloth" if preset.gradient_checkpointing else False  # as notebook 03
    lora |= {"use_gradient_checkpointing": checkpointing, "random_state": 3407}
    settings = GRPOConfig.__dataclass_fields__.keys() & vars(preset)  # under the same name
    options = {name: getattr(preset, name) for name in settings}
    options |= {"output_dir": str(run.path("bare")), "seed": 3407, "max_steps": steps, "bf16": True}
    options |= {"reward_weights": [1.0, 0.25], "save_strategy": "no", "report_to": "none"}
    trainer = GRPOTrainer(
        model=FastLanguageModel.get_peft_model(model, **lora),
        processing_class=tokenizer,
        args=GRPOConfig(**options),
        reward_funcs=[correctness_reward, substantial_format_reward],
        train_dataset=Dataset.from_parquet(str(run.require("data/train.parquet"))),
    )
    trainer.train()
    return trainer


def ours(run: Run, steps: int):
    """Notebook 03's own cells up to `trainer.train()`: guard, callbacks and samples with them."""
    import nbformat
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    (path,) = (PROJECT / "notebooks").glob("03_*.ipynb")
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for cell in code:
        shell.run_cell(cell.source).raise_error()
        if "parameters" in cell.metadata.get("tags", []):
            shell.user_ns.update(run=run.name, max_steps=steps)
        if "trainer.train(" in cell.source:
            return shell.user_ns["trainer"]


def measured(kind: str, number: int, steps: int) -> tuple[float, float]:
    """A training in a fresh process: its median seconds a step, and its tokens a completion."""
    run = Run(f"{kind}-{number}")
    shutil.copytree(Run("prepared").folder, run.folder)
    command = [sys.executable, "-m", "benchmarks.step", "--steps", str(steps), "--train", run.name]
    subprocess.run(command, cwd=PROJECT, stdout=subprocess.DEVNULL, check=True)
    rows = json.loads(run.require("logged.json").read_text(encoding="utf-8"))[1:]
    return tuple(np.median([(r["step_time"], r["completions/mean_length"]) for r in rows], axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=16, help="of a training (default: 16)")
    parser.add_argument("--pairs", type=int, default=10, help="of trainings (default: 10)")
    parser.add_argument("--preset", default="pocket", help="and its model (default: pocket)")
    parser.add_argument("--train", help=argparse.SUPPRESS)  # the run of a fresh process
    args = parser.parse_args()
    if args.train:
        train = bare if args.train.startswith("bare") else ours
        trainer = train(run := Run(args.train), args.steps)
        rows = [row for row in trainer.state.log_history if "step_time" in row]
        run.path("logged.json").write_text(json.dumps(rows), encoding="utf-8")
        return
    found = {"bare": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"GRPO_RUNS_DIR": folder, "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
        assert run_notebooks("prepared", args.preset, "01", []) == 0
        for number in range(args.pairs):
            for kind in ("bare", "ours") if number % 2 else ("ours", "bare"):
                found[kind].append(measured(kind, number, args.steps))
    script, notebook = (np.median(found[kind], axis=0) for kind in ("bare", "ours"))
    ratios = np.divide(found["ours"], found["bare"])[:, 0]  # of the seconds
    drawn = np.random.default_rng(0).choice(ratios, size=(10_000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    text = f"""# A step of training: notebook 03 against a bare script

`python -m benchmarks.step --steps {args.steps} --pairs {args.pairs} --preset {args.preset}`: its model on {os.cpu_count()} cores, no GPU, TRL {installed_version("trl")}, Unsloth {installed_version("unsloth")}.
The table compares notebook 03 up to `trainer.train()` with a bare script: TRL's trainer on Unsloth with the same settings, rows and rewards.

| | median seconds a step | tokens a completion |
|---|---|---|
| bare script | {script[0]:.3f} | {script[1]:.1f} |
| notebook 03 | {notebook[0]:.3f} | {notebook[1]:.1f} |

Ratio of notebook to script in a pair: median {np.median(ratios):.3f}, 95% bootstrap interval {low:.3f} to {high:.3f} (wanted: at most 1.05).
All pairs: {", ".join(f"{ratio:.3f}" for ratio in ratios)}.
"""
    name = "step.md" if args.preset == "pocket" else f"step-{args.preset}.md"
    (PROJECT / "benchmarks" / "results" / name).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
