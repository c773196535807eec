"""A user's own rewards, named by a parameter: a list such as
`my_rewards.py:brevity,correctness*0.5`, or one function, as for `grader=`.

    functions, weights = own_rewards(run, "my_rewards.py:brevity,correctness*0.5", tags)

Each file is copied into the run, so the run can be repeated after the file has changed.

A list is read in two steps: `names_and_weights` splits the text, and `load_reward` loads one reward
of it. `own_rewards` is what a notebook calls; it puts the paths of the copies into the list first.
"""

import asyncio
import inspect
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from helpers import rewards as library
from helpers.own_code import load_own
from helpers.rewards import LIBRARY
from helpers.rewards.time_limit import wait_for
from helpers.runs import Run, atomic_write
from helpers.tags import TagFormat, completion_text

_EXAMPLE = "my_rewards.py:brevity"


def own_rewards(
    run: Run, rewards: str, tags: TagFormat, parameter: str = "rewards"
) -> tuple[list, list[float]]:
    """Copy the files of a list of rewards into the run, and return the functions and weights that
    the copies define, as GRPOTrainer and GRPOConfig take them.

    parameter: the name of the notebook's parameter, and of the run's folder for the copies:
        "rewards" or "grader".

    If a file no longer exists, the run's copy is used. Modules that a file imports are not copied;
    they are found beside the original file or in the working directory. Raise ValueError if two
    files have the same name, and see `load_reward`.
    """
    originals: dict[str, Path] = {}  # by the name of the file

    def copy_into_run(file: Path) -> Path:
        """Return the path of the run's copy, which is made if the file is there."""
        copy = run.folder / parameter / file.name

        # 1. The file is gone: use the run's copy, if there is one. The manifest has the paths of
        # copies relative to the run's folder.
        if not file.is_file():
            for kept in (run.folder / file, copy):
                if kept.is_file():
                    return kept
            return file

        # 2. The file is a copy already.
        original = file.resolve()
        if original.is_relative_to(run.folder.resolve()):
            return file

        # 3. Copy it. Several rewards may be in one file.
        if originals.setdefault(file.name, original) != original:
            raise ValueError(
                f"{parameter}={rewards!r} names two files {file.name}, but a run keeps one copy "
                "per name: rename one of them."
            )
        # the copy must find the modules beside the original
        sys.path.append(str(original.parent))
        with atomic_write(run.path(f"{parameter}/{file.name}")) as temporary:
            shutil.copyfile(file, temporary)
        return copy

    return read_rewards(_with_files(rewards, copy_into_run), tags, parameter)


def read_rewards(
    rewards: str, tags: TagFormat, parameter: str = "rewards"
) -> tuple[list, list[float]]:
    """Return the functions and weights of a list of rewards, without copying any file.

    Raise ValueError if the text is not a list of rewards; see also `load_reward`.
    """
    listed = names_and_weights(rewards)
    functions = [load_reward(name, tags, parameter) for name, _ in listed]
    return functions, [weight for _, weight in listed]


def load_reward(name: str, tags: TagFormat, parameter: str) -> Callable:
    """Return one reward by its name in the library, or as `file.py:function` or
    `package.module:function`.

    If the reward has a parameter `tags`, the tags are bound to it, unless its default is None: such
    a reward reads the whole completion. A function with a parameter `solution_str` becomes a
    `VerlReward`.

    Raise ValueError, with the name of the notebook's parameter, if there is no such reward.

    >>> grader = load_reward("correctness", TagFormat("reasoning", "answer"), "grader")
    >>> grader(["<answer>4</answer>"], ["4"])
    [1.0]
    """
    short = name.removesuffix("_reward")
    if ":" in name:
        reward = load_own(parameter, name, _EXAMPLE)
    elif short in LIBRARY:
        reward = getattr(library, f"{short}_reward")
    else:
        raise ValueError(
            f"{parameter}={name!r} is not a reward of the library: {', '.join(LIBRARY)}. Name your "
            f"own as file.py:function, such as {_EXAMPLE}."
        )
    parameters = inspect.signature(reward).parameters
    if "solution_str" in parameters:
        return VerlReward(reward)
    reads_tags = "tags" in parameters and parameters["tags"].default is not None
    return partial(reward, tags=tags) if reads_tags else reward


