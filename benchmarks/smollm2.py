"""A real language model on two cores: `python -m benchmarks.smollm2 --seed 1`, for each seed.

Notebooks 01 and 03 with the preset `smollm2`, as a user would run them. Before and after, the policy
answers held-out questions, once sampled at temperature 1 and once greedily. The same command goes on
with what was cut off: the training from its last checkpoint. `--table` writes the page of all seeds.
"""

import argparse
import contextlib
import json
import platform
import resource
import time
from pathlib import Path

import pandas as pd

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.environment import quiet, this_machine
from helpers.presets import Preset
from helpers.runs import Run, runs_folder, write_json

RESULTS = PROJECT / "benchmarks" / "results" / "smollm2.md"
HEAD = """# SmolLM2-135M-Instruct on two cores

`python -m benchmarks.smollm2 --seed N` for each seed, then `--table`. The preset `smollm2`: sums of two numbers of two digits, with
two worked examples in the prompt, and questions that are never trained on. Sampled at temperature 1, or greedy; 95 % Wilson
intervals; before → after. Minutes are those of the steps and of the four measurements, without loading.

| seed | steps | sampled | greedy | in format (sampled) | minutes: training, measuring | peak memory | machine |
|---|---|---|---|---|---|---|---|
"""


def measured(run: Run, questions: int) -> dict:
    """The answers of the policy as it is, with the run's adapter if it has one."""
    from helpers.training import policy

    settings = Preset(**run.section("data")["settings"])
    model, tokenizer = policy.load(settings)
    from helpers.results import evaluation

    if run.path("adapter").is_dir():
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(run.path("adapter")))
    rows, found = pd.read_parquet(run.require("data/holdout.parquet")).head(questions), {}
    prompts, began = [list(prompt) for prompt in rows["prompt"]], time.monotonic()
    for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        limits = {"max_new_tokens": settings.max_completion_length, "temperature": temperature}
        texts = [one for (one,) in policy.sample(model, tokenizer, prompts, **limits)]
        found[name] = evaluation.score(texts, list(rows["answer"]), rows=rows)
    return found | {"seconds": time.monotonic() - began}


def row(path: Path) -> str:
    """The row of the table for a seed that is done."""
    found = json.loads(path.read_text(encoding="utf-8"))
    cells = [path.parent.name.removeprefix("smollm2-"), str(found["steps"])]
    for name in ("sampled", "greedy"):
        for when in ("before", "after"):
            low, high = found[when][name]["ci95"]
            cells.append(f"{found[when][name]['accuracy']:.1%} ({low:.1%} to {high:.1%})")
        cells[-2:] = [" → ".join(cells[-2:])]
    before, after = found["before"]["sampled"], found["after"]["sampled"]
    cells.append(f"{before['in_format']:.0%} → {after['in_format']:.0%} of {before['n']}")
    measuring = found["before"]["seconds"] + found["after"]["seconds"]
    cells.append(f"{found['training_seconds'] / 60:.1f}, {measuring / 60:.1f}")
    cells += [f"{found['peak_gb']:.1f} GB", found["machine"]]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--questions", type=int, default=128, help="held out (default: 128)")
    parser.add_argument("--steps", type=int, help="of the training (default: the preset's)")
    parser.add_argument("--table", action="store_true", help="write the page of the seeds done")
    args = parser.parse_args()
    if args.table:
        done = sorted(runs_folder().glob("smollm2-*/smollm2.json"))
        rows = [row(path) for path in done if "after" in path.read_text(encoding="utf-8")]
        RESULTS.write_text(HEAD + "\n".join([*rows, ""]), encoding="utf-8")
        print(RESULTS.read_text(encoding="utf-8"))
        return
    quiet()
    run = Run(f"smollm2-{args.seed}")
    found = run.read_object("smollm2.json")

    def keep(**new) -> None:
        # what is known so far; the most memory that this process or a kernel of it has taken
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = max(resource.getrusage(one).ru_maxrss * 1024 / 1e9 for one in who)
        found.update(new, peak_gb=max(peak, found.get("peak_gb", 0)))
        write_json(run.path("smollm2.json"), found)
        print({name: value for name, value in found.items() if name in new}, flush=True)

    if "before" not in found:
        assert run_notebooks(run.name, "smollm2", "01", [f"seed={args.seed}"]) == 0
        keep(before=measured(run, args.questions))
    if "training_seconds" not in found:
        options = [f"seed={args.seed}", "sampling_seconds=30"]
        options += [f"max_steps={args.steps}"] * bool(args.steps)
        assert run_notebooks(run.name, None, "03", options, once=True) == 0
        steps = pd.read_csv(run.require("metrics.csv"))["step_time"]
        keep(training_seconds=float(steps.sum()), steps=len(steps))
    machine = f"{this_machine().cores} cores of {platform.processor() or platform.machine()}"
    with contextlib.suppress(OSError, StopIteration):  # what Linux says of them
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line for line in lines if line.startswith("model name"))
        machine = f"{this_machine().cores} cores of {model.partition(': ')[2]}"
    keep(after=measured(run, args.questions), machine=machine)


if __name__ == "__main__":
    main()
