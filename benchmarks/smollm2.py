"""A real language model on two cores: `python -m benchmarks.smollm2 --seed 1`, for each seed, and
with `--control random`, `shuffled` or `format` what it gains without the signal of the rewards.
`--stop` trains nothing and measures what a stop text does to it as a base model.

Notebooks 01 and 03 with the preset `smollm2`, as a user would run them. Before and after, the policy
answers held-out questions, once sampled at temperature 1 and once greedily. The same command goes on
with what was cut off: the training from its last checkpoint. The page gets a row for each seed done.
"""

import argparse
import json
import re
import resource
import time
from pathlib import Path

import pandas as pd

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.results.intervals import student_interval
from helpers.rewards.controls import CONTROLS
from helpers.runs import Run, runs_folder, write_json
from helpers.settings import Preset

RESULTS = PROJECT / "benchmarks" / "results" / "smollm2.md"
HEAD = """# SmolLM2-135M-Instruct on two cores

`python -m benchmarks.smollm2 --seed N` measures one seed; `--control NAME` trains on a control reward (notebook 08 explains them). The preset `smollm2` asks
for sums of two two-digit numbers, with two worked examples in the prompt. The questions measured are never trained on.

Accuracy is sampled at temperature 1, or greedy, with 95% Wilson intervals, before → after training. *In format* is of the sampled completions. Minutes are
those of the steps and of the four measurements, without loading. Ignore those of the controls, which shared their machines with other work.
*Shuffled*, and the controls of seeds 2 and 3, were trained in 32 bits, which take more memory, because that CPU cannot compute in bfloat16.

| trained on | seed | steps | questions | sampled | greedy | in format | minutes: training + measuring | peak memory | machine |
|---|---|---|---|---|---|---|---|---|---|
"""
TRUE = "true rewards"
# The examples and the question as plain text, as a base model without a chat template gets them.
PLAIN_TEXT = (
    "{% for message in messages %}{% if message['role'] == 'user' %}Question: {% endif %}"
    "{{ message['content'] }}\n{% if message['role'] != 'user' %}\n{% endif %}{% endfor %}"
)
STOPS = """## A stop text, on the model as a base model

`python -m benchmarks.smollm2 --stop`: no training and no chat template. The prompt is plain text: the instructions, two worked examples,
each after `Question:`, and one of {questions} held-out questions. Completions of at most {limit} tokens, sampled at temperature 1; 95% Wilson
intervals. *More than one block*: the completion continues after its answer and answers a question of its own, so it earns nothing.

| `stop` | correct | in format | more than one block | tokens |
|---|---|---|---|---|
{rows}
"""


def measured(run: Run, questions: int) -> dict:
    """The answers of the policy as it is, with the run's adapter if it has one."""
    from helpers.training import policy, sampling

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
        texts = [one for (one,) in sampling.sample(model, tokenizer, prompts, **limits)]
        found[name] = evaluation.score(texts, list(rows["answer"]), rows=rows)
    return found | {"seconds": time.monotonic() - began}


def stop_texts(questions: int, limit: int = 96) -> str:
    """The section of the page on stop texts: the base model's answers without one, and with one."""
    from helpers.training import policy, sampling, stops

    settings = PRESETS["smollm2"]
    model, tokenizer = policy.load(settings)
    from helpers.data.tasks import load_task
    from helpers.results import evaluation
    from helpers.tags import THINK_ANSWER

    tokenizer.chat_template = PLAIN_TEXT
    held_out = load_task(
        settings.source, holdout_size=questions, few_shot=settings.few_shot
    ).holdout
    prompts, answers = [list(prompt) for prompt in held_out["prompt"]], list(held_out["answer"])
    lines = []
    for name, stop in (("none", None), ("`</answer>`", ["</answer>"])):
        stops.set_stop(tokenizer, stop)
        groups = sampling.sample(model, tokenizer, prompts, max_new_tokens=limit, as_tokens=True)
        tokens = [len(ids) for (ids,) in groups]
        texts = [tokenizer.decode(ids, skip_special_tokens=True) for (ids,) in groups]
        several = sum(len(THINK_ANSWER.answer_blocks(text)) > 1 for text in texts)
        scored = evaluation.score(texts, answers, rows=held_out)
        low, high = scored["ci95"]
        lines.append(
            f"| {name} | {scored['accuracy']:.1%} ({low:.1%} to {high:.1%}) | {scored['in_format']:.0%} "
            f"| {several / len(texts):.0%} | {sum(tokens) / len(tokens):.0f} |"
        )
    return STOPS.format(questions=questions, limit=limit, rows="\n".join(lines))


