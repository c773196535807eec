"""The reward for reasoning-gym's tasks, which are judged by the verifier of their family.

A family is a generator of tasks, such as `chain_sum`, and its verifier is the function of
reasoning-gym that scores an answer. Some verifiers pay for nonsense, or evaluate the answer as
Python. So `task_reward` does not ask them about every answer, nor believe every score: the
functions below it are the checks, in the order in which it makes them.
"""

import importlib.util
import json
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from helpers.judging import workers
from helpers.judging.answers.numbers import same_form, same_number
from helpers.judging.answers.texts import same_text
from helpers.rewards.common import normal_form
from helpers.rewards.correctness import answer_of
from helpers.tags import THINK_ANSWER, TagFormat

_LONGEST = 10_000  # characters of an answer that a verifier reads; the rest is cut off


class _Request(NamedTuple):
    """A row that is left for a verifier: its position in the batch, the correct answer, the family,
    the given answer, and the entry as JSON.
    """

    position: int
    gold: str
    family: str
    given: str
    entry: str


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
    with a time limit; a verifier that fails or is too slow scores 0.0. Raise LookupError if
    reasoning-gym is not installed.

    >>> task_reward(["no answer block"], entry=['{"answer": "4"}'], family=["chain_sum"])
    [0.0]
    """
    rows = len(completions)
    families = family or [None] * rows
    entries = entry or [None] * rows

    # 1. Score the rows that need no verifier, and make a request for each of the others. The order
    # of the checks matters.
    scores: list[float | None] = [None] * rows
    requests: list[_Request] = []
    rows_in_order = zip(completions, families, entries, strict=True)
    for position, (completion, family_name, row_entry) in enumerate(rows_in_order):
        if not (family_name and row_entry):
            continue  # the row is from another source
        scores[position] = 0.0  # unless it is replaced below

        # An answer that could run code earns nothing, whatever it says.
        given = answer_of(completion, tags)
        if not given or _is_code(given):
            continue

        # Our own judgement decides, if there is one.
        name = str(family_name)
        content = row_entry if isinstance(row_entry, dict) else json.loads(row_entry)
        gold = str(content.get("answer") or "")
        right = judged_here(name, given, gold)
        if right is not None:
            scores[position] = float(right)
            continue

        # A verifier reads only answers in its family's form. That of puzzle24 accepts any four
        # numbers, and 24.9 for 24; that of countdown needs the row's numbers and the exact value.
        if not is_in_form(name, given, gold):
            continue
        if name == "puzzle24":
            name = "countdown"
            content = {"metadata": {"numbers": content["metadata"]["numbers"], "target": 24}}
        requests.append(_Request(position, gold, name, given[:_LONGEST], json.dumps(content)))
    if missing := scores.count(None):
        warnings.warn(
            f"task_reward: {missing} of {rows} rows have no reasoning-gym entry; they score None.",
            stacklevel=2,
        )

    # 2. Ask the verifiers.
    if requests and importlib.util.find_spec("reasoning_gym") is None:
        raise LookupError(
            "reasoning-gym is not installed: `pip install reasoning-gym` "
            "(deploy/requirements-optional.txt has its version)."
        )
    log = log_metric and partial(log_metric, "task_reward/out_of_time")
    asked = [(request.family, request.given, request.entry) for request in requests]
    verdicts = workers.scores_in_time("task", asked, log)

    # 3. Replace the scores of these rows. A verdict of None came too late, and counts as 0.
    for request, verdict in zip(requests, verdicts, strict=True):
        score = min(1.0, max(0.0, verdict or 0.0))
        scores[request.position] = without_hedges(
            score, request.family, request.given, request.gold
        )
    return scores


def judged_here(family: str, given: str, gold: str) -> bool | None:
    """Return whether an answer is correct, for the families whose verifier pays for nonsense and
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
# a letter that ends a word and is not called: `x`, but not `f(`
_LETTER = r"[a-zA-Z]\b(?!\s*\()"
# The patterns of answers. Each `++` keeps what it has matched, so no answer makes one try again.
_EXPRESSION = re.compile(rf"(?:(?:{_FUNCTIONS})\b|{_LETTER}|\d|[\s+\-*/^().])++")
# whole numbers with + - * / and parentheses, without the powers `**` and the division `//`
_ARITHMETIC = re.compile(r"(?:\d|(?<!\*)\*(?!\*)|(?<!/)/(?!/)|[\s+\-()])++")
# How the answers are written, for the families whose verifier reads the answer as Python or sympy.
_FORMS = {
    # decimals, i or j, + - * and parentheses: `1.0 + 2.0i`
    "complex_arithmetic": re.compile(r"(?:[\d.]|[ij]\b|[\s+\-*()])++"),
    "countdown": _ARITHMETIC,
    "puzzle24": _ARITHMETIC,
    "simple_integration": _EXPRESSION,
    "intermediate_integration": _EXPRESSION,
    # an expression without functions
    "polynomial_multiplication": re.compile(rf"(?:{_LETTER}|\d|[\s+\-*/^().])++"),
    # decimals and commas, `-1.5, 2e-3`, with at least one digit
    "polynomial_equations": re.compile(r"(?=\D*\d)[\d.,\s+\-e]++"),
}
# Letters that an answer may use although the row's answer does not: the constant of an integral C,
# the imaginary unit i or j, and sympy's E, the base of the natural logarithm.
_CONSTANTS = {"C", "i", "j", "E"}


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
    # The variables must be the row's: an expression in another variable is no answer.
    variables = set(re.findall(r"\b[a-zA-Z]\b", given)) - _CONSTANTS
    gold_letters = set(re.findall(r"[a-zA-Z]", gold))
    return form.fullmatch(given) is not None and variables <= gold_letters


