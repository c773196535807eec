"""Rewards for a right answer.

What is judged is the last complete answer block outside the reasoning.
"""

import importlib.util
import json
import re
import unicodedata
import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

from rapidfuzz.distance import Levenshtein

from helpers.rewards.answers import Comparison, workers
from helpers.rewards.answers.kinds import (
    DECLARED_KINDS,
    KINDS,
    are_right,
    check_kind,
    compare_answers,
)
from helpers.rewards.answers.numbers import Number, parse_number
from helpers.rewards.answers.texts import LONGEST_ANSWER
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

_MOST_BLOCKS = 8  # more than this, or long ones, are no answer, and comparing every two would cost
_LONGEST_TEXT = 10_000  # characters that fuzzy_match_reward and task_reward read of an answer
# What runs code in Python, reads the row beside it, or leads to either.
_RUNS_CODE = re.compile(
    r"\b(?:exec|eval|compile|open|breakpoint|getattr|globals|locals|vars|entry|\w\w_frame|f_\w+)\b"
)


def correctness_reward(
    completions: list,
    answer: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    question: list | None = None,
    kind: str | list | None = None,
    **columns,
) -> list[float | None]:
    """1.0 where the judged answer means what the row's answer means, else 0.0; None where the row
    has no answer.

    Blocks that disagree with one another score 0: naming two answers is hedging. `completions` are
    strings or chat messages; `answer`, and `question` where there is one, hold a text per
    completion.

    kind: how answers are judged, one of number, mathematics, choice, exact, text; or a column with
        a kind for each row. Without one, a row's answer is a number where it parses as one,
        mathematics where it clearly is, and otherwise text. ValueError for another name; what a
        data set's own column of that name says is passed over, with one warning.

    >>> correctness_reward(["<think>2 + 2</think><answer>$4.00</answer>", "4"], answer=["4", "4"])
    [1.0, 0.0]
    >>> correctness_reward(["<answer>B</answer>"], answer=["(b)"], kind="choice")
    [1.0]
    """
    rows = len(completions)
    golds = _golds("correctness_reward", answer, rows)
    questions = question or [""] * rows

    # 1. The kind of each row, None where nothing says it.
    if kind is None or isinstance(kind, str):
        if kind:
            check_kind(kind)
        kinds = [kind] * rows
    else:
        foreign = [
            name for name in kind if isinstance(name, str) and name and name not in DECLARED_KINDS
        ]
        if foreign:
            warnings.warn(
                f"correctness_reward: the column `kind` holds {min(foreign)!r}, which is not a "
                "kind of answer; these rows are judged as if none were given. Known: "
                f"{', '.join(KINDS)}.",
                stacklevel=2,
            )
        kinds = [name if name in DECLARED_KINDS else None for name in map(str, kind)]

    # 2. What can be told at once: nearly all.
    found = []
    for completion, gold, asked, said in zip(completions, golds, questions, kinds, strict=True):
        given = None if gold is None else answer_of(completion, tags)
        asked = asked if isinstance(asked, str) else ""
        found.append(compare_answers(given, gold, asked, said) if given else Comparison(False))

    # 3. The rest in one batch, by math-verify.
    earned = map(float, are_right(found))
    return [None if gold is None else score for gold, score in zip(golds, earned, strict=True)]


def exact_match_reward(
    completions: list,
    answer: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    ignore_case: bool = False,
    **columns,
) -> list[float | None]:
    """1.0 where the judged answer is the row's answer, letter for letter but for the space around
    it; else 0.0.

    For answers with one spelling: a class label, a key, a move. `4.0` is not `4` here.

    >>> given = ["<answer> Paris </answer>", "<answer>paris</answer>"]
    >>> exact_match_reward(given, answer=["Paris", "Paris"])
    [1.0, 0.0]
    """

    def score(given: str, gold: str) -> float:
        return float(given.casefold() == gold.casefold() if ignore_case else given == gold)

    return _scored("exact_match_reward", answer, completions, tags, score)


def numeric_reward(
    completions: list,
    answer: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    relative_tolerance: float = 1e-3,
    **columns,
) -> list[float | None]:
    """1.0 where the judged answer is a number within `relative_tolerance` of the row's, else 0.0.

    Units are not compared.

    For measured or rounded quantities. None where the row's answer is no number; a row answer of 0
    wants exactly 0.

    >>> numeric_reward(["<answer>3.1412</answer>", "<answer>3</answer>"], answer=["3.1415927"] * 2)
    [1.0, 0.0]
    """

    def score(given: Number, gold: Number) -> float:
        off = abs(given.value - gold.value)
        return float(off <= abs(gold.value) * Fraction(relative_tolerance))

    return _scored("numeric_reward", answer, completions, tags, score, parse_number)


