"""The base of an adapter: named as PEFT and Unsloth name it, and told with its quantisation."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from peft import LoraConfig, get_peft_model

from helpers.presets import PRESETS, with_overrides
from helpers.runs import Run
from helpers.training import policy
from helpers.training.base import Base, base_of, describe, told

POCKET = PRESETS["pocket"]
HUB = sorted(
    {preset.model for preset in PRESETS.values() if "/" in preset.model}
    | {"Qwen/Qwen3-4B", "unsloth/Qwen3-32B"}
)
NAMES = """
import json, sys
import unsloth
from unsloth.models.loader_utils import get_model_name
found = {}
for name in sys.argv[1:]:
    loaded = get_model_name(name, load_in_4bit=True)
    found[name] = [loaded, get_model_name(loaded, load_in_4bit=False)]
print("\\n" + json.dumps(found))
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


def adapted(settings):
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    return get_peft_model(policy.load(settings)[0], lora)


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_the_embedded_model_is_described_by_its_own_name_and_as_quantised_here(backend):
    settings = with_overrides(POCKET, backend=backend)
    found = describe(adapted(settings), settings)
    assert found == {
        **{"name": "pocket", "original": "pocket", "revision": None, "quantised": "here"},
        **{"layers": 28, "layers_in_4_bits": 28},
    }
    said = "pocket, quantised to 4 bits (NF4) when it was loaded: 28 of 28 linear layers"
    assert told(found) == said
    plain = with_overrides(settings, load_in_4bit=False)
    plainly = describe(adapted(plain), plain)
    assert told(plainly) == "pocket, in 16 bits" and plainly["layers_in_4_bits"] == 0


def test_an_embedded_model_is_found_in_this_checkout_wherever_the_adapter_was_made(
    run, monkeypatch
):
    elsewhere = {"base_model_name_or_path": "/another/checkout/helpers/pocket/model"}
    run.path("adapter/adapter_config.json").write_text(json.dumps(elsewhere))
    # an adapter without weights will do here
    monkeypatch.setattr(Run, "require", lambda self, name: self.folder / name)
    run.record("training", base={"revision": "then"})
    assert base_of(run, POCKET) == Base(POCKET.model_path, "here", "then")


@pytest.mark.parametrize(
    ("recorded", "found", "same"),
    [("a", "a", True), (None, "a", True), ("a", None, True), ("a", "b", False)],
)
def test_another_revision_of_the_base_than_in_the_training_is_refused(recorded, found, same):
    base = Base("me/model", "before", recorded)
    model = SimpleNamespace(config=SimpleNamespace(_commit_hash=found))
    if same:
        base.check(model)
    else:
        with pytest.raises(ValueError, match=r"me/model is not as it was .* is b, then it was a"):
            base.check(model)
