"""What sampling leaves of a training, beside Unsloth's own `generate`."""

import json

import pytest

pytestmark = pytest.mark.slow

SAMPLED = """
import stand_in
import json
from dataclasses import replace
from helpers.presets import PRESETS
from helpers.training import policy, sampling

settings = replace(PRESETS["pocket"], gradient_checkpointing=True, load_in_4bit=False)
policy.import_unsloth(settings)
model, tokenizer = policy.load(settings)
model = policy.add_adapter(model, settings, seed=1)

def state():
    switches = [getattr(one, "gradient_checkpointing", None) for one in model.modules()]
    checkpointing = [switch for switch in switches if switch is not None]
    inner = model.get_base_model().model
    training = all(module.training for module in model.modules())
    return [checkpointing, training, hasattr(inner, "_flag_for_generation"), model.config.use_cache]

model.for_training(use_gradient_checkpointing=True)
found = {"before": state()}
prompt = [{"role": "user", "content": "1 + 2?"}]
sampling.sample(model, tokenizer, [prompt], max_new_tokens=4)
found["after"] = state()
print("\\n" + json.dumps(found))
"""


def test_sampling_in_a_training_leaves_gradient_checkpointing_as_it_was(process):
    """A round of sampling may serve several steps."""
    done = process(SAMPLED)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    checkpointing, training, generating, cache = found["before"]
    assert len(checkpointing) > 1 and all(checkpointing)
    assert training and not generating and not cache
    assert found["after"] == found["before"]
