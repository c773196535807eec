"""Around `trainer.train()`: the history that survives an interruption, rewards that cannot end a run, resuming, and keeping
what a finished training made.

A training in progress lives in `checkpoints/` alone. `metrics.csv`, `completions.parquet` and `adapter/` are replaced together
when it has finished, so an interrupted rerun leaves the last finished training whole.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from peft import set_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from helpers.presets import Preset, as_settings
from helpers.rewards.faults import Fault, checked_scores
from helpers.rewards.shaping import reward_name
from helpers.runs import Run, atomic_folder, atomic_write, write_json

_SETTINGS, _HISTORY, _FINISHED = "settings.json", "metrics.csv", "finished"
_FAULTS, _TRAINER_STATE = "reward_faults.jsonl", "trainer_state.json"
_MOST_FAULTS = 0.01  # of the completions
_ENOUGH = 100  # completions, before a share says anything
_FAULTS_LOGGED = 1000


class History(TrainerCallback):
    """Writes each logged step to `checkpoints/metrics.csv` as it comes; `watch.Watch` shows it.

    resumed_from: the checkpoint that the training continues from, if any; rows logged after it are dropped, because those
    steps are done again.
    """

    def __init__(self, run: Run, resumed_from: Path | None = None):
        self.path = run.path(f"checkpoints/{_HISTORY}")
        self.resumed_from = resumed_from
        self.rows: list[dict] = []
        if resumed_from and self.path.exists():
            kept = pd.read_csv(self.path)
            self.rows = kept[kept["step"] <= checkpoint_step(resumed_from)].to_dict("records")

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Load the checkpoint's adapter. Trainer does so only where the checkpoint has no other one.

        With beta > 0, TRL adds a frozen copy, `ref`, which is saved in a folder of its own; Transformers 5.17 then loads what
        lies in folders and leaves the adapter being trained at its fresh zeros, under the old optimizer state.
        """
        if self.resumed_from:
            set_peft_model_state_dict(model, load_file(self.resumed_from / "adapter_model.safetensors"))

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Keep the row; the summary that Trainer logs at the end has no reward and is no step."""
        if not logs or "reward" not in logs:
            return
        self.rows.append({"step": state.global_step} | {key: value for key, value in logs.items() if key != "step"})
        with atomic_write(self.path) as temporary:
            pd.DataFrame(self.rows).to_csv(temporary, index=False)


class RewardError(RuntimeError):
    """A reward failed on more than 1 % of the completions; the training was stopped after a checkpoint."""


class Rewards(TrainerCallback, ExportableState):
    """Rewards that cannot end a run at step 400, and whose state is part of every checkpoint.

    `functions` goes to GRPOTrainer as reward_funcs, the object itself among its callbacks. Where a reward raises, or returns
    anything but one finite number (or None) a completion, the completion scores None and is logged with what happened in
    `checkpoints/reward_faults.jsonl`; training goes on. Once that concerns more than 1 % of the completions (at least 100 of
    them), a checkpoint is saved and RewardError reports. Asynchronous rewards stay so; models and their names are TRL's to
    call. ValueError where two rewards would be logged under one name.
    """

    def __init__(self, run: Run, functions: list, resumed_from: Path | None = None):
        names = [reward_name(function) for function in functions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two rewards are called {name!r}, and TRL logs them by name: wrap one in a function of its own."
                )
        self.run = run
        self.rewards = dict(zip(names, functions, strict=True))
        self.functions = [self._checked(name) if _is_ours_to_call(f) else f for name, f in self.rewards.items()]
        self.seen, self.failed, self.first, self.logged = dict.fromkeys(names, 0), dict.fromkeys(names, 0), {}, 0
        if resumed_from:
            self._load(resumed_from / _TRAINER_STATE)

    def _checked(self, name: str) -> Callable:
        def reward(completions: list, trainer_state=None, **columns) -> list[float | None]:
            columns["trainer_state"] = trainer_state
            scores, faults = checked_scores(self.rewards[name], completions, columns)
            self.seen[name] += len(completions)
            self._note(name, faults, getattr(trainer_state, "global_step", 0))
            return scores

        async def awaited(completions: list, **columns) -> list[float | None]:
            return await asyncio.to_thread(reward, completions, **columns)

        function = self.rewards[name]
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        chosen = awaited if is_async else reward
        chosen.__name__ = name
        return chosen

    def _note(self, name: str, faults: list[Fault], step: int) -> None:
        if faults and not self.failed[name]:
            print(
                f"step {step + 1}: {faults[0]}; it scores None. All such completions: {self.run.show(f'checkpoints/{_FAULTS}')}"
            )
            self.first[name] = faults[0]
        self.failed[name] += len(faults)
        logged = faults[: _FAULTS_LOGGED - self.logged]
        self.logged += len(logged)
        if logged:
            with self.run.path(f"checkpoints/{_FAULTS}").open("a", encoding="utf-8") as log:
                log.writelines(json.dumps({"step": step + 1} | fault.as_dict()) + "\n" for fault in logged)

    def _failing(self, enough: int) -> list[str]:
        return [n for n, seen in self.seen.items() if seen >= enough and self.failed[n] > _MOST_FAULTS * seen]

    def on_step_end(self, args, state, control, **kwargs):
        """Stop, with a checkpoint, where a reward fails too often."""
        if self._failing(_ENOUGH):
            control.should_save = control.should_training_stop = True

    def state(self) -> dict:
        """What Trainer writes into a checkpoint's trainer_state.json: the state of the rewards that have one."""
        states = {name: reward.state_dict() for name, reward in self.rewards.items() if hasattr(reward, "load_state_dict")}
        return {"args": {}, "attributes": {"rewards": states}}

    def _load(self, path: Path) -> None:
        saved = json.loads(path.read_text(encoding="utf-8")).get("stateful_callbacks", {}).get(type(self).__name__, {})
        for name, state in saved.get("attributes", {}).get("rewards", {}).items():
            if hasattr(self.rewards.get(name), "load_state_dict"):
                self.rewards[name].load_state_dict(state)

    def on_train_end(self, args, state, control, **kwargs):
        """RewardError, now that the checkpoint is saved, where a reward failed too often."""
        failing = self._failing(_ENOUGH) or self._failing(1)
        if failing:
            name = failing[0]
            saved, log = (self.run.show(f"checkpoints/{rest}") for rest in (f"checkpoint-{state.global_step}", _FAULTS))
            raise RewardError(
                f"{name} failed on {self.failed[name]} of {self.seen[name]} completions, more than {_MOST_FAULTS:.0%}. "
                f"First: {self.first[name]}. The training stopped at step {state.global_step} and saved {saved}. Mend the "
                f"reward, try it in notebook 02, and run notebook 03 again: it goes on from there. All such completions: {log}."
            )


