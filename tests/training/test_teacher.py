"""A teacher, in a real training of the pocket model, and through the trainer that Unsloth writes for
a GPU.
"""

import json
import os
import subprocess
from types import SimpleNamespace

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOTrainer

from examples.distillation import learn_from
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")
TASK = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


def test_the_policy_moves_to_its_teacher_by_the_kl_alone(fresh, config, tmp_path):
    def zero(completions, **columns):
        return [0.0] * len(completions)

    def kl(spoilt: float, steps: int) -> list[float]:
        """The KL of each step of a spoilt pocket model that the pocket model teaches."""
        teacher, _ = fresh(load_in_4bit=False)
        model, tokenizer = fresh(load_in_4bit=False)
        torch.manual_seed(1)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=spoilt)
        few = {"max_steps": steps, "max_completion_length": 24, "beta": 1.0, "seed": 5}
        few |= {"per_device_train_batch_size": 32}
        rate = {"learning_rate": 3e-3, "lr_scheduler_type": "constant"}
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=config(tmp_path, **few, **rate),
            reward_funcs=[zero],
            train_dataset=Dataset.from_pandas(TASK),
        )
        learn_from(trainer, teacher, tokenizer)
        trainer.train()
        return [row["kl"] for row in trainer.state.log_history if "reward" in row]

    assert kl(0.0, 1) == pytest.approx([0.0], abs=1e-4)
    first, *_, last = kl(0.4, 8)
    assert first > 0.05 and last < 0.6 * first


def test_a_teacher_with_other_tokens_is_refused_by_name():
    pocket, other = (PRESETS["pocket"].model_path, PROJECT / "helpers" / "pocket" / "games_model")
    models = [
        SimpleNamespace(config=SimpleNamespace(_name_or_path=str(p))) for p in (pocket, other)
    ]
    tokens = [AutoTokenizer.from_pretrained(path) for path in (pocket, other)]
    trainer = SimpleNamespace(model=models[0], processing_class=tokens[0])
    with pytest.raises(ValueError, match=r"games_model and the policy .*different tokenizers"):
        learn_from(trainer, models[1], tokens[1])


# Unsloth's own scoring, on the teacher and on the policy of a trainer, against their logits.
ON_A_GPU = """
import json
from types import SimpleNamespace
import unsloth, torch, trl
from unsloth.models import rl
rl._patch_trl_rl_trainers("grpo_trainer")
from transformers import AutoModelForCausalLM
from helpers.presets import PRESETS

score = trl.GRPOTrainer._get_per_token_logps_and_entropies
load = lambda: AutoModelForCausalLM.from_pretrained(PRESETS["pocket"].model_path, dtype=torch.float32)
policy, teacher = load().eval(), load().eval()
torch.manual_seed(0)
for weight in teacher.parameters():
    weight.data += 0.02 * torch.randn_like(weight)
ids, keep = torch.randint(20, 90, (3, 12)), 5
trainer = SimpleNamespace(
    accelerator=SimpleNamespace(unwrap_model=lambda model, **_: model),
    processing_class=SimpleNamespace(pad_token_id=policy.config.pad_token_id),
    temperature=1.0, model=policy, use_vllm=False,
    args=SimpleNamespace(unsloth_grpo_mini_batch=1, unsloth_logit_chunk_multiplier=1,
                         bf16=False, fp16=False),
    _autocast_dtype=torch.float32, _autocast_enabled=False,
)
found = {}
for name, model in (("policy", policy), ("teacher", teacher)):
    with torch.no_grad():
        logits = model(ids).logits[:, :-1].log_softmax(-1)
    wanted = logits.gather(-1, ids[:, 1:, None])[:, -keep:, 0]
    scored = score(trainer, model, ids, torch.ones_like(ids), keep)[0][:, -keep:]
    found[name] = (scored - wanted).abs().max().item()
found["apart"] = (load()(ids).logits - teacher(ids).logits).abs().max().item()
print("\\n" + json.dumps(found))
"""


@pytest.mark.slow
def test_unsloths_trainer_for_a_gpu_scores_the_reference_that_it_is_given(python, tmp_path):
    """`ref_model` if there is one, through its own head, though Unsloth did not load it."""
    done = subprocess.run(
        [python, "-c", ON_A_GPU],
        cwd=tmp_path,  # Unsloth writes the trainer there
        env=os.environ
        | {"PYTHONPATH": str(PROJECT), "CUDA_VISIBLE_DEVICES": "", "UNSLOTH_ALLOW_CPU": "1"}
        | {"TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["policy"] < 1e-3 and found["teacher"] < 1e-3 and found["apart"] > 0.5
    (written,) = tmp_path.rglob("UnslothGRPOTrainer.py")
    source = written.read_text("utf-8")
    given = "if self.ref_model is not None:\n" + " " * 20
    assert source.count(f"{given}ref_per_token_logps, _, _ = self._get_per_token_logps") == 1
