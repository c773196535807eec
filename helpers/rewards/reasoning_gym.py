"""The reward of reasoning-gym's tasks: each family of them has a verifier of its own."""

import importlib.util
import json
import re
import unicodedata
import warnings

from helpers.rewards.answers import workers
from helpers.rewards.correctness import answer_of
from helpers.tags import THINK_ANSWER, TagFormat

_LONGEST = 10_000  # characters that are read of an answer
# What runs code in Python, reads the row beside it, or leads to either.
_RUNS_CODE = re.compile(
    r"\b(?:exec|eval|compile|open|breakpoint|getattr|globals|locals|vars|entry|\w\w_frame|f_\w+)\b"
)


def task_reward(
    completions: list,
    entry: list | None = None,
    family: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    **columns,
) -> list[float | None]:
    """What the row's own reasoning-gym verifier gives the judged answer, between 0.0 and 1.0.

    `family` and `entry` (JSON) are the columns that `load_task("reasoning-gym/…")` writes; rows
    without them score None, with one warning. The verifiers are other people's code on a policy's
    text, so they run in a worker process with a deadline; what fails or is too slow scores 0.0.
    LookupError where reasoning-gym is not installed.

    >>> task_reward(["no answer block"], entry=['{"answer": "4"}'], family=["chain_sum"])
    [0.0]
    """
    families = family or [None] * len(completions)
    entries = entry or [None] * len(completions)

    # 1. What no verifier has to see: rows of other sources, and answers that are code.
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

    # 2. The rest, by the verifiers of their families.
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
    """Return whether an answer might run something: some verifiers evaluate it, and it must only
    compute.
    """
    text = unicodedata.normalize("NFKC", text)  # as Python reads names
    has_brackets = re.search(r"[(\[{]", text)
    return "__" in text or bool(has_brackets and _RUNS_CODE.search(text))
