"""What notebook 10 passes to a GRPOTrainer besides the environments: a callback that stops the
training run with a checkpoint, and a reward that is only logged. Also the fingerprint of the data.
"""

import inspect
import json
from collections.abc import Callable
from pathlib import Path

from transformers import TrainerCallback

from helpers.agents.episodes import calls_of, is_finished
from helpers.agents.guard import Guarded
from helpers.agents.protocol import Environment
from helpers.data.tasks import fingerprint
from helpers.training import processes


class StopIfBroken(TrainerCallback):
    """Save a checkpoint and end the training run if the environment is broken. Without this
    callback, the next `reset` raises, and no checkpoint is saved.

    guard: the environment_factory of the GRPOTrainer; its `broken` is the reason to stop. If
        several processes train together, all of them stop after the same step.
    """

    def __init__(self, guard: Guarded):
        self.guard = guard
        self.reason = ""

    def on_step_end(self, args, state, control, **kwargs):
        """Stop, with a checkpoint, if the next `reset` would raise."""
        self.reason = next(filter(None, processes.gather(self.guard.broken)), "")
        if self.reason:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        """Raise RuntimeError, now that the checkpoint is saved."""
        if self.reason:
            raise RuntimeError(self.reason)


def finished(completions: list[list[dict]], **columns) -> list[float]:
    """Return 1.0 for an episode that the policy ended: its last message is the policy's and has no
    calls. Return 0.0 if it ends with an unanswered call, or with a result after which there was no
    room. (TRL's `completions/clipped_ratio` counts episodes whose last message was cut.)

    For `GRPOTrainer(reward_funcs=[..., finished])` with the weight 0: the reward is logged, but not
    trained on. TRL does not log that a result did not fit into `max_completion_length`, or that
    `max_tool_calling_iterations` was reached.

    This must be the last reward, because it changes the messages so that TRL can log them. TRL 1.15
    writes them as a Parquet table, which has one type per column (grpo_trainer.py 3277). Calls with
    50 and with "50" would end the training run with an ArrowInvalid, and calls without arguments
    with an ArrowNotImplementedError. So the arguments become text, and only they and the name stay.

    >>> word = {"role": "assistant", "content": "I know it.", "tool_calls": []}
    >>> finished([[word], [word, {"role": "tool", "content": "Yes, it is 5."}]])
    [1.0, 0.0]
    """
    scores = [float(is_finished(completion)) for completion in completions]
    for completion in completions:
        for message in completion:
            for call in calls_of(message):
                name = call["function"].get("name", "")
                arguments = call["function"].get("arguments")
                if not isinstance(arguments, str):
                    arguments = json.dumps(arguments)
                call["function"] = {"name": name, "arguments": arguments}
    return scores


def episodes_fingerprint(rows: list[dict], factory: Callable[[], Environment], limits: str) -> str:
    """Return a fingerprint of the rows, the limits and the environment's source files. If one of
    them changes, a training run does not continue from an old checkpoint.
    """
    methods = inspect.getmembers(type(factory()), inspect.isfunction)
    files = {inspect.getsourcefile(method) for _, method in methods} - {None}
    source = "\n".join(Path(file).read_text("utf-8") for file in sorted(files))
    entries = [{"question": limits, "answer": source}]
    for row in rows:
        answer = json.dumps(row, sort_keys=True, default=str)
        entries.append({"question": row["question"], "answer": answer})
    return fingerprint(entries)
