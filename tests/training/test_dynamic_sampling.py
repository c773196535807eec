"""Dynamic sampling and a teacher, in real trainings of the pocket model; the teacher also through
the trainer that Unsloth writes for a GPU.
"""

import json
import os
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOTrainer

from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.training.dynamic_sampling import _others, refill
from helpers.training.policy import learn_from, sample

pytestmark = pytest.mark.usefixtures("one_thread")
TASK = load_task("arithmetic/sums", train_size=60, holdout_size=8).train
# two questions of three are dead: each of their completions earns the same
ROWS = Dataset.from_pandas(TASK.assign(dead=[number % 3 > 0 for number in range(len(TASK))]))


def told_apart(completions, dead, log_extra, **columns):
    """Different for each completion of a question that is not dead."""
    log_extra("question", columns["question"])
    places = range(len(completions))
    return [0.25 if same else place % 4 / 4 for place, same in zip(places, dead, strict=True)]


@pytest.fixture
def trained(fresh, config, tmp_path):
    """A function to a trainer after some steps of two groups of four, and the batches that it made."""

    def trained(rounds: int, rows=ROWS, steps: int = 3, reward=told_apart):
        model, tokenizer = fresh(load_in_4bit=False)
        few = {"max_steps": steps, "max_completion_length": 8, "seed": 5}
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=config(tmp_path, **few, log_completions=True, num_completions_to_print=0),
            reward_funcs=[reward],
            train_dataset=rows,
        )
        if rounds:
            refill(trainer, rounds)
        made, prepare = [], trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda rows: (
            made.append(prepare(rows)) or made[-1]
        )
        trainer.train()
        return trainer, made

    return trained


def logged(trainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if "reward" in row]


def test_each_group_of_a_batch_disagrees_and_the_metrics_are_of_all_that_was_sampled(trained):
    plain, before = trained(0)
    assert any((batch["advantages"].view(2, 4) == 0).all(dim=1).any() for batch in before)
    trainer, batches = trained(8)
    for batch in batches:
        assert batch["completion_ids"].shape[0] == 8
        assert (batch["advantages"].view(2, 4) != 0).any(dim=1).all()
    kept, dead = (logged(trainer, n) for n in ("dynamic_sampling/kept", "frac_reward_zero_std"))
    assert min(kept) < 1 and all(1 / share == round(1 / share) for share in kept)
    assert 0.3 < sum(dead) / len(dead) < 1
    # a live group has the mean 0.375, a dead one 0.25
    expected = [0.375 - 0.125 * share for share in dead]
    assert logged(trainer, "reward") == pytest.approx(expected)
    assert logged(trainer, "rewards/told_apart/mean") == pytest.approx(expected)
    assert trainer.state.num_input_tokens_seen > plain.state.num_input_tokens_seen


def test_what_is_logged_of_a_completion_is_of_its_own_question(trained):
    trainer, batches = trained(8, steps=1)
    logs, text = trainer._logs, trainer.processing_class.decode
    assert len(logs["completion"]) == len(logs["extra"]["question"]) == 8
    for place in range(8):
        question = logs["extra"]["question"][place]
        assert question in logs["prompt"][place][-1]["content"]
        assert question in text(batches[0]["prompt_ids"][place])
        completion = text(batches[0]["completion_ids"][place], skip_special_tokens=True)
        assert completion == logs["completion"][place][-1]["content"]


def test_without_groups_that_disagree_the_batch_is_filled_with_dead_ones(trained):
    none = Dataset.from_pandas(TASK.assign(dead=True))
    trainer, batches = trained(2, rows=none, steps=1)
    assert batches[0]["completion_ids"].shape[0] == 8 and not batches[0]["advantages"].any()
    assert logged(trainer, "dynamic_sampling/kept") == pytest.approx([1 / 3])
    assert logged(trainer, "frac_reward_zero_std") == [1.0]


