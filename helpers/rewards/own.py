"""A user's own rewards, named by a parameter: a list such as
`my_rewards.py:brevity,correctness*0.5`, or one function, as for `judge=`.

The files of rewards are copied into the run, so that it can be repeated after they have changed.
"""

import inspect
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from helpers import rewards as library
from helpers.own_code import load_own
from helpers.rewards import LIBRARY
from helpers.runs import Run, atomic_write
from helpers.tags import TagFormat

_EXAMPLE = "my_rewards.py:brevity"


def names_and_weights(rewards: str) -> list[tuple[str, float]]:
    """Return the names of a list of rewards with their weights, 1.0 where none is given. A name
    behind a file's is of the same file, unless the library has it. ValueError for a weight that is
    no number.

    >>> names_and_weights("my_rewards.py:brevity, format*0.5, clarity")
    [('my_rewards.py:brevity', 1.0), ('format', 0.5), ('my_rewards.py:clarity', 1.0)]
    """
    rewards_and_weights = []
    where = ""
    for part in str(rewards).split(","):
        entry = re.fullmatch(r"\s*([^*\s][^*]*?)\s*(?:\*\s*(-?\d+(?:\.\d*)?|-?\.\d+)\s*)?", part)
        if not entry:
            raise ValueError(
                f"{rewards!r}: {part.strip()!r} is not a reward with a weight. Write a list such "
                f"as {_EXAMPLE},correctness*1.0,format*0.5."
            )
        name = entry[1]
        if ":" in name:
            where = name.rpartition(":")[0]
        elif where and name.removesuffix("_reward") not in LIBRARY:
            name = f"{where}:{name}"
        rewards_and_weights.append((name, float(entry[2] or 1)))
    return rewards_and_weights


def load_reward(name: str, tags: TagFormat, parameter: str) -> Callable:
    """Return the reward that a name of the library, `file.py:function` or `package.module:function`
    names, with the tags bound if it reads them. ValueError where there is none.

    >>> judge = load_reward("correctness", TagFormat("reasoning", "answer"), "judge")
    >>> judge(["<answer>4</answer>"], ["4"])
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
    reads = inspect.signature(reward).parameters.get("tags")
    # Where `tags` is None by default, the whole completion is judged unless told otherwise.
    return partial(reward, tags=tags) if reads and reads.default is not None else reward


def read_rewards(
    rewards: str, tags: TagFormat, parameter: str = "rewards"
) -> tuple[list, list[float]]:
    """Return the functions and the weights of a list of rewards, as GRPOTrainer and GRPOConfig take
    them. ValueError for what is no such list; see `load_reward`.
    """
    listed = names_and_weights(rewards)
    functions = [load_reward(name, tags, parameter) for name, _ in listed]
    return functions, [weight for _, weight in listed]


def own_rewards(
    run: Run, rewards: str, tags: TagFormat, parameter: str = "rewards"
) -> tuple[list, list[float]]:
    """Return what `read_rewards` returns, of copies: each file is copied first into the run's
    folder of this name, `rewards/` or `judge/`. ValueError for two files of one name.

    What a file imports is not copied: it is looked for beside the file, as long as that is there,
    and where the command was typed. Where the file itself is gone, its copy is read.
    """
    copied = {}
    for name, _ in names_and_weights(rewards):
        file = Path(name.rpartition(":")[0]).resolve()
        is_in_run = file.is_relative_to(run.folder.resolve())
        if file.suffix != ".py" or not file.is_file() or is_in_run:
            continue
        if copied.setdefault(file.name, file) != file:
            raise ValueError(
                f"{parameter}={rewards!r} names two files {file.name}, and a run keeps one copy by "
                "name: rename one of them."
            )
        sys.path.append(str(file.parent))
        with atomic_write(run.path(f"{parameter}/{file.name}")) as temporary:
            shutil.copyfile(file, temporary)

    def copy_of(file: Path) -> Path:
        if not file.is_file() and (run.folder / file).is_file():  # a name of the manifest
            return run.folder / file
        copy = run.folder / parameter / file.name
        return copy if copy.is_file() else file

    return read_rewards(_with_files(rewards, copy_of), tags, parameter)


def with_absolute_paths(rewards: str) -> str:
    """Return the same list with each file as an absolute path, for a notebook that runs later."""
    return _with_files(rewards, Path.resolve)


def copies_of(rewards: str, parameter: str = "rewards") -> str:
    """Return the same list with each file as its copy in the run, relative to the run's folder: so
    the manifest has it.

    >>> copies_of("work/my_rewards.py:brevity, correctness*0.5")
    'rewards/my_rewards.py:brevity*1,correctness*0.5'
    """
    return _with_files(rewards, lambda file: Path(parameter, file.name))


def _with_files(rewards: str, place: Callable[[Path], Path]) -> str:
    """Return the same list with each file where `place` says."""
    names = []
    for name, weight in names_and_weights(rewards):
        where, _, function = name.rpartition(":")
        if where.endswith(".py"):
            name = f"{place(Path(where))}:{function}"
        names.append(f"{name}*{weight:g}")
    return ",".join(names)
