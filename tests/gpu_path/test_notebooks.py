"""The notebooks from the first cell to the last, through Unsloth's GPU code."""

import pytest

pytestmark = pytest.mark.slow

FEW = {"max_steps": 2, "per_device_train_batch_size": 16}  # two groups of eight


@pytest.fixture(scope="module")
def trained(execute):
    """What notebook 03 printed; its run is "suite"."""
    sizes = {"train_size": 64, "holdout_size": 16}
    execute("01", "suite", preset="pocket", **sizes)
    return execute("03", "suite", **FEW)


def test_00_trains_measures_and_merges(execute):
    said = execute("00", "quickstart", preset="pocket", max_steps=2, holdout_size=16)
    assert "on NVIDIA L4" in said and "trained against baseline" in said


def test_03_trains_through_the_trainer_that_unsloth_writes(trained):
    assert "every completion at its limit" in trained and "adapter" in trained


def test_05_measures_proves_and_merges(execute, trained):
    said = execute("05", "suite", samples=2, sampled_questions=4, serve=False)
    assert "of what the adapter does" in said


def test_10_plays_episodes_and_trains_on_them(execute):
    said = execute("10", "agents", train_size=16, holdout_size=16, **FEW)
    assert "faults of the environment: 0" in said


def test_11_trains_without_unsloth(execute):
    said = execute("11", "vision", train_size=64, holdout_size=16, shortcut_steps=2, **FEW)
    assert "of what the adapter does" in said
