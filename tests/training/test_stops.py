"""The setting `stop`: both samplers and the training end a completion at the same token, and a
completion that a stop text ended is not one that was cut off.
"""

import re
from dataclasses import replace

import pytest
import vllm_cpu
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from helpers.data.tasks import load_task
from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.results.answering import complete
from helpers.runs import Run
from helpers.settings import grpo_keywords
from helpers.settling import settle
from helpers.training import lessons, policy, sampling, stops

ROWS = load_task("arithmetic/sums", train_size=64, holdout_size=32)
PROMPTS = [list(prompt) for prompt in ROWS.holdout["prompt"]]
# One token of the pocket model, several tokens, and one that begins in the prompt's last line break.
STOPS = ["</think>", "7</think><", " = 1", "\n<think>"]


def test_one_setting_takes_a_text_or_a_list(capsys):
    assert settle("pocket", stop="\n\n").stop == ["\n\n"]
    assert settle("pocket", stop=["a", "b"]).stop == ["a", "b"]
    for wrong in ([""], [3], ["a", None]):
        with pytest.raises(ValueError, match=re.escape(f"stop={wrong!r}")):
            settle("pocket", stop=wrong)
    with_vllm = replace(PRESETS["l4"], stop=["a"], engine="vllm")
    assert grpo_keywords(with_vllm)["generation_kwargs"] == {"stop": ["a"]}
    assert "generation_kwargs" not in grpo_keywords(replace(PRESETS["pocket"], stop=["a"]))


def ended(tokenizer, ids: list[int], stop: str) -> list[int]:
    """A completion up to the first token with which it contains the text, found one by one."""
    for length in range(1, len(ids) + 1):
        if stop in tokenizer.decode(ids[:length]):
            return ids[:length]
    return ids


@pytest.mark.parametrize("stop", STOPS)
def test_sampling_ends_at_the_first_token_that_completes_a_stop_text(model, tokenizer, stop):
    limits = {"max_new_tokens": 60, "temperature": 0.0, "as_tokens": True}
    whole = sampling.sample(model, tokenizer, PROMPTS, **limits)
    stops.set_stop(tokenizer, [stop, "never written"])
    try:
        stopped = sampling.sample(model, tokenizer, PROMPTS, **limits)
        lengths = sampling.lengths_of(model, tokenizer, stopped)
    finally:
        stops.set_stop(tokenizer, None)
    expected = [[ended(tokenizer, ids, stop)] for (ids,) in whole]
    assert stopped == expected
    shorter = sum(ids != all_ids for ids, all_ids in zip(stopped, whole, strict=True))
    assert (shorter > 0) == (stop != "\n<think>")
    assert lengths == [len(ids) for (ids,) in stopped], "none of them was cut off"


def test_completions_on_disk_are_those_of_the_same_stop_texts(
    model, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    options = {"identity": {}, "temperature": 0.0, "max_new_tokens": 30}
    ask = (Run("a"), "name", model, tokenizer, PROMPTS[:2])
    whole = complete(*ask, **options)
    stops.set_stop(tokenizer, ["</think>"])
    try:
        stopped = complete(*ask, **options)
    finally:
        stops.set_stop(tokenizer, None)
    assert whole != stopped and all(text.endswith("</think>") for (text,) in stopped)


@pytest.mark.slow
@pytest.mark.needs("vllm")
@pytest.mark.parametrize("stop", STOPS)
def test_vllm_ends_at_the_same_token(stop):
    settings = replace(PRESETS["pocket"], max_completion_length=60)
    model, tokenizer = policy.load(settings)
    vllm_cpu.attach(model, settings)
    limits = {"max_new_tokens": 60, "temperature": 0.0, "as_tokens": True}
    whole = sampling.sample(model, tokenizer, PROMPTS, **limits)
    stops.set_stop(tokenizer, [stop])
    stopped = sampling.sample(model, tokenizer, PROMPTS, **limits)
    assert stopped == [[ended(tokenizer, ids, stop)] for (ids,) in whole]
    assert (stopped == whole) == (stop == "\n<think>")


# --- In the training ------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_a_training_ends_completions_at_the_stop_text_and_counts_them_as_ended(
    fresh, tmp_path, monkeypatch, masked
):
    """The limit cuts some completions off before the text: only these are clipped, and with
    `mask_truncated_completions` only these are out of the loss.
    """
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shape = {"per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 20}
    shape |= {"stop": "</think>", "max_steps": 1, "mask_truncated_completions": masked}
    settings = settle("pocket", max_seq_length=256, **shape)
    model, tokenizer = fresh()
    stops.set_stop(tokenizer, settings.stop)
    seen = []

    def length_reward(completions, completion_ids, **columns):
        seen.append((completions, completion_ids))
        return [float(len(ids)) for ids in completion_ids]

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=GRPOConfig(**lessons.lesson_keywords(Run("a"), settings, this_machine(), 1)),
        reward_funcs=[length_reward],
        train_dataset=Dataset.from_pandas(ROWS.train),
    )
    trainer.remove_callback(PrinterCallback)
    stops.end_at_stop(trainer, tokenizer)
    masks = []
    compute = trainer._compute_loss

    def computed(model, inputs):
        masks.append(inputs["completion_mask"].sum(dim=1).tolist())
        return compute(model, inputs)

    trainer._compute_loss = computed
    trainer.train()
    ((completions, ids),) = seen
    texts = [turns[0]["content"] for turns in completions]
    stopped = [text.endswith("</think>") for text in texts]
    assert 0 < sum(stopped) < len(stopped), "both kinds are among them"
    assert all(text.count("</think>") == stop for text, stop in zip(texts, stopped, strict=True))
    clipped = 1 - sum(stopped) / len(stopped)
    (logged,) = [row for row in trainer.state.log_history if "reward" in row]
    assert logged["completions/clipped_ratio"] == pytest.approx(clipped)
    lengths = [len(row) for row, stop in zip(ids, stopped, strict=True) if stop]
    assert logged["completions/max_terminated_length"] == max(lengths)
    trained = [len(row) * (stop or not masked) for row, stop in zip(ids, stopped, strict=True)]
    assert sorted(length for batch in masks for length in batch) == sorted(trained), (
        "no padding behind a stop text is trained on"
    )
