"""The notebooks from the first cell to the last, through Unsloth's GPU code, sampling through
Transformers. Where a run says `backend="transformers"`, Unsloth stays out, and TRL's own trainer
trains. `.ci/run` executes 00, 03 and 05; the others are left to the nightly workflow.
"""

import json
import shutil

import pytest

pytestmark = pytest.mark.slow

FEW = {"max_steps": 2, "per_device_train_batch_size": 16}  # two groups of eight
UNSLOTHS, TRLS = "trained by UnslothGRPOTrainer", "trained by trl.trainer.grpo_trainer"


@pytest.fixture(scope="module")
def prepared(execute, runs):
    """The run "suite" as notebook 01 leaves it, and a copy, "plain"."""
    execute("01", "suite", preset="pocket", train_size=64, holdout_size=16)
    shutil.copytree(runs / "suite", runs / "plain")


@pytest.fixture(scope="module")
def trained(execute, prepared):
    """What notebook 03 printed for the run "suite"."""
    return execute("03", "suite", early_stopping=2, **FEW)


def test_00_trains_measures_and_merges(execute):
    said = execute("00", "quickstart", preset="pocket", max_steps=2, holdout_size=16)
    assert "on NVIDIA L4" in said and UNSLOTHS in said
    assert "trained against baseline" in said


def test_03_trains_through_the_trainer_that_unsloth_writes(trained):
    assert UNSLOTHS in trained
    assert "the held-out score took" in trained and "in 2 evaluations" in trained
    assert "every completion at its limit" in trained and "suite/adapter" in trained


@pytest.mark.nightly
def test_03_trains_without_unsloth(execute, prepared):
    said = execute("03", "plain", backend="transformers", **FEW)
    assert TRLS in said and "Unsloth" not in said
    assert "every completion at its limit" in said and "plain/adapter" in said


def test_05_measures_and_proves_what_unsloth_merges(execute, trained, runs):
    said = execute("05", "suite", samples=2, sampled_questions=4)
    assert "Unsloth: Merging weights into 16bit" in said
    assert "of what the adapter does" in said


@pytest.mark.nightly
def test_06_takes_the_first_steps_by_hand_and_the_others_with_trl(execute, trained):
    few = {"max_steps": 2, "trial_steps": 2, "holdout_questions": 8}
    assert TRLS in execute("06", "suite", **few), "06 needs Unsloth on a CPU only"


@pytest.mark.nightly
def test_07_trains_on_a_file(execute):
    said = execute("07", "orders", holdout_size=16, **FEW)
    assert UNSLOTHS in said and "trained against baseline" in said


@pytest.mark.nightly
def test_08_trains_every_recipe_without_an_engine_beside_each_policy(execute, trained, runs):
    """The run was prepared for vLLM."""
    path = shutil.copytree(runs / "suite", runs / "recipes") / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["data"]["settings"]["engine"] = "vllm"
    path.write_text(json.dumps(manifest))
    few = {"max_steps": 2, "holdout_questions": 8, "more_rounds": 1}
    few |= {"warm_start_examples": 8, "rated_questions": 8}
    said = execute("08", "recipes", seeds=[1], **few)
    assert UNSLOTHS + " UnslothSFTTrainer" in said and "teacher, seed 1" in said
    assert "loaded with vLLM" not in said


@pytest.mark.nightly
def test_09_trains_one_policy_twice(execute):
    said = execute("09", "code", holdout_size=16, samples=2, **FEW)
    assert UNSLOTHS in said and "{'loaded': 1}" in said


@pytest.mark.nightly
def test_10_plays_episodes_and_trains_on_them(execute):
    said = execute("10", "agents", train_size=16, holdout_size=16, **FEW)
    assert UNSLOTHS in said and "faults of the environment: 0" in said


@pytest.mark.nightly
def test_11_trains_what_sees_through_unsloth(execute):
    few = FEW | {"train_size": 64, "holdout_size": 16, "max_completion_length": 20}
    said = execute("11", "sees", preset="vision_2b", model="pocket-vision", **few, shortcut_steps=2)
    assert UNSLOTHS in said and "of what the adapter does" in said
    assert "count alone: reward" in said
    assert "{'loaded': 1}" in said, "a second policy would start a second engine"
