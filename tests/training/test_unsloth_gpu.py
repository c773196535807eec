"""What Unsloth does on a GPU, without one: its `generate` is run. And what the suite does so that a
training there is the training here: one reference, and nothing left behind by sampling.
"""

import json
import os
import subprocess

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
from datasets import Dataset
from trl import GRPOTrainer

from helpers import PROJECT
from helpers.commands.pipeline import NOTEBOOKS
from helpers.data.tasks import load_task
from helpers.rewards.structure import format_reward
from helpers.training.policy import freeze_reference

pytestmark = pytest.mark.slow

# A model as FastLlamaModel.from_pretrained and patch_peft_model leave it, which themselves ask for
# a card.
GPU_SIDE = """
import functools, json, types
from dataclasses import replace
import unsloth
from unsloth.models.llama import FastLlamaModel, unsloth_fast_generate
from transformers import AutoModelForCausalLM, AutoTokenizer
from helpers.presets import PRESETS
from helpers.training import policy

settings = replace(PRESETS["pocket"], gradient_checkpointing=True)
tokenizer = AutoTokenizer.from_pretrained(settings.model_path)
model = policy.add_adapter(AutoModelForCausalLM.from_pretrained(settings.model_path), settings)
model._unsloth_gradient_checkpointing = True
model.for_training = functools.partial(FastLlamaModel.for_training, model)
model._old_generate, model.generate = model.generate, types.MethodType(unsloth_fast_generate, model)

def state():
    switches = [getattr(one, "gradient_checkpointing", None) for one in model.modules()]
    checkpointing = [switch for switch in switches if switch is not None]
    inner = model.get_base_model().model
    training = all(module.training for module in model.modules())
    return [checkpointing, training, hasattr(inner, "_flag_for_generation"), model.config.use_cache]

model.for_training(use_gradient_checkpointing=True)
found = {"before": state()}
prompt = [{"role": "user", "content": "1 + 2?"}]
policy.sample(model, tokenizer, [prompt], max_new_tokens=4, progress=False)
found["after"] = state()
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def on_gpu(python, tmp_path_factory) -> dict:
    """The state of a policy in training before and after sampling."""
    done = subprocess.run(
        [python, "-c", GPU_SIDE],
        cwd=tmp_path_factory.mktemp("unsloth"),  # Unsloth's GPU side leaves a cache there
        env=os.environ
        | {"PYTHONPATH": str(PROJECT), "CUDA_VISIBLE_DEVICES": "", "UNSLOTH_ALLOW_CPU": "1"}
        | {"TORCHDYNAMO_DISABLE": "1"},  # compiling takes a C++ compiler
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


# --- What sampling leaves -------------------------------------------------------------------------


def test_sampling_in_a_training_leaves_gradient_checkpointing_as_it_was(on_gpu):
    """A round of sampling may serve several steps."""
    checkpointing, training, generating, cache = on_gpu["before"]
    assert len(checkpointing) > 1 and all(checkpointing)
    assert training and not generating and not cache
    assert on_gpu["after"] == on_gpu["before"]


# --- The reference of the KL ----------------------------------------------------------------------


def test_unsloths_loss_stops_pulling_a_token_back_once_it_is_13_6_times_less_likely():
    """docs/presets.md; TRL's gradient goes on growing."""
    from unsloth_zoo.rl_replacements import grpo_compute_loss

    ratios = torch.tensor([[13.5, 13.7]])  # the reference's probability over the policy's
    new = torch.zeros(1, 2, requires_grad=True)
    given = {"old": None, "sampling_per_token_logps": None, "mask": torch.ones(1, 2), "beta": 1.0}
    ids = torch.ones(1, 2, dtype=torch.long)
    loss, *_ = grpo_compute_loss(
        ratios.log(), new, input_ids=ids, advantages=torch.zeros(1), loss_type="grpo", **given
    )
    loss.backward()
    pulled, let_go = new.grad[0]
    assert pulled < -5 and let_go == 0


ROWS = Dataset.from_pandas(load_task("arithmetic/sums", train_size=60, holdout_size=8).train)


@pytest.fixture
def kl(fresh, config, tmp_path):
    """A function to the KL of each step of two, which are large; of a second stage after them, if
    `stages` is 2.

    gpu: with the reference as Unsloth's trainer for a GPU has it; freeze: and ours.
    """
    few = {"max_steps": 2, "max_completion_length": 16, "lr_scheduler_type": "constant"}
    few |= {"seed": 7, "learning_rate": 1e-2, "beta": 0.02}

    def kl(stages: int = 1, gpu: bool = False, freeze: bool = False) -> list[float]:
        model, tokenizer = fresh(load_in_4bit=False)
        given = {"model": model, "processing_class": tokenizer, "reward_funcs": [format_reward]}
        if stages == 2:
            GRPOTrainer(**given, args=config(tmp_path, **few), train_dataset=ROWS).train()
            model.delete_adapter("ref")
        trainer = GRPOTrainer(**given, args=config(tmp_path, **few), train_dataset=ROWS)
        if gpu:
            model.delete_adapter("ref")
        if freeze:
            freeze_reference(model)
        trainer.train()
        return [row["kl"] for row in trainer.state.log_history if "kl" in row]

    return kl


def test_a_fresh_adapter_has_one_reference_on_every_machine(kl):
    """Notebook 03: the copy of an adapter that changes nothing is the model without it."""
    here = kl()
    assert here[0] == 0 and here[1] > 0
    assert kl(gpu=True) == here


def test_a_second_stage_is_held_to_its_own_start_on_every_machine(kl):
    """Notebook 08: the stages, and the warm start."""
    here = kl(stages=2)
    assert here[0] == 0 and here[1] > 0
    assert kl(stages=2, gpu=True)[0] > 0, "the bare base is another reference"
    assert kl(stages=2, gpu=True, freeze=True) == here
    assert kl(stages=2, freeze=True) == here, "TRL's copy is left as it is"


def test_notebook_08_freezes_it_between_the_trainer_and_the_training():
    (path,) = NOTEBOOKS.glob("08_*.ipynb")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    (cell,) = [text for one in cells if "def grpo(" in (text := "".join(one["source"]))]
    order = ["= GRPOTrainer(", "freeze_reference(model)", "trainer.train()"]
    assert sorted(order, key=cell.index) == order
