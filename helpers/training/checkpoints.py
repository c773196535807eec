"""A training on disk: the history that survives an interruption, the checkpoint to go on from, and
what a finished one leaves.

A training in progress lives in `checkpoints/` alone. `metrics.csv`, `completions.parquet` and
`adapter/` are replaced together when it has finished, so an interrupted rerun leaves the last
finished training whole.
"""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import TrainerCallback

from helpers.presets import Preset
from helpers.rewards.common import reward_name, source_hash
from helpers.runs import TRAINING_LOCK, Run, atomic_folder, atomic_write, lock, write_json
from helpers.tags import completion_text, transcript
from helpers.training import processes
from helpers.training.base import base_record
from helpers.training.run_settings import OF_A_PROCESS

_SETTINGS, _HISTORY, _FINISHED = "settings.json", "metrics.csv", "finished"
_locks = contextlib.ExitStack()  # of the training that this process has begun, until it is kept
_TRAINER_STATE = "trainer_state.json"  # Trainer writes it last into a checkpoint


class History(TrainerCallback):
    """Write each logged step to `checkpoints/metrics.csv` as it comes; `callbacks.Watch` shows it.

    resumed_from: the checkpoint that the training continues from, if any; rows logged after it are
    dropped, because those steps are done again.
    """

    def __init__(self, run: Run, resumed_from: Path | None = None):
        self.path = run.folder / "checkpoints" / _HISTORY
        self.resumed_from = resumed_from
        self.rows = rows_until(resumed_from, self.path)

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Load the checkpoint's adapter.

        Trainer does so only if the checkpoint has no other one. With beta > 0, TRL adds a frozen
        copy, `ref`, which is saved in a folder of its own; Transformers 5.17 then loads the
        adapters in folders and leaves the one being trained at its fresh zeros, under the old
        optimizer state.
        """
        if self.resumed_from:
            load_adapter(model, self.resumed_from)

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Keep the row; the summary that Trainer logs at the end has no reward and is no step.

        With beta 0 nothing computes a KL, but Unsloth's trainer on a GPU logs one of 0.0
        (rl_replacements.py): no measurement.
        """
        if not logs or "reward" not in logs:
            return
        dropped = {"step", "kl"} if getattr(args, "beta", None) == 0 else {"step"}
        row = {key: value for key, value in logs.items() if key not in dropped}
        self.rows.append({"step": state.global_step} | row)
        write_rows(self.path, self.rows)


def load_adapter(model, folder: Path) -> None:
    """Give the model's adapter the weights of one on disk. ValueError if that one has another rank
    or alpha.
    """
    stored = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    config = model.peft_config["default"]
    if (stored["r"], stored["lora_alpha"]) != (config.r, config.lora_alpha):
        raise ValueError(
            f"the adapter in {folder} has lora_rank={stored['r']} and lora_alpha="
            f"{stored['lora_alpha']}, not {config.r} and {config.lora_alpha}: give both as "
            "parameters."
        )
    set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))


def rows_until(checkpoint: Path | None, path: Path) -> list[dict]:
    """Return the rows of a table of steps up to a checkpoint; none without either."""
    if checkpoint is None or not path.exists():
        return []
    table = pd.read_csv(path)
    return table[table["step"] <= checkpoint_step(checkpoint)].to_dict("records")


def write_rows(path: Path, rows: list[dict]) -> None:
    """Write a table of steps; of several processes the first does."""
    if processes.is_first():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False)


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of a folder named `checkpoint-<step>`."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def last_checkpoint(folder: Path, before: float = math.inf) -> Path | None:
    """Return the newest whole checkpoint before a step, or None."""
    for path in sorted(folder.glob("checkpoint-*"), key=checkpoint_step, reverse=True):
        if checkpoint_step(path) < before:
            # a kill may leave Trainer's last file out, or half written
            with contextlib.suppress(FileNotFoundError, ValueError):
                json.loads((path / _TRAINER_STATE).read_text(encoding="utf-8"))
                return path
    return None


def begin(
    run: Run,
    settings: Preset,
    seed: int,
    functions: Sequence = (),
    weights: Sequence = (),
    from_adapter: bool | None = None,
    warm_start: dict | None = None,
) -> Path | None:
    """Prepare `checkpoints/` and return the checkpoint to continue from, or None for a fresh start.

    An unfinished training with the same settings, seed, data and rewards with their weights is
    continued; another engine may sample the rest of it, another number of processes share the same
    steps, and a reward's source may have been corrected, which a note says. Anything else found
    there is set aside as `checkpoints_previous/`, in place of what was set aside before. Of several
    processes the first does so for all. ValueError while another training of the run goes on. Until
    `keep`, nothing else can replace the data that it is trained on.

    from_adapter: whether a fresh start goes on from the adapter that the run holds; None if the
    notebook cannot. warm_start: what `warm.start` returned, if the training begins with one. That a
    finished training will be replaced is printed.
    """
    names = [reward_name(function) for function in functions]
    sources = dict(zip(names, map(source_hash, functions), strict=True))
    wanted = {
        "settings": _of_the_whole_step(settings),
        "seed": seed,
        "rewards": dict(zip(names, weights, strict=True)),
        "warm_start": warm_start,
    }
    name = processes.from_first(lambda: _prepare(run, settings, wanted, sources, from_adapter))
    return run.folder / "checkpoints" / name if name else None


