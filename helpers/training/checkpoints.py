"""Keep a training run on disk: its history, the checkpoint to resume from, and its results.

    checkpoint = begin(run, settings, seed, rewards, weights)
    trainer = GRPOTrainer(…, callbacks=[History(run, checkpoint)])
    trainer.train(resume_from_checkpoint=checkpoint)
    keep(run, trainer, tokenizer, settings, seed)

A training run in progress writes only into `checkpoints/`. `metrics.csv`, `completions.parquet` and
`adapter/` are replaced together when it has finished, so an interrupted rerun leaves the results of
the last finished training run intact.
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

from helpers import processes
from helpers.judging.programs.sandbox import used_sandboxes
from helpers.printing import transcript
from helpers.rewards.common import reward_name, source_hash
from helpers.runs import TRAINING_LOCK, Run, atomic_folder, atomic_write, lock, write_json
from helpers.settings import OF_A_PROCESS, Preset
from helpers.tags import completion_text
from helpers.training.base import base_record

# Files in `checkpoints/`
_SETTINGS = "settings.json"  # what the training run was started with
_HISTORY = "metrics.csv"
_OF_EVALUATION = ("eval_reward", "eval_completions/", "eval_runtime")  # what History keeps of one
_FINISHED = "finished"  # empty; present once `keep` has saved the results

# `begin` puts the lock of the run in here, and `keep` releases it. In between, no other process can
# train the run.
_held_locks = contextlib.ExitStack()


def begin(
    run: Run,
    settings: Preset,
    seed: int,
    functions: Sequence = (),
    weights: Sequence = (),
    from_adapter: bool | None = None,
    warm_start: dict | None = None,
    **differs,
) -> Path | None:
    """Prepare `checkpoints/` and return the checkpoint to resume from; None for a fresh start.

    from_adapter: an option of notebook 03.
        True: a fresh start continues the adapter that the run holds.
        False: it begins with a new adapter. If the run holds one, a note offers True.
        None: as False, but without the offer, for notebooks that lack the option.
    warm_start: the record that `warm.start` returned, if the training run begins with one.
    differs: what else must be equal to resume, such as the rows kept by `difficulty.rows_between`.

    An interrupted training run is resumed if its settings, seed, data, rewards and weights are the
    same. The engine, the number of processes and the source of a reward may differ; a note names
    edited rewards. Any other training run found in `checkpoints/` is moved to
    `checkpoints_previous/`, replacing what was there. A note also says if results of a finished
    training run will be replaced.

    If several processes train together, the first prepares the folder for all. Until `keep`, the
    run is locked: its data cannot be replaced, and ValueError is raised for a second training run.
    """
    # The settings that must be equal to resume. The engine may change, because it samples from the
    # same policy. The number of processes may change, and with it each process's part of a step
    # (OF_A_PROCESS, such as `per_device_train_batch_size`), but not the completions of all of them:
    # 2 processes with 32 each can resume the training run of 1 process with 64.
    may_change = {"engine", "processes", *OF_A_PROCESS}
    compared = {name: value for name, value in asdict(settings).items() if name not in may_change}
    compared |= {
        "completions_per_step": settings.completions_per_step,
        "completions_per_round": settings.completions_per_round,
    }

    names = [reward_name(function) for function in functions]
    sources = dict(zip(names, map(source_hash, functions), strict=True))
    started_with = {
        "settings": compared,
        "seed": seed,
        "rewards": dict(zip(names, weights, strict=True)),
        "warm_start": warm_start,
        **differs,
    }
    name = processes.from_first(
        lambda: _prepare(run, settings, started_with, sources, from_adapter)
    )
    return run.folder / "checkpoints" / name if name else None


def _prepare(
    run: Run,
    settings: Preset,
    started_with: dict,
    sources: dict[str, str],
    from_adapter: bool | None,
) -> str | None:
    """Prepare `checkpoints/` in one process, as `begin` describes. Return the name of the
    checkpoint to resume from, or None.

    started_with: all that must be equal to resume, except the data and the adapter.
    sources: the hash of each reward's source.
    from_adapter: as in `begin`.
    """
    # 1. keep out other training runs, which would write into the same folder
    _held_locks.enter_context(lock(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK))
    folder = run.path("checkpoints")

    # 2. describe this training run, to compare it with the one found in the folder; the time at
    # which an adapter was written identifies it
    wanted = started_with | {
        "data": run.section("data")["fingerprint"],
        "from_adapter": run.section("training")["written"] if from_adapter else None,
    }
    found = run.read_object(f"checkpoints/{_SETTINGS}")
    old_sources = found.pop("sources", {})

    # 3. resume if both are the same training run and it was interrupted; the checkpoint of the last
    # step is passed over for an earlier one, because Trainer always takes at least one step
    checkpoint = last_checkpoint(folder, before=settings.max_steps)
    if checkpoint and found == wanted and not (folder / _FINISHED).exists():
        print(
            "continuing the interrupted training from step "
            f"{checkpoint_step(checkpoint)} of {settings.max_steps}"
        )
        edited = [name for name, source in sources.items() if source != old_sources[name]]
        if edited:
            print(
                f"note: the source of {', '.join(edited)} has changed since this training began: "
                "the curves before and after this step show different rewards."
            )
        return checkpoint.name

    # 4. otherwise start afresh: say which results will be replaced at the end
    if "training" in run.manifest:
        steps = run.manifest["training"].get("steps", "?")
        offer = " from_adapter=True continues from its adapter." if from_adapter is False else ""
        print(
            f"note: {run.show()} holds a finished training of {steps} steps, which this one "
            f"replaces when it ends.{offer}"
        )

    # 5. set another training run aside, with everything in the folder; one that never logged a step
    # is overwritten, and only the log of its rewards' faults stays
    if last_checkpoint(folder) or (folder / _HISTORY).exists():
        previous = run.path("checkpoints_previous")
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(folder, previous)
        if not (previous / _FINISHED).exists():
            print(
                "note: an interrupted training, with other settings, data or rewards, is now in "
                f"{run.show(previous.name)}/"
            )

    # 6. write down what this training run is started with, for the next call
    write_json(run.path(f"checkpoints/{_SETTINGS}"), wanted | {"sources": sources})
    return None


def last_checkpoint(folder: Path, before: float = math.inf) -> Path | None:
    """Return the newest complete checkpoint before a step, or None."""
    for path in sorted(folder.glob("checkpoint-*"), key=checkpoint_step, reverse=True):
        if checkpoint_step(path) < before:
            # Trainer writes this file last: after a kill it may be absent or cut off
            with contextlib.suppress(FileNotFoundError, ValueError):
                json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
                return path
    return None


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of a folder named `checkpoint-<step>`."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def keep(run: Run, trainer, tokenizer, settings: Preset, seed: int, **recorded) -> None:
    """Save the results of a finished training run in the run folder: the adapter, the history, the
    completions and the manifest's section `training`.

    recorded: further entries of that section.

    Only the first of several processes saves. Raise FileNotFoundError if TRL logged no completions.
    """
    if not processes.is_first():
        return

    # 1. Join TRL's logs of completions.
    logs = sorted(run.path("checkpoints/completions").glob("completions_*.parquet"))
    if not logs:
        raise FileNotFoundError(
            "TRL logged no completions: set log_completions=True in GRPOConfig "
            f"({run.show('checkpoints')})."
        )
    completions = pd.concat([pd.read_parquet(log) for log in logs], ignore_index=True)

    # 2. Replace the prompt by the question and the answer, and messages by their text.
    questions = []
    for messages in completions.pop("prompt"):
        content = messages[-1]["content"]
        if not isinstance(content, str):  # with a picture, a list of parts, the last of them text
            content = content[-1]["text"]
        questions.append(content)
    train = pd.read_parquet(run.require("data/train.parquet"), columns=["question", "answer"])
    # a question asked about several pictures has several answers; it gets none here
    answers = train.drop_duplicates().drop_duplicates("question", keep=False)
    answer_of = dict(zip(answers["question"], answers["answer"], strict=True))
    completions.insert(1, "question", questions)
    completions.insert(2, "answer", [answer_of.get(question) for question in questions])
    as_text = transcript if getattr(trainer, "tools", None) else completion_text
    completions["completion"] = [as_text(list(turns)) for turns in completions["completion"]]

    # 3. Programs may be judged differently by another sandbox, so say which one it was.
    if used_sandboxes:
        recorded["sandboxes"] = sorted(used_sandboxes)
        print(f"note: programs were judged by the sandbox {', '.join(sorted(used_sandboxes))}")

    # 4. Replace the results of an earlier training run.
    recorded["base"] = base_record(trainer.model, settings)
    with atomic_folder(run.path("adapter")) as folder:
        trainer.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    with atomic_write(run.path("metrics.csv")) as temporary:
        shutil.copyfile(run.path(f"checkpoints/{_HISTORY}"), temporary)
    with atomic_write(run.path("completions.parquet")) as temporary:
        completions.to_parquet(temporary, index=False)

    # 5. Record the fingerprint of the data it was trained on; notebook 05 refuses if the run's data
    # has been replaced since.
    data = run.read_object(f"checkpoints/{_SETTINGS}")["data"]
    run.record("training", settings=asdict(settings), seed=seed, data=data, **recorded)
    run.path(f"checkpoints/{_FINISHED}").touch()
    _held_locks.close()


class History(TrainerCallback):
    """Append each logged step to `checkpoints/metrics.csv`. `callbacks.Watch` shows the rows.

    resumed_from: the checkpoint that training resumes from, if any. Rows logged after it are
        dropped, because those steps are repeated.
    """

    begun_in = None  # Trainer's state in the last training run that began with a History

    def __init__(self, run: Run, resumed_from: Path | None = None):
        self.path = run.path(f"checkpoints/{_HISTORY}")
        self.resumed_from = resumed_from
        self.rows: list[dict] = []
        if resumed_from and self.path.exists():
            table = pd.read_csv(self.path)
            self.rows = table[table["step"] <= checkpoint_step(resumed_from)].to_dict("records")

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Load the checkpoint's adapter.

        Trainer loads it only if the checkpoint holds a single adapter. With beta > 0, TRL adds a
        frozen copy, `ref`, which is saved in a subfolder. Transformers 5.17 then loads only the
        adapters in subfolders, so the trained adapter would restart from zeros with the old
        optimizer state.
        """
        History.begun_in = state
        if self.resumed_from:
            load_adapter(model, self.resumed_from)

    def on_step_end(self, args, state, control, **kwargs):
        """Have the last step logged, whatever `logging_steps` is: its evaluation needs a row."""
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args, state, control, logs, **kwargs):
        """Append the row of a step, or add an evaluation to the row of its step, which Trainer logs
        first. Trainer's final summary is not a step: it has no reward.

        With beta 0 no KL is computed, but Unsloth's GPU trainer logs 0.0 (rl_replacements.py);
        that value is dropped. Only the first of several processes writes the file.
        """
        has_row = bool(self.rows) and self.rows[-1]["step"] == state.global_step
        if "reward" in logs:
            dropped = {"step", "kl"} if getattr(args, "beta", None) == 0 else {"step"}
            row = {key: value for key, value in logs.items() if key not in dropped}
            self.rows.append({"step": state.global_step} | row)
        elif "eval_reward" in logs and has_row:
            self.rows[-1] |= {key: logs[key] for key in logs if key.startswith(_OF_EVALUATION)}
        else:
            return
        if processes.is_first():
            with atomic_write(self.path) as temporary:
                pd.DataFrame(self.rows).to_csv(temporary, index=False)


class BeforeHistory(TrainerCallback):
    """A callback that changes what is logged. Among the callbacks, it comes before `History`."""

    def on_train_begin(self, args, state, control, **kwargs):
        """Raise ValueError if it comes later."""
        if History.begun_in is state:
            raise ValueError(
                f"put {type(self).__name__} before History in the trainer's list of callbacks: it "
                "changes what History records."
            )


class AfterHistory(TrainerCallback):
    """A callback that reads the rows of `History`. Among the callbacks, it comes after it."""

    def on_train_begin(self, args, state, control, **kwargs):
        """Raise ValueError if it comes earlier, or if there is no `History`."""
        if History.begun_in is not state:
            raise ValueError(
                f"put its History before {type(self).__name__} in the trainer's list of callbacks: "
                f"{type(self).__name__} reads its rows."
            )


def load_adapter(model, folder: Path) -> None:
    """Load the weights of an adapter on disk into the model's adapter. Raise ValueError if their
    ranks or alphas differ.
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
