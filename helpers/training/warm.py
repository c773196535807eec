"""A warm start: supervised steps on worked examples, before GRPO goes on with the same adapter.

For a model that cannot keep the format yet, so that no completion earns anything. Notebooks 02, 03
and 08 share it; Unsloth's notebooks for base models do the same. The loss counts the completions
alone, token for token as the policy would have to sample them.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from helpers.data.tasks import chat_prompt, example_turns
from helpers.environment import this_machine
from helpers.presets import Preset
from helpers.runs import Run, atomic_folder, write_json
from helpers.templates import encode, render
from helpers.training import processes

EPOCHS = 3
# What GRPO takes is far too little for so few steps; Unsloth's notebooks take this one.
LEARNING_RATE = 2e-4
# the settings that decide what comes out
_DECISIVE = ("model", "load_in_4bit", "lora_rank", "lora_alpha", "learning_rate", "thinking")


def start(
    run: Run, model, tokenizer, examples: list[dict] | str, settings: Preset, seed: int
) -> dict:
    """Give a fresh adapter its warm start; return what the manifest records of it.

    It is kept in the run's folder `warm_start/`: if that was made with the same examples, prompt,
    seed and settings, it is loaded, so that notebook 03 goes on from what 02 judged, and a training
    that was interrupted from what it began with.

    examples: as `example_turns` takes them. They are asked as the run's questions are.
    """
    from helpers.training.checkpoints import load_adapter

    turns = example_turns(examples)
    if not turns:
        raise ValueError("warm_start holds no worked examples.")
    # each example as a prompt of the run and its completion
    report = run.read_object("data_report.json")
    shots = report.get("examples", ())
    pairs = [
        (chat_prompt(report["system_prompt"], question["content"], shots), completion["content"])
        for question, completion in zip(turns[::2], turns[1::2], strict=True)
    ]

    # take the adapter of an earlier warm start, if all that decides what comes out is the same
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
    """Train a model's adapter to complete these chat prompts with these texts.

    ValueError for a pair that is longer than `settings.context`. folder: for the trainer, which
    writes nothing into it.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    # Tokens, not messages: a template may render an answer anew, as Qwen3's does its reasoning, and
    # would put its own beginning before one that has it.
    rows = []
    for number, (prompt, completion) in enumerate(pairs, 1):
        text = render(tokenizer, list(prompt))
        # what the template writes behind an answer, with the token that ends it
        answered = [*prompt, {"role": "assistant", "content": "ANSWER"}]
        end = render(tokenizer, answered, answering=False).rpartition("ANSWER")[2]
        # a template may open the reasoning itself
        opening = re.search(r"<[^<>|]+>$", text.rstrip())
        if opening:
            completion = completion.removeprefix(opening[0])
        prompt_ids = encode(tokenizer, text)
        answer_ids = encode(tokenizer, completion + end)
        if len(prompt_ids) + len(answer_ids) > settings.context:
            raise ValueError(
                f"worked example {number} has {len(prompt_ids)} tokens of prompt and "
                f"{len(answer_ids)} of completion; together they may have {settings.context}: "
                "shorten it, or raise max_completion_length."
            )
        mask = [0] * len(prompt_ids) + [1] * len(answer_ids)
        rows.append({"input_ids": prompt_ids + answer_ids, "completion_mask": mask})

    disable_progress_bars()  # of the trainer's own preparation
    machine = this_machine()
    only_fp16 = bool(machine.gpu) and not machine.bf16  # a T4 has no bf16
    config = SFTConfig(
        output_dir=str(folder),
        seed=seed,
        completion_only_loss=True,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
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
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    print(
        f"warm start: {len(rows)} worked examples, {len(losses)} steps; the loss fell from "
        f"{losses[0]:.2f} to {losses[-1]:.2f}"
    )


def stages_in_words(training: dict) -> str:
    """Return both stages of a training, in a sentence, from the manifest's section."""
    steps = training.get("earlier_steps", 0) + training.get("steps", 0)
    first = training["warm_start"]
    return (
        f"two stages: a warm start on {first['examples']} worked examples ({first['epochs']} "
        f"epochs of supervised training), then {steps} steps of GRPO"
    )
