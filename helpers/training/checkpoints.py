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
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import TrainerCallback

from helpers.agents.episodes import transcript
from helpers.presets import Preset
from helpers.runs import TRAINING_LOCK, Run, atomic_folder, atomic_write, held, write_json
from helpers.training import ranks
from helpers.training.base import describe

_SETTINGS, _HISTORY, _FINISHED = "settings.json", "metrics.csv", "finished"
_locks = contextlib.ExitStack()  # of the training that this process has begun, until it is kept
_TRAINER_STATE = "trainer_state.json"  # Trainer writes it last into a checkpoint


class History(TrainerCallback):
    """Writes each logged step to `checkpoints/metrics.csv` as it comes; `callbacks.Watch` shows it.

    Of several processes rank 0 writes; after the first step all compare their weights, see
    `ranks.check_equal_weights`.

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
        self.first_step = state.global_step + 1
        if self.resumed_from:
            saved = load_file(self.resumed_from / "adapter_model.safetensors")
            set_peft_model_state_dict(model, saved)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        """RuntimeError if the processes have not made the same first step."""
        if state.global_step == self.first_step:
            ranks.check_equal_weights(model)

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


def rows_until(checkpoint: Path | None, path: Path) -> list[dict]:
    """The rows of a table of steps up to a checkpoint; none without a checkpoint or a table."""
    if checkpoint is None or not path.exists():
        return []
    kept = pd.read_csv(path)
    return kept[kept["step"] <= checkpoint_step(checkpoint)].to_dict("records")


def write_rows(path: Path, rows: list[dict]) -> None:
    """Write a table of steps; of several processes rank 0 does."""
    if ranks.is_first():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False)


def checkpoint_step(checkpoint: Path) -> int:
    """The step of a folder named `checkpoint-<step>`."""
    return int(checkpoint.name.rpartition("-")[2])


def last_checkpoint(folder: Path, before: float = math.inf) -> Path | None:
    """The newest whole checkpoint before a step."""
    found = [one for one in folder.glob("checkpoint-*") if one.name.rpartition("-")[2].isdigit()]
    for path in sorted(found, key=checkpoint_step, reverse=True):
        if checkpoint_step(path) < before:
            # a kill may leave Trainer's last file out, or half written
            with contextlib.suppress(FileNotFoundError, ValueError):
                json.loads((path / _TRAINER_STATE).read_text(encoding="utf-8"))
                return path
    return None


def begin(run: Run, settings: Preset, seed: int) -> Path | None:
    """Prepare `checkpoints/` and return the checkpoint to continue from, or None for a fresh start.

    An unfinished training with the same settings, seed and data is continued; another engine may
    sample the rest of it, and another number of processes share the same steps. Anything else found
    there is set aside as `checkpoints_previous/`, in place of what was set aside before. Of several
    processes rank 0 does so for all. ValueError while another training of the run goes on. Until
    `keep`, nothing else can replace the data that it is trained on.
    """
    name = ranks.from_first(lambda: _begin(run, settings, seed))
    return run.folder / "checkpoints" / name if name else None


def _begin(run: Run, settings: Preset, seed: int) -> str | None:
    # two would write one folder
    _locks.enter_context(held(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK))
    folder = run.path("checkpoints")
    data = run.section("data")["fingerprint"]
    wanted = {"settings": asdict(settings), "seed": seed, "data": data}
    # If it was interrupted after its last step, an earlier one: Trainer would take a step too many.
    checkpoint = last_checkpoint(folder, before=settings.max_steps)
    started = run.read_object(f"checkpoints/{_SETTINGS}")
    goes_on = checkpoint and started and not (folder / _FINISHED).exists()
    if goes_on and _comparable(started) == _comparable(wanted):
        print(
            f"continuing the interrupted training from step {checkpoint_step(checkpoint)} of "
            f"{settings.max_steps}"
        )
        return checkpoint.name
    if last_checkpoint(folder) or (folder / _HISTORY).exists():
        previous = run.path("checkpoints_previous")
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(folder, previous)
    else:  # of a training that never logged a step; what a guard has logged stays
        shutil.rmtree(folder / "completions", ignore_errors=True)
    write_json(run.path(f"checkpoints/{_SETTINGS}"), wanted)
    return None


def _comparable(started: dict) -> dict:
    return started | {"settings": ranks.comparable(started["settings"])}


def keep(run: Run, trainer, tokenizer, settings: Preset, seed: int, **recorded) -> None:
    """Put a finished training in the run folder: adapter, history, completions, and the manifest's
    section.
    """
    if not ranks.is_first():
        return
    # TRL's logs of completions as one table: step, question, answer, completion (all of its turns),
    # each reward, advantage
    logs = sorted(run.path("checkpoints/completions").glob("completions_*.parquet"))
    if not logs:
        raise FileNotFoundError(
            "TRL logged no completions: set log_completions=True in GRPOConfig "
            f"({run.show('checkpoints')})."
        )
    completions = pd.concat([pd.read_parquet(log) for log in logs], ignore_index=True)
    train = pd.read_parquet(run.require("data/train.parquet"), columns=["question", "answer"])
    # a question about many pictures has many answers, and so none here
    answers = train.groupby("question")["answer"].agg(set)
    gold = {question: found.pop() for question, found in answers.items() if len(found) == 1}
    contents = [messages[-1]["content"] for messages in completions.pop("prompt")]
    questions = [one if isinstance(one, str) else one[-1]["text"] for one in contents]
    completions.insert(1, "question", questions)
    completions.insert(2, "answer", [gold.get(question) for question in questions])
    completions["completion"] = [transcript(said) for said in completions["completion"]]
    # as the training read them: if the run holds others by now, notebook 05 refuses
    data = run.read_object(f"checkpoints/{_SETTINGS}")["data"]
    recorded["base"] = describe(trainer.model, settings)
    with atomic_folder(run.path("adapter")) as folder:
        trainer.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    with atomic_write(run.path("metrics.csv")) as temporary:
        shutil.copyfile(run.path(f"checkpoints/{_HISTORY}"), temporary)
    with atomic_write(run.path("completions.parquet")) as temporary:
        completions.to_parquet(temporary, index=False)
    run.record("training", settings=asdict(settings), seed=seed, data=data, **recorded)
    run.path(f"checkpoints/{_FINISHED}").touch()
    _locks.close()
