"""The base of an adapter: named as PEFT and Unsloth name it, and told with its quantisation."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model

from helpers.presets import PRESETS, with_overrides
from helpers.runs import Run
from helpers.training import policy
from helpers.training.base import Base, base_of, describe, quantisation, told

POCKET = PRESETS["pocket"]
HUB = sorted(
    {preset.model for preset in PRESETS.values() if "/" in preset.model}
    | {"Qwen/Qwen3-4B", "unsloth/Qwen3-32B"}
)
NAMES = """
import json, sys
import unsloth
from unsloth.models.loader_utils import get_model_name
loaded = {name: get_model_name(name, load_in_4bit=True) for name in sys.argv[1:]}
print("\\n" + json.dumps({name: [it, get_model_name(it, load_in_4bit=False)] for name, it in loaded.items()}))
"""


@pytest.mark.slow
def test_the_original_of_a_stored_quantisation_is_the_one_that_unsloths_merge_takes(tmp_path):
    """With its GPU classes, which is where that merge is (unsloth_zoo/saving_utils.py,
    `merge_and_overwrite_lora`).
    """
    environment = os.environ | {"UNSLOTH_ALLOW_CPU": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", NAMES, *HUB]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    names = json.loads(done.stdout.splitlines()[-1])
    for asked, (loaded, original) in names.items():
        assert Base(loaded, "before").original == original, asked
    assert names["unsloth/Qwen3-4B"] == ["unsloth/Qwen3-4B-unsloth-bnb-4bit", "unsloth/Qwen3-4B"]
    assert names["Qwen/Qwen3-4B"][1] == "unsloth/Qwen3-4B", "and not the name that was asked for"


def test_the_original_of_what_was_quantised_here_is_itself_and_of_an_unknown_one_nothing():
    assert Base("me/model", "here").original == Base("me/model", None).original == "me/model"
    assert Base("me/model-bnb-4bit", "before").original is None


def adapted(settings):
    torch.manual_seed(0)
    return get_peft_model(
        policy.load(settings)[0], LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    )


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_the_embedded_model_is_described_by_its_own_name_and_as_quantised_here(backend):
    settings = with_overrides(POCKET, backend=backend)
    found = describe(adapted(settings), settings)
    layers = {
        "layers": 28,
        "layers_in_4_bits": 28,
        "fingerprint": quantisation(policy.load(POCKET)[0])["fingerprint"],
    }
    assert (
        found
        == {"name": "pocket", "original": "pocket", "revision": None, "quantised": "here"} | layers
    )
    assert told(found) == (
        "pocket, quantised to 4 bits (NF4) when it was loaded: 28 of 28 linear layers, "
        f"fingerprint {found['fingerprint']}"
    )
    plain = with_overrides(settings, load_in_4bit=False)
    assert told(describe(adapted(plain), plain)) == "pocket, in 16 bits"


def test_an_embedded_model_is_found_in_this_checkout_wherever_the_adapter_was_made(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    elsewhere = {"base_model_name_or_path": "/another/checkout/helpers/pocket/model"}
    run.path("adapter/adapter_config.json").write_text(json.dumps(elsewhere))
    # an adapter without weights will do here
    monkeypatch.setattr(Run, "require", lambda self, name: self.folder / name)
    assert base_of(run, POCKET) == Base(POCKET.model_path, "here", None)


# --- The fingerprint ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_4_bits():
    return policy.load(with_overrides(POCKET, backend="transformers"))[0]


def recorded(model, **otherwise) -> Base:
    """What a training on this model would have recorded; `otherwise` are parts of its fingerprint,
    and fields of the base.
    """
    version, device, layout, weights = quantisation(model)["fingerprint"].split("-")
    parts = {"device": device, "layout": layout, "weights": weights} | {
        part: otherwise.pop(part) for part in ("device", "layout", "weights") if part in otherwise
    }
    return Base(
        "me/model",
        **{"quantised": "before", "fingerprint": "-".join((version, *parts.values()))} | otherwise,
    )


@pytest.mark.parametrize("what", ["codes", "scales"])
@pytest.mark.parametrize("quantised", ["before", "here"])
def test_other_weights_of_the_same_shape_are_another_base(in_4_bits, what, quantised):
    base, changed = recorded(in_4_bits, quantised=quantised), copy.deepcopy(in_4_bits)
    assert base.check(changed) is None
    weight = changed.model.layers[2].mlp.up_proj.weight
    stored = weight.data if what == "codes" else weight.quant_state.absmax
    stored[len(stored) // 2 :] += 1
    with pytest.raises(ValueError, match="me/model is not as it was in the training"):
        base.check(changed)
    now, then = (quantisation(model)["fingerprint"].split("-") for model in (changed, in_4_bits))
    assert now[:3] == then[:3] and now[3] != then[3]


@pytest.mark.parametrize(
    ("otherwise", "same"),
    [
        ({"device": "cuda"}, True),  # stored in 4 bits, they are the same anywhere
        ({"device": "cuda", "weights": "0" * 16}, False),
        # quantised here, they may differ by a code
        ({"device": "cuda", "weights": "0" * 16, "quantised": "here"}, True),
        ({"device": "cuda", "weights": "0" * 16, "quantised": "here", "revision": "other"}, False),
        ({"layout": "0" * 16}, False),
        ({"revision": "other"}, True),  # the same weights in another commit
    ],
)
def test_a_base_is_recognised_by_its_weights_or_where_they_cannot_be_compared_by_its_revision(
    in_4_bits, monkeypatch, otherwise, same
):
    monkeypatch.setattr(in_4_bits.config, "_commit_hash", "this")
    base = recorded(in_4_bits, **otherwise)
    if same:
        assert base.check(in_4_bits) is None
    else:
        with pytest.raises(ValueError, match="is not as it was in the training"):
            base.check(in_4_bits)


def test_a_run_of_an_earlier_version_has_the_layout_alone(in_4_bits, monkeypatch):
    layout = quantisation(in_4_bits)["fingerprint"].split("-")[2]
    assert recorded(in_4_bits, fingerprint=layout, revision="then").check(in_4_bits) is None
    monkeypatch.setattr(in_4_bits.config, "_commit_hash", "now")
    with pytest.raises(ValueError, match=r"revision now; then [0-9a-f]{16}, revision then"):
        recorded(in_4_bits, fingerprint=layout, revision="then").check(in_4_bits)
    with pytest.raises(ValueError, match="is not as it was in the training"):
        recorded(in_4_bits, fingerprint="0" * 16).check(in_4_bits)