# Families in which a constant answer or a copy from the question earns much partial credit.
_ALL_OR_NOTHING = {"game_of_life", "knights_knaves", "modulo_grid", "prime_factorization"}


def without_hedges(score: float, family: str, given: str, gold: str) -> float:
    """Return the score, or 0.0 if the answer only contains the row's answer among other words, or
    if it is partial credit that a constant answer earns.

    >>> without_hedges(0.5, "mahjong_puzzle", "Peng Chi", "Peng")
    0.0
    """
    # 1. Refuse partial credit that is paid without an answer.
    if score < 1 and family in _ALL_OR_NOTHING:
        return 0.0

    # 2. Keep the score of an answer that does not contain the row's answer.
    if not gold or gold not in given:
        return score

    # 3. Keep the score of the row's answer alone. A full stop and spaces around it do not count.
    around = given.replace(gold, "", 1).strip(" .\n")
    if not around:
        return score

    # 4. There is more than the row's answer: refuse partial credit, and words such as the `or` of
    # `4 or 7`.
    has_words = re.search(r"\b[a-z]{2,}\b", around)
    return 0.0 if score < 1 or has_words else score


# Names that run code in Python, read the row beside the answer (`entry`), or lead to such names, as
# the frame of a generator does: `gi_frame.f_builtins`.
_RUNS_CODE = re.compile(
    r"\b(?:exec|eval|compile|open|breakpoint|getattr|globals|locals|vars|entry|\w\w_frame|f_\w+)\b"
)


def _is_code(text: str) -> bool:
    """Return whether an answer could run code in a verifier that evaluates it as Python.

    >>> _is_code("exec('import os')"), _is_code("(1 + 2) * 3")
    (True, False)
    """
    text = normal_form(text, "NFKC")  # as Python reads names
    # Names such as `__class__` lead to everything in Python. The other names do nothing without a
    # bracket, which calls or indexes something: `entry, open` is only two words.
    has_bracket = re.search(r"[(\[{]", text)
    return "__" in text or bool(has_bracket and _RUNS_CODE.search(text))