def _is_ours_to_call(reward: object) -> bool:
    """TRL itself calls models, and loads what is named by a string."""
    from torch import nn

    return callable(reward) and not isinstance(reward, nn.Module)


def checkpoint_step(checkpoint: Path) -> int:
    """The step of a folder named `checkpoint-<step>`."""
    return int(checkpoint.name.rpartition("-")[2])


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: Trainer writes trainer_state.json last, and a kill may leave half of any file."""
    numbered = [path for path in folder.glob("checkpoint-*") if path.name.partition("-")[2].isdigit()]
    return next((path for path in sorted(numbered, key=checkpoint_step, reverse=True) if _is_whole(path)), None)


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / _TRAINER_STATE).read_text(encoding="utf-8"))
        # What torch saves is a zip archive, whose directory comes last; safetensors has the lengths at its start.
        archives = [zipfile.is_zipfile(path) for path in checkpoint.glob("*.pt*")]
        for path in checkpoint.glob("*.safetensors"):
            with safe_open(path, framework="np"):
                pass
    except (OSError, ValueError, SafetensorError):
        return False
    return all(archives)


def begin(run: Run, settings: Preset, seed: int) -> Path | None:
    """Prepare `checkpoints/` and return the checkpoint to continue from, or None for a fresh start.

    An unfinished training with the same settings, seed and data is continued. Anything else found there is set aside as
    `checkpoints_previous/`, in place of what was set aside before.
    """
    folder = run.path("checkpoints")
    wanted = {"settings": as_settings(settings), "seed": seed, "data": run.section("data")["fingerprint"]}
    checkpoint = last_checkpoint(folder)
    if checkpoint and not (folder / _FINISHED).exists() and _read_settings(folder) == wanted:
        print(f"continuing the interrupted training from step {checkpoint_step(checkpoint)} of {settings.max_steps}")
        return checkpoint
    if checkpoint or (folder / _HISTORY).exists():
        previous = run.path("checkpoints_previous")
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(folder, previous)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    write_json(run.path(f"checkpoints/{_SETTINGS}"), wanted)
    return None


def _read_settings(folder: Path) -> dict | None:
    try:
        return json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def keep(run: Run, trainer, tokenizer, settings: Preset, seed: int, **recorded) -> None:
    """Put a finished training in the run folder: adapter, history, completions, and the manifest's section."""
    history, completions = run.path(f"checkpoints/{_HISTORY}"), _sampled_completions(run)  # what may fail comes first
    with atomic_folder(run.path("adapter")) as folder:
        trainer.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    with atomic_write(run.path("metrics.csv")) as temporary:
        shutil.copyfile(history, temporary)
    with atomic_write(run.path("completions.parquet")) as temporary:
        completions.to_parquet(temporary, index=False)
    run.record("training", settings=as_settings(settings), seed=seed, data=run.section("data")["fingerprint"], **recorded)
    run.path(f"checkpoints/{_FINISHED}").touch()


def _sampled_completions(run: Run) -> pd.DataFrame:
    """TRL's completion logs, one table: step, question, answer, completion, each reward, advantage."""
    logs = sorted(run.path("checkpoints/completions").glob("completions_*.parquet"))
    if not logs:
        raise FileNotFoundError(
            f"TRL logged no completions: set log_completions=True in GRPOConfig ({run.show('checkpoints')})."
        )
    table = pd.concat([pd.read_parquet(log) for log in logs], ignore_index=True)
    train = pd.read_parquet(run.require("data/train.parquet"), columns=["question", "answer"])
    gold = dict(zip(train["question"], train["answer"], strict=True))
    questions = [messages[-1]["content"] for messages in table.pop("prompt")]
    table.insert(1, "question", questions)
    table.insert(2, "answer", [gold.get(question) for question in questions])
    table["completion"] = [messages[-1]["content"] for messages in table["completion"]]
    return table
