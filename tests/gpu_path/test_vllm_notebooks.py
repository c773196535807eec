"""The notebooks from the first cell to the last with a real vLLM engine beside Unsloth's policy.

`.ci/run` executes 03, in 4 and in 16 bits, and 05. The others are marked `nightly`: each takes a
minute, and 03 does what they do with the engine.
"""

import json
import shutil

import pandas as pd
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm", "vllm_bnb_plugin")]

FEW = {"max_steps": 2, "per_device_train_batch_size": 16}  # two groups of eight
SMALL = {"preset": "pocket", "engine": "vllm", "train_size": 64, "holdout_size": 16}
EXAMPLE = {"question": "What is 2 + 3?", "completion": "<think>2 + 3 = 5</think><answer>5</answer>"}


def trained_beside_one_engine(said: str) -> bool:
    """Whether the last cell names Unsloth's trainer, and an engine that slept while it trained."""
    wanted = ("trained by UnslothGRPOTrainer", "'loaded with vLLM': 1", "'generated'", "'woken up'")
    return all(each in said for each in wanted)


@pytest.fixture(scope="module")
def warm(execute, folder):
    """What notebook 03 printed for the run "engine", whose training began with a warm start."""
    execute("01", "engine", **SMALL)
    (folder / "warm.jsonl").write_text(json.dumps(EXAMPLE))
    return execute("03", "engine", warm_start=str(folder / "warm.jsonl"), **FEW)


def test_03_samples_from_what_a_warm_start_has_trained(warm):
    """As beta is above 0, the policy has a second adapter, the reference, which vLLM refuses."""
    assert trained_beside_one_engine(warm) and "warm start: 1 worked examples" in warm


@pytest.mark.nightly
def test_03_goes_on_from_an_adapter(execute, warm, runs):
    shutil.copytree(runs / "engine", runs / "further")
    assert trained_beside_one_engine(execute("03", "further", from_adapter=True, **FEW))


def test_03_samples_in_16_bits(execute):
    execute("01", "in_16_bits", load_in_4bit=False, **SMALL)
    said = execute("03", "in_16_bits", early_stopping=2, **FEW)
    assert trained_beside_one_engine(said) and "in 2 evaluations" in said


def test_05_measures_through_the_engine(execute, warm):
    said = execute("05", "engine", samples=2, sampled_questions=4)
    assert "of what the adapter does" in said and "'generated'" in said


@pytest.mark.nightly
def test_02_judges_what_the_engine_samples(execute, warm):
    assert "'generated'" in execute("02", "engine", groups=4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "changes"),
    [
        ("00", {"preset": "pocket", "max_steps": 2}),
        ("07", FEW),
        ("09", FEW | {"samples": 2}),
        ("10", FEW | {"train_size": 16}),
    ],
)
def test_a_lesson_trains_beside_the_engine(execute, number, changes):
    said = execute(number, f"lesson{number}", engine="vllm", holdout_size=16, **changes)
    assert trained_beside_one_engine(said)


def test_03_ends_completions_at_a_stop_text(execute, runs):
    """None of them runs on, and those that end with the text are not counted as cut off."""
    execute("01", "stopped", **SMALL)
    assert trained_beside_one_engine(execute("03", "stopped", stop="</think>", **FEW))
    table = pd.read_parquet(runs / "stopped" / "completions.parquet")
    ended = table["completion"].str.endswith("</think>")
    assert ended.mean() > 0.5 and (table["completion"].str.count("</think>") == ended).all()
    logged = pd.read_csv(runs / "stopped" / "metrics.csv").set_index("step")
    assert (logged["completions/clipped_ratio"] <= 1 - ended.groupby(table["step"]).mean()).all()