def row(path: Path) -> str:
    """The row of the table for a seed that is done."""
    found = json.loads(path.read_text(encoding="utf-8"))
    before, after = found["before"], found["after"]

    def told(entry: dict) -> str:
        return "{:.1%} ({:.1%} to {:.1%})".format(entry["accuracy"], *entry["ci95"])

    formats = f"{before['sampled']['in_format']:.0%} → {after['sampled']['in_format']:.0%}"
    minutes = [found["training_seconds"] / 60, (before["seconds"] + after["seconds"]) / 60]
    return (
        f"| {found.get('control') or TRUE} | {found['seed']} | {found['steps']} | {before['sampled']['n']} "
        f"| {told(before['sampled'])} → {told(after['sampled'])} "
        f"| {told(before['greedy'])} → {told(after['greedy'])} | {formats} | {minutes[0]:.1f} + {minutes[1]:.1f} "
        f"| {found['peak_gb']:.1f} GB | {found['machine']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--control", choices=CONTROLS, help="what to train on instead")
    parser.add_argument(
        "--stop", action="store_true", help="measure a stop text, and train nothing"
    )
    parser.add_argument("--questions", type=int, default=128, help="held out (default: 128)")
    parser.add_argument("--steps", type=int, default=PRESETS["smollm2"].max_steps)
    args = parser.parse_args()
    # What other calls have measured stays on the page.
    table, _, section = RESULTS.read_text(encoding="utf-8").partition("\n## ")
    section = section and f"## {section}"
    if args.stop:
        RESULTS.write_text(f"{table}\n{stop_texts(args.questions)}", encoding="utf-8")
        return
    run = Run(f"smollm2-{args.seed}" + (f"-{args.control}" if args.control else ""))
    found = run.read_object("smollm2.json")

    def keep(**new) -> None:
        # with the most memory that this process or a kernel of it has taken
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = max(resource.getrusage(one).ru_maxrss * 1024 / 1e9 for one in who)
        found.update(new, peak_gb=max(peak, found.get("peak_gb", 0)))
        write_json(run.path("smollm2.json"), found)
        print(new, flush=True)

    seed = f"seed={args.seed}"
    if "before" not in found:
        assert run_notebooks(run.name, "smollm2", "01", [seed]) == 0
        keep(before=measured(run, args.questions), seed=args.seed, control=args.control)
    if "training_seconds" not in found:
        options = [seed, "sampling_seconds=30", f"max_steps={args.steps}"]
        options += [f"control={args.control}"] if args.control else []
        assert run_notebooks(run.name, None, "03", options, once=True) == 0
        steps = pd.read_csv(run.require("metrics.csv"))["step_time"]
        keep(training_seconds=float(steps.sum()), steps=len(steps))
    if "after" not in found:
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))[1]
        machine = f"{this_machine().cores} cores of {model}"
        keep(after=measured(run, args.questions), machine=machine)
    # The page keeps the rows of trainings whose folders are not here any more.
    rows = {}
    for line in table.splitlines():
        if re.match(r"\| [a-z ]+ \| \d", line):
            rows[tuple(line.split(" | ")[:2])] = line
    for path in sorted(runs_folder().glob("smollm2-*/smollm2.json")):
        if '"after"' in path.read_text(encoding="utf-8"):
            line = row(path)
            rows[tuple(line.split(" | ")[:2])] = line
    lines = sorted(rows.values(), key=lambda line: (TRUE not in line, line))
    lines = [*lines, "", *over_seeds(lines), "", section]
    RESULTS.write_text(HEAD + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


def over_seeds(lines: list[str]) -> list[str]:
    """A sentence about the gains of each kind of training: their mean and interval over the seeds."""
    gains: dict[str, list[float]] = {}
    for line in lines:
        cells = line.split(" | ")
        before, after = re.findall(r"([\d.]+)% \(", cells[4])
        gains.setdefault(cells[0].removeprefix("| "), []).append(float(after) - float(before))
    sentences = ["Gain of the sampled accuracy in points, over the seeds (Student's t):", ""]
    for name, values in gains.items():
        low, high = student_interval(values)
        interval = f" ({low:+.1f} to {high:+.1f})" if len(values) > 1 else ", one seed"
        sentences.append(f"- {name}: {sum(values) / len(values):+.1f}{interval}")
    return sentences


if __name__ == "__main__":
    main()
