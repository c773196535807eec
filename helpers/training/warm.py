"""Warm start: train the adapter on worked examples before GRPO, in a few supervised steps.

It helps a model that cannot keep the format yet, so that no completion earns a reward. Unsloth's
notebooks for base models do the same. Notebooks 02, 03 and 08 use it. The loss counts only the
tokens of the completions, exactly as the policy would have to sample them.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from helpers import processes
from helpers.data.prompts import chat_prompt, example_turns
from helpers.environment import this_machine
from helpers.runs import Run, atomic_folder, write_json
from helpers.settings import Preset
from helpers.templates import encode, render

EPOCHS = 3
# Worked examples per step. The step's batch is a part of it that GRPO's step has memory for.
EXAMPLES_PER_STEP = 8
# As in Unsloth's notebooks; GRPO's rate is far too small for so few steps.
LEARNING_RATE = 2e-4
# the settings that determine the trained adapter
_DECISIVE = ("model", "load_in_4bit", "lora_rank", "lora_alpha", "learning_rate", "thinking")


def start(
    run: Run, model, tokenizer, examples: list[dict] | str, settings: Preset, seed: int
) -> dict:
    """Train a fresh adapter on worked examples and return the manifest's record of the warm start.

    examples: rows or a file, as for `example_turns`. They are put into the run's prompt, like its
        questions.

    The adapter is saved in the run's folder `warm_start/`. If the folder already holds a warm start
    with the same examples, prompt, seed and settings, that adapter is loaded instead. Notebook 03
    therefore continues the adapter that 02 judged, and so does a resumed training run.
    """
    from helpers.training.checkpoints import load_adapter

    turns = example_turns(examples)
    if not turns:
        raise ValueError("warm_start holds no worked examples.")
    # pair each example's prompt with its completion
    report = run.read_object("data_report.json")
    shots = report.get("few_shot", ())
    pairs = [
        (chat_prompt(report["system_prompt"], question["content"], shots), completion["content"])
        for question, completion in zip(turns[::2], turns[1::2], strict=True)
    ]

    # load the adapter of an earlier warm start if everything that determines it is the same
    decisive = [pairs, seed, EPOCHS, {name: getattr(settings, name) for name in _DECISIVE}]
    made_for = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()
    record = {"examples": len(pairs), "epochs": EPOCHS, "made_for": made_for}
    if isinstance(examples, str):
        record["file"] = Path(examples).name
    earlier = processes.from_first(lambda: run.read_object("warm_start/record.json"))
    if earlier.get("made_for") == made_for:
        load_adapter(model, run.folder / "warm_start")
        print(f"the warm start is that of {run.show('warm_start')}")
        return record

    train(model, tokenizer, pairs, settings, seed, run.path("warm_start"))
    if processes.is_first():
        with atomic_folder(run.path("warm_start")) as folder:
            model.save_pretrained(folder)
            write_json(folder / "record.json", record)
    return record


def train(
    model,
    tokenizer,
    pairs: Sequence[tuple[list[dict], str]],
    settings: Preset,
    seed: int,
    folder: Path,
) -> None:
    """Train a model's adapter on pairs of a chat prompt and its completion.

    folder: output_dir of the trainer, which writes nothing into it.

    Raise ValueError if a pair is longer than `settings.context`.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    # 1. Make the rows, and configure the trainer.
    rows = _token_rows(tokenizer, pairs, settings.context)
    disable_progress_bars()  # of the trainer's preprocessing
    # 1, 2, 4 or 8 examples at a time, so that the parts make a step
    most = min(settings.per_device_train_batch_size, EXAMPLES_PER_STEP)
    batch = 2 ** int(math.log2(most))
    only_fp16 = this_machine().only_fp16
    config = SFTConfig(
        output_dir=str(folder),
        seed=seed,
        completion_only_loss=True,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=EXAMPLES_PER_STEP // batch,
        max_length=settings.context,
        packing=False,  # one row per example, padded
        padding_free=False,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=not only_fp16,
        fp16=only_fp16,
        learning_rate=max(LEARNING_RATE, settings.learning_rate),
        lr_scheduler_type=settings.lr_scheduler_type,
        warmup_steps=settings.warmup_steps,
        optim=settings.optim,
        adam_beta1=settings.adam_beta1,
        adam_beta2=settings.adam_beta2,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
    )
    trainer = SFTTrainer(
        model=model, processing_class=tokenizer, args=config, train_dataset=Dataset.from_list(rows)
    )
    trainer.remove_callback(PrinterCallback)

    # 2. Train. vLLM's cache leaves the card to the training, as in the steps of GRPO.
    engine = getattr(model, "vllm_engine", None)
    sleeps = engine is not None and engine.llm_engine.vllm_config.model_config.enable_sleep_mode
    if sleeps:
        engine.sleep(1)
    trainer.train()
    if sleeps:
        engine.wake_up()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    print(f"warm start: {len(rows)} worked examples, {len(losses)} steps; {change_of(losses)}")


def _token_rows(tokenizer, pairs: Sequence[tuple[list[dict], str]], context: int) -> list[dict]:
    """Return pairs of a chat prompt and its completion as rows for SFTTrainer: the tokens, and a
    mask of those that are trained on.

    Tokens rather than messages, because a chat template may change an answer. Qwen3's rewrites the
    reasoning; others put their own beginning before an answer that already has it.

    Raise ValueError if a pair is longer than `context`.
    """
    rows = []
    for number, (prompt, completion) in enumerate(pairs, 1):
        text = render(tokenizer, list(prompt))
        # find the text that the template writes after an answer, including the end token
        answered = [*prompt, {"role": "assistant", "content": "ANSWER"}]
        end = render(tokenizer, answered, answering=False).rpartition("ANSWER")[2]
        # drop the opening reasoning tag if the template has written it into the prompt
        if opening := re.search(r"<[^<>|]+>$", text.rstrip()):
            completion = completion.removeprefix(opening[0])
        prompt_ids = encode(tokenizer, text)
        answer_ids = encode(tokenizer, completion + end)
        if len(prompt_ids) + len(answer_ids) > context:
            raise ValueError(
                f"worked example {number} has {len(prompt_ids)} tokens of prompt and "
                f"{len(answer_ids)} of completion; together they may have {context}: "
                "shorten it, or raise max_completion_length."
            )
        mask = [0] * len(prompt_ids) + [1] * len(answer_ids)
        rows.append({"input_ids": prompt_ids + answer_ids, "completion_mask": mask})
    return rows


def change_of(losses: list[float]) -> str:
    """Return how the loss of the supervised steps changed, in words.

    The mean of the first epoch's steps is compared with that of the last, in which the same
    examples return: single steps differ by their examples alone.
    """
    in_epoch = math.ceil(len(losses) / EPOCHS)
    first = round(sum(losses[:in_epoch]) / in_epoch, 2)
    last = round(sum(losses[-in_epoch:]) / in_epoch, 2)
    change = "fell" if last < first else "did not fall, so the examples taught nothing new"
    return f"the loss {change}: {first:.2f} in the first epoch, {last:.2f} in the last"
