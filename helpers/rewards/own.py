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
    found = []
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
        found.append((name, float(entry[2] or 1)))
    return found


def reward_named(name: str, tags: TagFormat, parameter: str) -> Callable:
    """Return the reward that a name of the library, `file.py:function` or `package.module:function`
    names, with the tags bound if it reads them. ValueError where there is none.

    >>> judge = reward_named("correctness", TagFormat("reasoning", "answer"), "judge")
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
    them. ValueError for what is no such list; see `reward_named`.
    """
    listed = names_and_weights(rewards)
    functions = [reward_named(name, tags, parameter) for name, _ in listed]
    return functions, [weight for _, weight in listed]


def own_rewards(
    run: Run, rewards: str, tags: TagFormat, parameter: str = "rewards"
) -> tuple[list, list[float]]:
    """Return what `read_rewards` returns, of copies: each file is copied first into the run's
    folder of this name, `rewards/` or `judge/`.

    What a file imports is not copied: it is looked for beside the file, as long as that is there,
    and where the command was typed.
    """
    copy_files(run, rewards, parameter)
    return read_rewards(copies_of(rewards, run, parameter), tags, parameter)


def copy_files(run: Run, rewards: str, parameter: str = "rewards") -> None:
    """Copy the files of a list into the run's folder of this name. ValueError for two of one
    name.
    """
    copied = {}
    for typed in _files(rewards):
        file = typed.resolve()
        if not file.is_file() or file.is_relative_to(run.folder.resolve()):
            continue
        if copied.setdefault(file.name, file) != file:
            raise ValueError(
                f"{parameter}={rewards!r} names two files {file.name}, and a run keeps one copy by "
                "name: rename one of them."
            )
        sys.path.append(str(file.parent))
        with atomic_write(run.path(f"{parameter}/{file.name}")) as temporary:
            shutil.copyfile(file, temporary)


def with_absolute_paths(rewards: str) -> str:
    """Return the same list with each file as an absolute path, for a notebook that runs later."""
    return _with_files(rewards, Path.resolve)


def copies_of(rewards: str, run: Run | None = None, parameter: str = "rewards") -> str:
    """Return the same list, where each file is replaced by its copy in the run, if there is one;
    without a run, relative to its folder, as the manifest has it.

    >>> copies_of("work/my_rewards.py:brevity, correctness*0.5")
    'rewards/my_rewards.py:brevity*1,correctness*0.5'
    """

    def copy_of(file: Path) -> Path:
        copy = Path(parameter, file.name)
        if run is None:
            return copy
        # a name of the manifest is inside the run already
        for inside in [copy] if file.is_file() else [file, copy]:
            if (run.folder / inside).is_file():
                return run.folder / inside
        return file

    return _with_files(rewards, copy_of)


def _files(rewards: str) -> list[Path]:
    """Return the files of a list, each once."""
    files = [Path(name.rpartition(":")[0]) for name, _ in names_and_weights(rewards)]
    return list(dict.fromkeys(file for file in files if file.suffix == ".py"))


def _with_files(rewards: str, place: Callable[[Path], Path]) -> str:
    """Return the same list with each file where `place` says."""
    names = []
    for name, weight in names_and_weights(rewards):
        where, _, function = name.rpartition(":")
        if where.endswith(".py"):
            name = f"{place(Path(where))}:{function}"
        names.append(f"{name}*{weight:g}")
    return ",".join(names)
