"""The warm start: its training, its reuse, and its refusals."""

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
import trl
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from helpers.commands.checks import check_parameters
from helpers.data.prompts import chat_prompt
from helpers.data.tasks import load_task, save
from helpers.presets import PRESETS
from helpers.settling import settle
from helpers.tags import THINK_ANSWER
from helpers.training import warm

pytestmark = pytest.mark.usefixtures("one_thread")
POCKET = settle(PRESETS["pocket"], lora_rank=4, lora_alpha=8)
TASK = load_task("arithmetic/sums", train_size=16, holdout_size=4)
EXAMPLES = [
    {"question": row.question, "completion": THINK_ANSWER.render(row.working, row.answer)}
    for row in TASK.train.itertuples()
]


@pytest.fixture
def run(run):
    save(run, TASK, POCKET)
    return run


def weights(model) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in model.named_parameters() if "lora" in name}


def test_a_warm_start_equals_trls_sft_on_messages(run, fresh, capsys):
    model, tokenizer = fresh()
    record = warm.start(run, model, tokenizer, EXAMPLES, POCKET, 7)
    assert (record["examples"], record["epochs"]) == (16, 3)
    assert re.search("warm start: 16 .* 6 ", capsys.readouterr().out)

    rows = {
        "prompt": [chat_prompt(TASK.report["system_prompt"], one["question"]) for one in EXAMPLES],
        "completion": [[{"role": "assistant", "content": one["completion"]}] for one in EXAMPLES],
    }
    names = ("learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "max_grad_norm")
    names += ("adam_beta1", "adam_beta2", "weight_decay", "gradient_checkpointing")
    given = {name: getattr(POCKET, name) for name in names}
    quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    config = SFTConfig(str(run.folder), seed=7, max_length=136, **given, **quiet)
    theirs, tokenizer = fresh()
    trainer = SFTTrainer(
        model=theirs, processing_class=tokenizer, args=config, train_dataset=Dataset.from_dict(rows)
    )
    trainer.train()
    ours = weights(model)
    assert any(one.abs().sum() for name, one in ours.items() if "lora_B" in name)
    assert all(torch.equal(one, ours[name]) for name, one in weights(theirs).items())


def test_a_warm_start_takes_no_more_than_the_steps_batch(run, fresh, capsys, monkeypatch):
    """A card that holds 1 or 3 sequences gets the 8 examples of a step in parts."""
    batches = []
    configured = trl.SFTConfig.__post_init__

    def note(config):
        configured(config)
        batches.append((config.per_device_train_batch_size, config.gradient_accumulation_steps))

    monkeypatch.setattr(trl.SFTConfig, "__post_init__", note)
    for size in (1, 3):
        model, tokenizer = fresh()
        settings = replace(POCKET, per_device_train_batch_size=size)
        warm.start(run, model, tokenizer, EXAMPLES, settings, 7)
        shutil.rmtree(run.folder / "warm_start")
    assert {(1, 8), (2, 4)} == set(batches)
    assert capsys.readouterr().out.count("16 worked examples, 6 steps") == 2


def test_what_became_of_the_loss_is_said():
    # two steps an epoch: the second examples are the harder ones
    fell = warm.change_of([0.33, 0.64, 0.30, 0.50, 0.20, 0.34])
    assert "fell" in fell and "0.48" in fell and "0.27" in fell
    for losses in ([0.33, 0.33, 0.34], [0.5, 0.5, 0.5]):
        assert "did not fall" in warm.change_of(losses)
    assert "did not fall" in warm.change_of([0.331, 0.33, 0.329]), "not from 0.33 to 0.33"


def test_a_warm_start_is_reused_only_if_nothing_has_changed(run, fresh, capsys):
    model, tokenizer = fresh()
    record = warm.start(run, model, tokenizer, EXAMPLES[:8], POCKET, 7)
    trained = weights(model)
    model, tokenizer = fresh()
    capsys.readouterr()
    assert warm.start(run, model, tokenizer, EXAMPLES[:8], POCKET, 7) == record
    assert capsys.readouterr().out.endswith(f" {run.show('warm_start')}\n")
    assert all(torch.equal(weight, trained[name]) for name, weight in weights(model).items())
    for examples, seed in ((EXAMPLES[:8], 8), (EXAMPLES[1:9], 7)):
        assert warm.start(run, model, tokenizer, examples, POCKET, seed) != record
        assert "8 worked examples" in capsys.readouterr().out


def test_unsloths_gpu_preparation_makes_the_same_labels(fresh):
    """On a GPU, Unsloth's `sft_prepare_dataset` replaces TRL's."""
    from unsloth_zoo.dataset_utils import sft_prepare_dataset

    _, tokenizer = fresh()
    rows = Dataset.from_dict({"input_ids": [[5, 6, 7, 8]], "completion_mask": [[0, 0, 1, 1]]})
    config = SFTConfig("none", completion_only_loss=True, max_length=136, report_to="none")
    trainer = SimpleNamespace(completion_only_loss=True, data_collator=None)
    prepared = sft_prepare_dataset(trainer, rows, tokenizer, config, False, None, "train")
    assert prepared[0]["labels"] == [-100, -100, 7, 8] and trainer.data_collator is None


def test_unusable_examples_are_refused(run, fresh, tmp_path):
    model, tokenizer = fresh()
    long = [*EXAMPLES[:2], {"question": "What is 1 + 1?", "completion": "1 + " * 80}]
    with pytest.raises(ValueError, match="worked example 3"):
        warm.start(run, model, tokenizer, long, POCKET, 7)
    assert not (run.folder / "warm_start/record.json").exists()
    with pytest.raises(ValueError, match="holds no worked examples"):
        warm.start(run, model, tokenizer, [], POCKET, 7)
    file = tmp_path / "examples.jsonl"
    with pytest.raises(ValueError, match=r"examples\.jsonl"):
        check_parameters({"warm_start": str(file)})
    file.write_text(json.dumps(EXAMPLES[0]) + "\n")
    check_parameters({"warm_start": str(file)})
