"""Notebook 03 after a warm start, and once more from the adapter that it trained; without vLLM."""

import json

from benchmarks.gpu import common
from benchmarks.gpu.notebooks import PeakMemory
from helpers.commands.run import run_notebooks


def measure(result: common.Result) -> None:
    """Two short trainings of the pocket model; the quicker way to a failure comes first."""
    from helpers.data.tasks import load_task
    from helpers.tags import THINK_ANSWER

    rows = load_task("arithmetic/sums", train_size=16, holdout_size=4, seed=1).train
    file = common.work("continued") / "examples.jsonl"
    with file.open("w", encoding="utf-8") as written:
        for row in rows.itertuples():
            completion = THINK_ANSWER.render(row.working, row.answer)
            written.write(json.dumps({"question": row.question, "completion": completion}) + "\n")
    few = ["engine=transformers", "max_steps=4", "sampling_seconds=1"]
    for name, preset, only, given in (
        ("a warm start", "pocket", "01,03", [f"warm_start={file}"]),
        ("from the adapter", None, "03", ["from_adapter=true"]),
    ):
        with PeakMemory() as peak:
            code = run_notebooks("gpu-continued", preset, only, [*few, *given])
        result.expect(code == 0, f"{name}: notebook 03 failed, see the log.")
        result.found[name] = "ran" if code == 0 else "failed"
        if peak.most:
            result.found[f"{name}: peak of the card, GB"] = peak.most / 1e9


if __name__ == "__main__":
    common.main(measure)
