"""The pieces that training in episodes adds to TRL's GRPOTrainer. TRL itself plays the episodes.

    StopIfBroken          a callback: if the environment is broken, the training run ends with a
                          checkpoint
    finished              a reward with the weight 0, which TRL only logs: the share of episodes
                          that the policy ended itself
    episodes_fingerprint  identifies the data: a training run resumes only if the episodes are the
                          same as before

Notebook 10 uses them like this:

    report["fingerprint"] = episodes_fingerprint(rows, Guessing, "16 turns, 10 s")
    guard = Guarded(Guessing)
    trainer = GRPOTrainer(
        ...,
        args=GRPOConfig(..., reward_weights=[0.0]),
        reward_funcs=[finished],
        environment_factory=guard,  # its `get_reward` is the reward that is trained on
        callbacks=[StopIfBroken(guard)],
    )
"""

import hashlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path

from transformers import TrainerCallback

from helpers import processes
from helpers.agents.episodes import calls_of, is_finished
from helpers.agents.guard import Guarded
from helpers.agents.protocol import Environment


class StopIfBroken(TrainerCallback):
    """Save a checkpoint and end the training run if the environment is broken. Without this
    callback, the next `reset` raises, and no checkpoint is saved.

    guard: the environment_factory of the GRPOTrainer. Its `broken` is the reason to stop, or "".

    Each process has its own guard. If one of them is broken, all processes stop after that step.
    """

    def __init__(self, guard: Guarded):
        self.guard = guard
        self.reason = ""

    def on_step_end(self, args, state, control, **kwargs):
        """Stop, with a checkpoint, if the next `reset` would raise."""
        self.reason = next((said for said in processes.gather(self.guard.broken) if said), "")
        if self.reason:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        """Raise RuntimeError, now that the checkpoint is saved."""
        if self.reason:
            raise RuntimeError(self.reason)


def finished(completions: list[list[dict]], **columns) -> list[float]:
    """Return 1.0 for each episode that the policy ended, and 0.0 for each that a limit ended.

    The policy ends an episode with a message without calls. A limit ends it with an unanswered
    call, or with a result after which there was no room for a message.

    For `GRPOTrainer(reward_funcs=[..., finished])` with the weight 0: the mean is logged, but not
    trained on. TRL does not log how often a result did not fit into `max_completion_length`, nor
    how often `max_tool_calling_iterations` was reached. (Its `completions/clipped_ratio` counts
    episodes whose last message was cut.)

    This must be the last reward: it also rewrites the calls in the messages, so that TRL can save
    them (see `_make_calls_uniform`).

    >>> word = {"role": "assistant", "content": "I know it.", "tool_calls": []}
    >>> finished([[word], [word, {"role": "tool", "content": "Yes, it is 5."}]])
    [1.0, 0.0]
    """
    _make_calls_uniform(completions)
    return [float(is_finished(completion)) for completion in completions]


def _make_calls_uniform(completions: list[list[dict]]) -> None:
    """Reduce each call in the messages to its name and its arguments, both as text.

    After the rewards, TRL 1.15 saves the messages as a Parquet table, which has one type per column
    (grpo_trainer.py 3277). Arguments of different types, such as 50 and "50", would raise
    ArrowInvalid; calls without arguments would raise ArrowNotImplementedError; a lone surrogate,
    UnicodeEncodeError. Each of these errors would end the training run.

    >>> call = {"type": "function", "function": {"name": "guess", "arguments": {"number": 50}}}
    >>> _make_calls_uniform([[{"role": "assistant", "tool_calls": [call]}]])
    >>> call["function"]
    {'name': 'guess', 'arguments': '{"number": 50}'}
    """
    for completion in completions:
        for message in completion:
            for call in calls_of(message):
                function = call["function"]
                arguments = function.get("arguments")
                if not isinstance(arguments, str):
                    arguments = json.dumps(arguments)
                texts = {"name": str(function.get("name", "")), "arguments": arguments}
                call["function"] = {
                    key: text.encode(errors="replace").decode() for key, text in texts.items()
                }


def episodes_fingerprint(rows: list[dict], factory: Callable[[], Environment], limits: str) -> str:
    """Return a SHA-256, as hexadecimal digits, of everything that decides what episodes are played.
    If it changes, a training run does not resume from an old checkpoint.

    rows: the arguments of `reset`, one row per episode. Each has a `question`.
    factory: makes an environment. All source files that define its methods count.
    limits: any text that describes the other rules. Notebook 10 passes its limits and its system
        prompt: "16 turns, 10 s, 2000 characters; You play a game ...".
    """
    # the files of the class and its base classes; None stands for methods without a file
    methods = inspect.getmembers(type(factory()), inspect.isfunction)
    files = {inspect.getsourcefile(method) for _, method in methods} - {None}
    source = "\n".join(Path(file).read_text("utf-8") for file in sorted(files))

    # separators, so that no two different inputs run together into the same text
    digest = hashlib.sha256(f"{limits}\x1f{source}\x1e".encode())
    for row in rows:
        columns = json.dumps(row, sort_keys=True, default=str)
        digest.update(f"{row['question']}\x1f{columns}\x1e".encode())
    return digest.hexdigest()
