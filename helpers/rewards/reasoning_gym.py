"""The reward for reasoning-gym's tasks, which are judged by the verifier of their family."""

import importlib.util
import json
import re
import warnings
from collections.abc import Callable
from functools import partial

from helpers.judging import workers
from helpers.judging.answers.numbers import same_form, same_number
from helpers.judging.answers.texts import same_text
from helpers.rewards.common import normal_form
from helpers.rewards.correctness import answer_of
from helpers.tags import THINK_ANSWER, TagFormat

_LONGEST = 10_000  # characters of an answer that a verifier reads


def task_reward(
    completions: list,
    entry: list | None = None,
    family: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """The score of the row's reasoning-gym verifier for the answer, between 0.0 and 1.0.

    entry, family: columns that `load_task("reasoning-gym/…")` writes; `entry` is JSON. Rows without
        them score None, with one warning.
    log_metric: under TRL, logs the share of verdicts that ran out of time, and so earn nothing, as
        `task_reward/out_of_time`.

    The verifiers are third-party code that reads a policy's text, so they run in a worker process
    with a time limit; a verifier that fails or is too slow scores 0.0. Some of them pay for
    nonsense: `judged_here` and `is_in_form` decide before them, and `without_hedges` after them.
    Raises LookupError if reasoning-gym is not installed.

    >>> task_reward(["no answer block"], entry=['{"answer": "4"}'], family=["chain_sum"])
    [0.0]
    """
    families = family or [None] * len(completions)
    entries = entry or [None] * len(completions)

    # 1. Settle the rows that no verifier may see: rows of other sources, missing answers, answers
    # that could run code, and those that we judge ourselves.
    scores: list[float | None] = []
    requests = {}
    golds = {}
    for completion, name, data in zip(completions, families, entries, strict=True):
        scores.append(0.0 if name and data else None)
        given = answer_of(completion, tags)
        if not (name and data and given) or _is_code(given):
            continue
        content = data if isinstance(data, dict) else json.loads(data)
        gold = str(content.get("answer") or "")
        right = judged_here(str(name), given, gold)
        if right is not None:
            scores[-1] = float(right)
        elif is_in_form(str(name), given, gold):
            position = len(scores) - 1
            golds[position] = gold
            requests[position] = request_for(str(name), given[:_LONGEST], content)
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
            "(deploy/requirements-optional.txt has its version)."
        )
    log = log_metric and partial(log_metric, "task_reward/out_of_time")
    verdicts = workers.scores_in_time("task", list(requests.values()), log)
    for position, score in zip(requests, verdicts, strict=True):
        name, given, _ = requests[position]
        score = min(1.0, max(0.0, score or 0.0))
        scores[position] = without_hedges(score, name, given, golds[position])
    return scores


def judged_here(family: str, given: str, gold: str) -> bool | None:
    """Return whether an answer is right, for the families whose verifier pays for nonsense and
    whose answer has one value: a number, a fraction, a truth value or a text; None for the others.

    >>> judged_here("gsm_symbolic", "42 or 43", "42"), judged_here("sudoku", "1 2", "1 2")
    (False, None)
    """
    if gold in ("True", "False") or family == "letter_jumble":
        return same_text(given, gold)
    if family in ("coin_flip", "gsm_symbolic"):
        return same_number(given, gold)
    if family == "fraction_simplification":
        return same_form(given, gold)
    return None


_FUNCTIONS = r"a?(?:sin|cos|tan|sec|csc|cot)h?|log|ln|exp|sqrt|pi|Abs"
# Each `++` keeps what it has matched, so that no answer makes a pattern try again.
_EXPRESSION = re.compile(rf"(?:(?:{_FUNCTIONS})\b|[a-zA-Z]\b(?!\s*\()|\d|[\s+\-*/^().])++")
_SUM = re.compile(r"(?:\d|(?<!\*)\*(?!\*)|(?<!/)/(?!/)|[\s+\-()])++")
# How the answers are written, for the families whose verifier reads the answer as Python or sympy.
_FORMS = {
    "complex_arithmetic": re.compile(r"(?:[\d.]|[ij]\b|[\s+\-*()])++"),
    "countdown": _SUM,
    "puzzle24": _SUM,
    "simple_integration": _EXPRESSION,
    "intermediate_integration": _EXPRESSION,
    "polynomial_multiplication": re.compile(r"(?:[a-zA-Z]\b(?!\s*\()|\d|[\s+\-*/^().])++"),
    "polynomial_equations": re.compile(r"(?=\D*\d)[\d.,\s+\-e]++"),
}


def is_in_form(family: str, given: str, gold: str) -> bool:
    """Return whether an answer is written as the family's answers are, without words and calls.

    >>> is_in_form("complex_arithmetic", "nan", "1.0 + 2.0i")
    False
    >>> is_in_form("simple_integration", "x**2/2 + C", "x**2/2 + C")
    True
    >>> is_in_form("simple_integration", "Integral(x, x)", "x**2/2 + C")
    False
    """
    form = _FORMS.get(family)
    if form is None:
        return True
    # Letters must be the row's: an expression in another variable is no answer.
    letters = set(re.findall(r"\b[a-zA-Z]\b", given)) - {"C", "i", "j", "E"}
    return form.fullmatch(given) is not None and letters <= set(re.findall(r"[a-zA-Z]", gold))


def request_for(family: str, given: str, entry: dict) -> tuple[str, str, str]:
    """Return the row that a worker judges: family, answer and entry.

    The verifier of puzzle24 accepts any four numbers, and 24.9. That of countdown compares the
    numbers and the value.
    """
    if family == "puzzle24":
        family = "countdown"
        entry = {"metadata": {"numbers": entry["metadata"]["numbers"], "target": 24}}
    return family, given, json.dumps(entry)


# Families in which a constant answer or a copy from the question earns much partial credit.
_ALL_OR_NOTHING = {"game_of_life", "knights_knaves", "modulo_grid", "prime_factorization"}


def without_hedges(score: float, family: str, given: str, gold: str) -> float:
    """Return the score, or 0.0 if the answer only contains the row's answer among other words, or
    if it is partial credit that a constant answer earns.

    >>> without_hedges(0.5, "mahjong_puzzle", "Peng Chi", "Peng")
    0.0
    """
    if score < 1 and family in _ALL_OR_NOTHING:
        return 0.0
    around = given.replace(gold, "", 1).strip(" .\n") if gold and gold in given else ""
    has_words = re.search(r"\b[a-z]{2,}\b", around)
    return 0.0 if around and (score < 1 or has_words) else score


# Names that run code in Python, read the row beside the answer, or lead to such names.
_RUNS_CODE = re.compile(
    r"\b(?:exec|eval|compile|open|breakpoint|getattr|globals|locals|vars|entry|\w\w_frame|f_\w+)\b"
)


def _is_code(text: str) -> bool:
    """Return whether an answer could run code in a verifier that evaluates it as Python.

    >>> _is_code("exec('import os')"), _is_code("(1 + 2) * 3")
    (True, False)
    """
    text = normal_form(text, "NFKC")  # as Python reads names
    return "__" in text or bool(re.search(r"[(\[{]", text) and _RUNS_CODE.search(text))
