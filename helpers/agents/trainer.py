"""What notebook 10 gives a GRPOTrainer beside the environments: a callback that stops it with a
checkpoint, a reward that is only watched, and the fingerprint of its data.
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
    """End a training whose environment is broken with a checkpoint; by itself its next `reset`
    raises, and there is none.

    guard: what GRPOTrainer has as its environment_factory; its `broken` says why it would give up.
    If several processes train together, all stop at the step after which one would.
    """

    def __init__(self, guard: Guarded):
        self.guard = guard
        self.reason = ""

    def on_step_end(self, args, state, control, **kwargs):
        """Stop, with a checkpoint, if the environment would give up at the next episode."""
        self.reason = next(filter(None, processes.gather(self.guard.broken)), "")
        if self.reason:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        """Raise RuntimeError, now that the checkpoint is saved."""
        if self.reason:
            raise RuntimeError(self.reason)


def finished(completions: list[list[dict]], **columns) -> list[float]:
    """Return 1.0 where the last message is the policy's and calls nothing, 0.0 where it is a call
    that nobody answered, or an answer that left no room for another word. (Where the policy's own
    last words were cut, TRL's `completions/clipped_ratio` says so.)

    For `GRPOTrainer(reward_funcs=[..., finished])` with the weight 0: it is watched, and earns
    nothing. TRL logs neither that a tool's result did not fit into `max_completion_length` nor that
    `max_tool_calling_iterations` were over.

    Let it be the last reward, because it also makes the messages fit to be logged: it turns the
    calls' arguments into text, and leaves out what is neither a name nor arguments. TRL 1.15 writes
    the messages as a Parquet table (grpo_trainer.py 3277), which has one type a column: a policy
    that calls once with 50 and once with "50" would end the training with an ArrowInvalid, and one
    that calls without any argument with an ArrowNotImplementedError.

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
    """Return the fingerprint of a training's episodes: of its rows, the limits, and the
    environment's own files, so that after a change of any of them no old checkpoint is continued.
    """
    methods = inspect.getmembers(type(factory()), inspect.isfunction)
    files = {inspect.getsourcefile(method) for _, method in methods} - {None}
    source = "\n".join(Path(file).read_text("utf-8") for file in sorted(files))
    entries = [{"question": limits, "answer": source}]
    for row in rows:
        answer = json.dumps(row, sort_keys=True, default=str)
        entries.append({"question": row["question"], "answer": answer})
    return fingerprint(entries)