def test_what_no_reward_could_judge_is_no_zero_and_a_column_of_some_rounds_keeps_its_rows(trained):
    def unsure(completions, question, dead, log_extra, **columns):
        """None for the first completion of each group; those of a dead question are otherwise 1."""
        if not any(dead):
            log_extra("seen", question)
        scores = enumerate(told_apart(completions, dead, lambda *_: None, question=question))
        return [None if place % 4 == 0 else 1.0 if dead[place] else s for place, s in scores]

    trainer, batches = trained(8, reward=unsure, steps=1)
    for batch in batches:
        assert (batch["advantages"].view(2, 4)[:, 1:] != 0).any(dim=1).all()
    # of those that could be judged: 0.25, 0.5 and 0.75 in a live group, 1.0 in a dead one
    expected = [0.5 + 0.5 * share for share in logged(trainer, "frac_reward_zero_std")]
    assert logged(trainer, "reward") == pytest.approx(expected)
    seen = trainer._logs["extra"]["seen"]
    for place, question in enumerate(seen):
        assert question is None or question in trainer._logs["prompt"][place][-1]["content"]


def test_the_questions_of_a_round_depend_on_the_step_and_the_round_alone(trained):
    """So a resumed training draws those that it would have drawn."""
    trainer, _ = trained(0, steps=1)
    drawn = [row["question"] for row in _others(trainer, 8, 1)]
    torch.manual_seed(99)
    assert [row["question"] for row in _others(trainer, 8, 1)] == drawn
    assert all(len(set(drawn[start : start + 4])) == 1 for start in range(0, 32, 4))
    assert [row["question"] for row in _others(trainer, 8, 2)] != drawn
    trainer.state.global_step += 1
    assert [row["question"] for row in _others(trainer, 8, 1)] != drawn


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"multi_objective_aggregation": "normalize_then_sum"}, "gives every group an advantage"),
        ({"per_device_train_batch_size": 4, "processes": 2}, "each process must hold whole groups"),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, said):
    settings = {"gradient_accumulation_steps": 1, "steps_per_generation": 1} | settings
    pocket = replace(PRESETS["pocket"], **settings)
    with pytest.raises(ValueError, match=said):
        replace(pocket, dynamic_sampling=2)


def test_a_trainer_of_episodes_is_refused():
    with pytest.raises(ValueError, match="one turn"):
        refill(SimpleNamespace(environments=[], tools=[]), 2)


# --- A teacher ------------------------------------------------------------------------------------


def test_the_policy_moves_to_its_teacher_by_the_kl_alone(fresh, config, tmp_path):
    def zero(completions, **columns):
        return [0.0] * len(completions)

    def divergence(teacher, model, tokenizer) -> float:
        """KL(teacher || policy), exact, over the tokens of what the policy writes."""
        prompts = [list(prompt) for prompt in TASK["prompt"].head(16)]
        texts = sample(model, tokenizer, prompts, max_new_tokens=24, progress=False)
        said = [
            tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) + text
            for prompt, (text,) in zip(prompts, texts, strict=True)
        ]
        ids = tokenizer(said, padding=True, padding_side="right", return_tensors="pt")
        with torch.no_grad():
            q, p = (one(**ids).logits.float().log_softmax(-1) for one in (teacher, model))
        each = (q.exp() * (q - p)).sum(-1)
        return (each * ids["attention_mask"]).sum().item() / ids["attention_mask"].sum().item()

    def trained(spoilt: float, steps: int) -> tuple[float, float, float]:
        """A spoilt pocket model, taught by the pocket model: the KL that TRL logs first, and the
        exact one before and after.
        """
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
            train_dataset=ROWS,
        )
        before = divergence(teacher, model, tokenizer)
        learn_from(trainer, teacher, tokenizer)
        trainer.train()
        return logged(trainer, "kl")[0], before, divergence(teacher, model, tokenizer)

    assert trained(0.0, 1) == pytest.approx((0.0, 0.0, 0.0), abs=1e-4)
    kl, before, after = trained(0.4, 6)
    assert kl > 0.05 and after < 0.8 * before


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