def fuzzy_match_reward(
    completions: list,
    answer: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    threshold: float = 0.0,
    **columns,
) -> list[float | None]:
    """How alike the judged answer and the row's are as text: 1 - edit distance / length of the
    longer, 0.0 below `threshold`.

    Case and runs of spaces do not count; of a text, the first 10,000 characters do. The distance is
    Levenshtein's.

    >>> given = ["<answer>Marie Curie</answer>", "<answer>Mary Curie</answer>"]
    >>> fuzzy_match_reward(given, answer=["marie curie"] * 2)
    [1.0, 0.818182]
    """

    def plain(text: str) -> str:
        return " ".join(text[:_LONGEST_TEXT].casefold().split())

    def score(given: str, gold: str) -> float:
        alike = Levenshtein.normalized_similarity(given, gold)
        return round(alike, 6) if alike >= threshold else 0.0

    return _scored("fuzzy_match_reward", answer, completions, tags, score, plain)


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
    LookupError where reasoning-gym is not installed or does not know the family.

    >>> task_reward(["no answer block"], entry=['{"answer": "4"}'], family=["chain_sum"])
    [0.0]
    """
    families = family or [None] * len(completions)
    entries = entry or [None] * len(completions)
    scores: list[float | None] = []
    requests = {}
    for completion, name, data in zip(completions, families, entries, strict=True):
        given = answer_of(completion, tags)
        # Some verifiers evaluate the answer: it must only compute. Python reads names in NFKC.
        read = unicodedata.normalize("NFKC", given or "")
        runs_code = "__" in read or (re.search(r"[(\[{]", read) and _RUNS_CODE.search(read))
        if name and data and given and not runs_code:
            data = data if isinstance(data, str) else json.dumps(data)
            requests[len(scores)] = (str(name), given[:_LONGEST_TEXT], data)
        scores.append(0.0 if name and data else None)
    _warn_missing("task_reward", scores, "no reasoning-gym entry")
    if requests and importlib.util.find_spec("reasoning_gym") is None:
        raise LookupError(
            "reasoning-gym is not installed: `pip install reasoning-gym` "
            "(requirements-optional.txt has its version)."
        )
    verdicts = workers.scores_in_time("task", list(requests.values()))
    for position, score in zip(requests, verdicts, strict=True):
        scores[position] = min(1.0, max(0.0, score or 0.0))
    return scores


def answer_of(completion: object, tags: TagFormat = THINK_ANSWER) -> str | None:
    """Return the text that the rewards of this file judge, the last complete answer block; None
    where there is none, or where two blocks are not the same at once. What math-verify alone could
    tell to be the same, such as `x/2` and `\\frac{x}{2}`, is not worked out: it is two answers.
    """
    blocks = tags.answer_blocks(completion_text(completion))
    if not blocks or len(blocks) > _MOST_BLOCKS:
        return None
    distinct = list(dict.fromkeys(blocks))
    if len(distinct) > 1 and sum(map(len, distinct)) > LONGEST_ANSWER:
        return None
    agree = all(compare_answers(one, other).right for one, other in combinations(distinct, 2))
    return blocks[-1] if agree else None


def _scored(
    name: str,
    answer: list | None,
    completions: list,
    tags: TagFormat,
    score: Callable,
    read: Callable = str,
) -> list[float | None]:
    """Return the score of each judged answer beside the row's, as `read` reads the two: None where
    it cannot read the row's, 0.0 where it cannot read the judged one.
    """
    scores = []
    for completion, gold in zip(completions, _golds(name, answer, len(completions)), strict=True):
        wanted = None if gold is None else read(gold)
        text = answer_of(completion, tags)
        given = read(text) if text else None
        if wanted is None:
            scores.append(None)
        else:
            scores.append(0.0 if given is None else score(given, wanted))
    return scores


def _golds(name: str, answer: list | None, rows: int) -> list[str | None]:
    """Return the rows' answers as texts, None where there is none, with one warning for all."""
    if answer is None:
        answer = [None] * rows
    # gold != gold: a float nan, which is how pandas spells a missing value.
    golds = [
        None if gold is None or gold != gold or not str(gold).strip() else str(gold).strip()
        for gold in answer
    ]
    _warn_missing(name, golds, "no answer")
    return golds


def _warn_missing(name: str, rows: list, what: str) -> None:
    missing = rows.count(None)
    if missing:
        warnings.warn(
            f"{name}: {missing} of {len(rows)} rows have {what}; they score None.", stacklevel=4
        )