def _of_the_whole_step(settings: Preset) -> dict:
    """Return the settings without those that may be others when a training is continued: what
    samples, and how many processes share the completions of a step.
    """
    compared = asdict(settings)
    for name in ("engine", "processes", *OF_A_PROCESS):
        del compared[name]
    compared["completions_per_step"] = settings.completions_per_step
    compared["completions_per_round"] = settings.completions_per_round
    return compared


def _prepare(
    run: Run, settings: Preset, wanted: dict, sources: dict[str, str], from_adapter: bool | None
) -> str | None:
    """Do what `begin` says, and return the name of the checkpoint."""
    # keep other trainings out, which would write the same folder
    _locks.enter_context(lock(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK))
    folder = run.path("checkpoints")
    wanted["data"] = run.section("data")["fingerprint"]
    wanted["from_adapter"] = run.section("training")["written"] if from_adapter else None

    # go on with the same training; if it was interrupted after its last step, from an earlier
    # checkpoint, because Trainer would take a step too many
    checkpoint = last_checkpoint(folder, before=settings.max_steps)
    started = run.read_object(f"checkpoints/{_SETTINGS}")
    old_sources = started.pop("sources", {})
    if checkpoint and started == wanted and not (folder / _FINISHED).exists():
        step = checkpoint_step(checkpoint)
        print(f"continuing the interrupted training from step {step} of {settings.max_steps}")
        edited = [name for name, source in sources.items() if source != old_sources[name]]
        if edited:
            print(
                f"note: the source of {', '.join(edited)} has changed since this training began: "
                "the curves before and after this step show different rewards."
            )
        return checkpoint.name

    # say what will be replaced
    if "training" in run.manifest:
        steps = run.manifest["training"].get("steps", "?")
        offer = " from_adapter=True goes on from its adapter." if from_adapter is False else ""
        print(
            f"note: {run.show()} holds a finished training of {steps} steps, which this one "
            f"replaces when it ends.{offer}"
        )

    # set another one aside, unless it never logged a step; what a guard has logged stays
    if last_checkpoint(folder) or (folder / _HISTORY).exists():
        previous = run.path("checkpoints_previous")
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(folder, previous)
        if not (previous / _FINISHED).exists():
            print(
                "note: an interrupted training, with other settings, data or rewards, is now in "
                f"{run.show(previous.name)}/"
            )
    write_json(run.path(f"checkpoints/{_SETTINGS}"), wanted | {"sources": sources})
    return None


def keep(run: Run, trainer, tokenizer, settings: Preset, seed: int, **recorded) -> None:
    """Put a finished training in the run folder: adapter, history, completions, and the manifest's
    section. Of several processes the first does. FileNotFoundError if TRL logged no completions.
    """
    if not processes.is_first():
        return

    # join TRL's logs of completions
    logs = sorted(run.path("checkpoints/completions").glob("completions_*.parquet"))
    if not logs:
        raise FileNotFoundError(
            "TRL logged no completions: set log_completions=True in GRPOConfig "
            f"({run.show('checkpoints')})."
        )
    completions = pd.concat([pd.read_parquet(log) for log in logs], ignore_index=True)

    # put question and answer in the place of the prompt, and the text in that of the messages
    contents = [messages[-1]["content"] for messages in completions.pop("prompt")]
    # beside a picture the content is a list of parts, the last of them the text
    questions = [part if isinstance(part, str) else part[-1]["text"] for part in contents]
    train = pd.read_parquet(run.require("data/train.parquet"), columns=["question", "answer"])
    # a question about many pictures has many answers, and so none here
    answers = train.drop_duplicates().drop_duplicates("question", keep=False)
    answer_of = dict(zip(answers["question"], answers["answer"], strict=True))
    completions.insert(1, "question", questions)
    completions.insert(2, "answer", [answer_of.get(question) for question in questions])
    as_text = transcript if getattr(trainer, "tools", None) else completion_text
    completions["completion"] = [as_text(list(turns)) for turns in completions["completion"]]

    # replace the results of an earlier training
    recorded["base"] = base_record(trainer.model, settings)
    with atomic_folder(run.path("adapter")) as folder:
        trainer.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    with atomic_write(run.path("metrics.csv")) as temporary:
        shutil.copyfile(run.path(f"checkpoints/{_HISTORY}"), temporary)
    with atomic_write(run.path("completions.parquet")) as temporary:
        completions.to_parquet(temporary, index=False)

    # record it with the data that it read: if the run holds others by now, notebook 05 refuses
    data = run.read_object(f"checkpoints/{_SETTINGS}")["data"]
    run.record("training", settings=asdict(settings), seed=seed, data=data, **recorded)
    run.path(f"checkpoints/{_FINISHED}").touch()
    _locks.close()
