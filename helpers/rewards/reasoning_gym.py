"""The reward for reasoning-gym's tasks, which are judged by the verifier of their family."""

import importlib.util
import json
import re
import unicodedata
import warnings

from helpers.rewards.answers import workers
from helpers.rewards.correctness import answer_of
from helpers.tags import THINK_ANSWER, TagFormat

_LONGEST = 10_000  # characters of an answer that a verifier reads


def task_reward(
    completions: list,
    entry: list | None = None,
    family: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    **columns,
) -> list[float | None]:
    """The score of the row's reasoning-gym verifier for the answer, between 0.0 and 1.0.

    entry, family: columns that `load_task("reasoning-gym/…")` writes; `entry` is JSON. Rows without
        them score None, with one warning.

    The verifiers are third-party code that reads a policy's text, so they run in a worker process
    with a time limit; a verifier that fails or is too slow scores 0.0. Raises LookupError if
    reasoning-gym is not installed.

    >>> task_reward(["no answer block"], entry=['{"answer": "4"}'], family=["chain_sum"])
    [0.0]
    """
    families = family or [None] * len(completions)
    entries = entry or [None] * len(completions)

    # 1. Settle the rows that no verifier may see: rows of other sources, missing answers, and
    # answers that could run code.
    scores: list[float | None] = []
    requests = {}
    for completion, name, data in zip(completions, families, entries, strict=True):
        scores.append(0.0 if name and data else None)
        given = answer_of(completion, tags)
        if name and data and given and not _is_code(given):
            data = data if isinstance(data, str) else json.dumps(data)
            requests[len(scores) - 1] = (str(name), given[:_LONGEST], data)
    missing = scores.count(None)
    if missing:
        warnings.warn(
            f"task_reward: {missing} of {len(scores)} rows have no reasoning-gym entry; they score "
            "None.",
            stacklevel=2,
        )

    # 2. Ask the verifiers for the others.
    if requests and importlib.util.find_spec("reasoning_gym") is None:
        raise LookupError(
            "reasoning-gym is not installed: `pip install reasoning-gym` "
            "(requirements-optional.txt has its version)."
        )
    verdicts = workers.scores_in_time("task", list(requests.values()))
    for position, score in zip(requests, verdicts, strict=True):
        scores[position] = min(1.0, max(0.0, score or 0.0))
    return scores


def _is_code(text: str) -> bool:
    """Return whether an answer could run code in a verifier that evaluates it as Python.

    >>> _is_code("exec('import os')"), _is_code("(1 + 2) * 3")
    (True, False)
    """
    text = unicodedata.normalize("NFKC", text)  # as Python reads names
    return "__" in text or bool(re.search(r"[(\[{]", text) and _RUNS_CODE.search(text))


# Names that run code in Python, read the row beside the answer, or lead to such names.
_RUNS_CODE = re.compile(
    r"\b(?:exec|eval|compile|open|breakpoint|getattr|globals|locals|vars|entry|\w\w_frame|f_\w+)\b"
)
