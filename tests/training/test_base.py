"""The base of an adapter: its names for PEFT and Unsloth, and its revision; and what is said of its
training.
"""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.presets import PRESETS
from helpers.settling import settle
from helpers.training.base import (
    Base,
    base_in_words,
    base_of,
    base_record,
    revision_of,
    training_in_words,
)

POCKET = PRESETS["pocket"]


@pytest.mark.parametrize(
    ("name", "quantised", "original"),
    [
        ("me/model", "here", "me/model"),
        ("me/model", None, "me/model"),
        ("me/model-bnb-4bit", "before", None),
        ("unsloth/Qwen3-4B-unsloth-bnb-4bit", "before", "unsloth/Qwen3-4B"),
    ],
)
def test_the_original_of_a_quantised_base(name, quantised, original):
    assert Base(name, quantised).original == original


def test_an_embedded_model_is_recorded_by_name(policy):
    found = base_record(policy[0], POCKET)
    revision = revision_of(policy[0], POCKET.model_path)
    assert found == {
        **{"name": "pocket", "original": "pocket", "revision": revision, "quantised": "here"},
    }
    assert base_in_words(found) == (
        f"pocket (revision {revision[:12]}), quantised to 4 bits (NF4) when it was loaded"
    )
    plain = base_record(policy[0], settle(POCKET, load_in_4bit=False))
    assert base_in_words(plain | {"revision": None}) == "pocket, in 16 bits"


def test_an_embedded_base_is_found_in_this_checkout(run):
    elsewhere = {"base_model_name_or_path": "/another/checkout/helpers/pocket/model"}
    run.path("adapter/adapter_config.json").write_text(json.dumps(elsewhere))
    run.record("training", base={"fingerprint": "of an earlier version", "revision": "then"})
    assert base_of(run, POCKET) == Base(POCKET.model_path, "here", "then")


def test_other_weights_in_a_folder_are_another_base(tmp_path):
    shutil.copytree(POCKET.model_path, folder := tmp_path / "model")
    base = Base(str(folder), "here", revision_of(None, str(folder)))
    base.check(None)
    assert base.revision == revision_of(None, POCKET.model_path), "wherever it is"
    (path,) = folder.glob("*.safetensors")
    weights = load_file(path)
    name = sorted(weights)[len(weights) // 2]
    save_file(weights | {name: torch.zeros_like(weights[name])}, path, {"format": "pt"})
    with pytest.raises(ValueError, match=base.revision):
        base.check(None)


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [("a", "a", True), ("a", "b", False), (None, "b", True), ("a", None, True)],
)
def test_a_hub_base_is_compared_by_its_commit(then, now, same):
    model = SimpleNamespace(config=SimpleNamespace(_commit_hash=now))
    if same:
        Base("me/model", "before", then).check(model)
    else:
        with pytest.raises(ValueError, match="revision b; then a"):
            Base("me/model", "before", then).check(model)


def test_what_a_training_was_is_said_before_its_numbers():
    training = {"steps": 32, "earlier_steps": 8, "warm_start": {"examples": 12, "epochs": 3}}
    (stages,) = training_in_words(training)
    assert all(number in stages for number in ("12", "3 epochs", "40 steps"))
    control, stages = training_in_words(training | {"control": "shuffled"})
    assert "shuffled" in control and "control" in control.lower()
    assert training_in_words({"steps": 32}) == []
