"""Notebooks 02 and 03 with a model that does not keep the format: no go, and go after a warm start."""

import json

import pytest
from papermill.exceptions import PapermillExecutionError

from helpers.data.tasks import load_task
from helpers.runs import Run
from helpers.tags import TagFormat

pytestmark = pytest.mark.slow
# the pocket model writes its reasoning in <think>, and its answer in <answer>
SWAPPED = "answer/think"
LONGER = {"max_completion_length": 110, "train_size": 300, "holdout_size": 16}


@pytest.mark.nightly
def test_a_warm_start_makes_a_go_of_a_no_go_and_grpo_goes_on_from_it(runs, execute, tmp_path):
    tags = TagFormat.parse(SWAPPED)
    rows = load_task("arithmetic/sums", train_size=128, holdout_size=8, seed=1, tags=tags).train
    examples = tmp_path / "examples.jsonl"
    with examples.open("w") as file:
        for row in rows.itertuples():
            completion = tags.render(row.working, row.answer)
            file.write(json.dumps({"question": row.question, "completion": completion}) + "\n")
    run = Run("warm")
    execute("01", run, preset="pocket", tags=SWAPPED, **LONGER)
    with pytest.raises(PapermillExecutionError, match="NO GO"):
        execute("02", run, groups=16)
    assert "warm_start" not in run.manifest["rewards"]
    assert "warm start: 128 worked examples" in execute(
        "02", run, groups=16, warm_start=str(examples)
    )
    assert run.manifest["rewards"]["go"] is True

    # 03 trains from the same adapter, and the KL is measured from there
    told = execute("03", run, max_steps=2, warm_start=str(examples), sampling_seconds=1e-3)
    assert f"the warm start is that of {run.show('warm_start')}" in told
    training = run.section("training")
    assert training["warm_start"] == run.manifest["rewards"]["warm_start"]
    assert training["warm_start"]["file"] == "examples.jsonl"
    steps = run.require("metrics.csv").read_text().splitlines()
    first = dict(zip(steps[0].split(","), steps[1].split(","), strict=True))
    assert float(first["kl"]) == pytest.approx(0, abs=1e-4)
    assert float(first["rewards/correctness_reward/mean"]) > 0.2
    assert "Two stages: a warm start on 128 worked examples" in execute("04", run)
