"""The notebooks from the first cell to the last with a real vLLM engine beside Unsloth's policy.

`.ci/run` executes 03 in 4 and 16 bits, and 05. Those marked `nightly` are left to the nightly
workflow, because each takes a minute: what the lessons do with the engine, 03 does as well.
"""

import json
import shutil

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm", "vllm_bnb_plugin")]

FEW = {"max_steps": 2, "per_device_train_batch_size": 16}  # two groups of eight
UNSLOTHS = "trained by UnslothGRPOTrainer"


def sampled(said: str) -> bool:
    """Whether Unsloth's trainer trained, and a single engine slept between its rounds of sampling."""
    return (
        UNSLOTHS in said
        and all(
            f"'{name}'" in said for name in ("loaded with vLLM", "generated", "slept", "woken up")
        )
        and "'loaded with vLLM': 1" in said
    )


@pytest.fixture(scope="module")
def prepared(execute, runs):
    """The run "engine", as notebook 01 leaves it for vLLM."""
    execute("01", "engine", preset="pocket", engine="vllm", train_size=64, holdout_size=16)


@pytest.fixture(scope="module")
def warm(execute, prepared, folder):
    """What notebook 03 printed for the run "engine", which began with a warm start."""
    example = {"question": "What is 2 + 3?", "completion": "<think>2 + 3 = 5</think><answer>5"}
    (folder / "warm.jsonl").write_text(json.dumps(example))
    return execute("03", "engine", warm_start=str(folder / "warm.jsonl"), **FEW)


def test_03_samples_from_what_a_warm_start_has_trained(warm):
    """beta > 0: the policy has a second adapter, the reference, which vLLM does not take."""
    assert sampled(warm) and "warm start: 1 worked examples" in warm


@pytest.mark.nightly
def test_03_goes_on_from_an_adapter(execute, warm, runs):
    shutil.copytree(runs / "engine", runs / "further")
    assert sampled(execute("03", "further", from_adapter=True, **FEW))


def test_03_samples_in_16_bits(execute, runs):
    few = {"train_size": 64, "holdout_size": 16, "load_in_4bit": False}
    execute("01", "in16", preset="pocket", engine="vllm", **few)
    assert sampled(execute("03", "in16", **FEW))


def test_05_measures_through_the_engine(execute, warm):
    said = execute("05", "engine", samples=2, sampled_questions=4)
    assert "of what the adapter does" in said and "'generated'" in said


@pytest.mark.nightly
def test_02_judges_what_the_engine_samples(execute, prepared):
    assert "'generated'" in execute("02", "engine", groups=4)


@pytest.mark.nightly
def test_00_takes_vllm_where_the_preset_does(execute):
    pocket = {"preset": "l4", "model": "pocket", "source": "arithmetic/sums"}
    assert sampled(execute("00", "quick", max_steps=2, holdout_size=16, **pocket))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "few"),
    [
        ("07", {"holdout_size": 16}),
        ("09", {"holdout_size": 16, "samples": 2}),
        ("10", {"train_size": 16, "holdout_size": 16}),
    ],
)
def test_a_lesson_trains_beside_the_engine(execute, number, few):
    assert sampled(execute(number, f"lesson{number}", engine="vllm", **few, **FEW))