@dataclass(frozen=True)
class TextReward:
    """A reward that reads completions as texts, which TRL passes where prompts are texts. It is
    called with messages, and passes their texts on.
    """

    func: Callable

    def __call__(self, completions, prompts=(), **columns) -> list:
        """Return what the reward returns."""
        texts = [completion_text(completion) for completion in completions]
        questions = []
        for prompt in prompts:
            questions.append(prompt if isinstance(prompt, str) else prompt[-1]["content"])
        return self.func(completions=texts, prompts=questions, **columns)


@dataclass(frozen=True)
class VerlReward:
    """A reward function of verl, called as TRL calls rewards.

    func: takes `solution_str` of one completion, and those of `data_source`, `ground_truth` and
        `extra_info` that it has parameters for. It returns a number, or a dictionary with the
        number as `score`. Its `ground_truth` is the row's `answer`.
    """

    func: Callable

    def __call__(self, completions, answer, data_source=None, extra_info=None, **columns) -> list:
        """Return one score per completion."""
        # 1. Find out which arguments the function takes. One with `**kwargs` takes all.
        parameters = inspect.signature(self.func).parameters
        takes_all = any(each.kind == each.VAR_KEYWORD for each in parameters.values())

        # 2. Call it for each completion.
        absent = [None] * len(completions)
        scores = []
        for completion, gold, source, info in zip(
            completions, answer, data_source or absent, extra_info or absent, strict=True
        ):
            arguments = {
                "data_source": source,
                "solution_str": completion_text(completion),
                "ground_truth": gold,
                "extra_info": info,
            }
            taken = {
                name: value for name, value in arguments.items() if takes_all or name in parameters
            }
            scores.append(self.func(**taken))

        # 3. Wait for an async function, and take the numbers out of dictionaries.
        if any(map(inspect.isawaitable, scores)):
            scores = wait_for(_all_results(scores))
        return [score["score"] if isinstance(score, dict) else score for score in scores]


async def _all_results(awaitables: list) -> list:
    """Return the results of an async reward's calls, which run at the same time."""
    return await asyncio.gather(*awaitables)


def names_and_weights(rewards: str) -> list[tuple[str, float]]:
    """Return the name and weight of each reward in a list. A missing weight is 1.0.

    A name without a file belongs to the file before it, unless the library has a reward of that
    name. Raise ValueError if a weight is not a number.

    >>> names_and_weights("my_rewards.py:brevity, format*0.5, clarity")
    [('my_rewards.py:brevity', 1.0), ('format', 0.5), ('my_rewards.py:clarity', 1.0)]
    """
    # a name, and perhaps a weight: `format * 0.5`
    number = r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
    pattern = rf"\s*(?P<name>[^*\s][^*]*?)\s*(?:\*\s*(?P<weight>{number})\s*)?"
    rewards_and_weights = []
    file = ""  # the file or module of the name before
    for part in str(rewards).split(","):
        entry = re.fullmatch(pattern, part)
        if not entry:
            raise ValueError(
                f"{rewards!r}: {part.strip()!r} is not a reward with a weight. Write a list such "
                f"as {_EXAMPLE},correctness*1.0,format*0.5."
            )
        name = entry["name"]
        if ":" in name:
            file = name.rpartition(":")[0]
        elif file and name.removesuffix("_reward") not in LIBRARY:
            name = f"{file}:{name}"
        rewards_and_weights.append((name, float(entry["weight"] or 1)))
    return rewards_and_weights


def with_absolute_paths(rewards: str) -> str:
    """Return the list of rewards with absolute paths, for a notebook that runs elsewhere."""
    return _with_files(rewards, Path.resolve)


def copies_of(rewards: str, parameter: str = "rewards") -> str:
    """Return the list of rewards as the manifest records it: each file is replaced by the run's
    copy, relative to the run's folder.

    >>> copies_of("work/my_rewards.py:brevity, correctness*0.5")
    'rewards/my_rewards.py:brevity*1,correctness*0.5'
    """
    return _with_files(rewards, lambda file: Path(parameter, file.name))


def _with_files(rewards: str, replacement: Callable[[Path], Path]) -> str:
    """Return the list of rewards with each file replaced by `replacement(file)`."""
    names = []
    for name, weight in names_and_weights(rewards):
        where, _, function = name.rpartition(":")
        if where.endswith(".py"):
            name = f"{replacement(Path(where))}:{function}"
        names.append(f"{name}*{weight:.15g}")  # `1` rather than `1.0`
    return ",".join(names)
