"""The base of an adapter: named as PEFT and Unsloth name it, and told with its quantisation."""

import copy
import json

import pytest
import torch

from helpers.presets import PRESETS, override
from helpers.runs import Run
from helpers.training.base import Base, base_of, describe, quantisation, told
from helpers.training.policy import load

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
def test_the_original_of_what_was_quantised_here_is_itself_and_of_an_unknown_one_nothing(
    name, quantised, original
):
    assert Base(name, quantised).original == original


@pytest.fixture(scope="module")
def in_4_bits():
    return load(override(POCKET, backend="transformers"))[0]


def test_the_embedded_model_is_described_by_its_own_name_and_as_quantised_here(policy, in_4_bits):
    found = describe(policy[0], POCKET)
    fingerprint = quantisation(in_4_bits)["fingerprint"]  # of the other back end
    assert found == {
        **{"name": "pocket", "original": "pocket", "revision": None, "quantised": "here"},
        **{"layers": 28, "layers_in_4_bits": 28, "fingerprint": fingerprint},
    }
    assert told(found) == (
        "pocket, quantised to 4 bits (NF4) when it was loaded: 28 of 28 linear layers, "
        f"fingerprint {fingerprint}"
    )
    plain = describe(policy[0], override(POCKET, load_in_4bit=False))
    assert told(plain) == "pocket, in 16 bits"
    of_plain = {"layers": 1, "layers_in_4_bits": 0, "fingerprint": None}
    assert quantisation(torch.nn.Sequential(torch.nn.Linear(2, 2))) == of_plain


def test_an_embedded_model_is_found_in_this_checkout_wherever_the_adapter_was_made(
    run, monkeypatch
):
    elsewhere = {"base_model_name_or_path": "/another/checkout/helpers/pocket/model"}
    run.path("adapter/adapter_config.json").write_text(json.dumps(elsewhere))
    # an adapter without weights will do here
    monkeypatch.setattr(Run, "require", lambda self, name: self.folder / name)
    run.record("training", base={"fingerprint": "2-cpu-a-b", "revision": "then"})
    assert base_of(run, POCKET) == Base(POCKET.model_path, "here", "2-cpu-a-b", "then")


# --- The fingerprint ------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["codes", "scales"])
@pytest.mark.parametrize("quantised", ["before", "here"])
def test_other_weights_of_the_same_shape_are_another_base(in_4_bits, what, quantised):
    then = quantisation(in_4_bits)["fingerprint"]
    base, changed = Base("me/model", quantised, then), copy.deepcopy(in_4_bits)
    base.check(changed)
    weight = changed.model.layers[2].mlp.up_proj.weight
    stored = weight.data if what == "codes" else weight.quant_state.absmax
    stored[len(stored) // 2 :] += 1
    now = quantisation(changed)["fingerprint"]
    with pytest.raises(ValueError, match=f"me/model is not as it was in the .* {now},.* {then},"):
        base.check(changed)
    assert now.split("-")[:3] == then.split("-")[:3] and now[-16:] != then[-16:]


OTHER = "0" * 16


@pytest.mark.parametrize(
    ("recorded", "quantised", "revision", "same"),
    [
        ("2-cuda-{layout}-{weights}", "before", "this", True),  # the same weights anywhere
        ("2-cuda-{layout}-" + OTHER, "before", "this", False),
        # quantised here, they may differ by a code
        ("2-cuda-{layout}-" + OTHER, "here", "this", True),
        ("2-cuda-{layout}-" + OTHER, "here", None, True),
        ("2-cuda-{layout}-" + OTHER, "here", "other", False),
        (f"2-{{device}}-{OTHER}-{{weights}}", "before", "this", False),
        # the same weights in another commit
        ("2-{device}-{layout}-{weights}", "before", "other", True),
        # a run of an earlier version has the layout alone
        ("{layout}", "before", "this", True),
        ("{layout}", "before", "other", False),
        (OTHER, "before", "this", False),
        (None, "before", "other", True),
    ],
)
def test_a_base_is_recognised_by_its_weights_or_if_they_cannot_be_compared_by_its_revision(
    in_4_bits, monkeypatch, recorded, quantised, revision, same
):
    monkeypatch.setattr(in_4_bits.config, "_commit_hash", "this")
    parts = ("version", "device", "layout", "weights")
    now = dict(zip(parts, quantisation(in_4_bits)["fingerprint"].split("-"), strict=True))
    base = Base("me/model", quantised, recorded and recorded.format(**now), revision)
    if same:
        base.check(in_4_bits)
    else:
        with pytest.raises(ValueError, match="is not as it was in the training"):
            base.check(in_4_bits)
