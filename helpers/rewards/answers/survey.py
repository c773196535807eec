"""What a data report says of the answers: how many are judged by each kind, and which of them look
like a kind that the data should declare.
"""

import re
from collections.abc import Iterable

from helpers.rewards.answers import labels
from helpers.rewards.answers.kinds import DECLARED_KINDS, kind_of
from helpers.rewards.answers.numbers import parse_number


def survey(rows: Iterable[dict]) -> dict[str, dict]:
    """Return what a data report says of the answers: how many of these rows are judged by each
    kind, and how many look like another one, most frequent first, each with ten different examples.

    >>> rows = [{"answer": answer} for answer in ("4", "5", "(B)", "12,0")]
    >>> survey(rows)["answer_hints"]["decimal comma"]
    {'rows': 1, 'examples': ['12,0']}
    """
    rows = list(rows)
    report = {}
    for name, kind_for in (("answer_kinds", kind_of_row), ("answer_hints", looks_like)):
        answers: dict[str, list[str]] = {}
        for row in rows:
            kind = kind_for(row)
            if kind is not None:
                answers.setdefault(kind, []).append(row["answer"][:200])
        by_frequency = sorted(answers.items(), key=lambda item: -len(item[1]))
        report[name] = {
            kind: {"rows": len(texts_of_kind), "examples": list(dict.fromkeys(texts_of_kind))[:10]}
            for kind, texts_of_kind in by_frequency
        }
    return report


def kind_of_row(row: dict) -> str:
    """Return the kind that a row of data is judged by: its own `kind` where that is one, else that
    of its `answer`.
    """
    return row["kind"] if row.get("kind") in DECLARED_KINDS else kind_of(row["answer"])


def looks_like(row: dict) -> str | None:
    """Return the kind that a row's answer, judged as text, might better be declared as, or that it
    is a number with a decimal comma: a guess, for a report alone.

    >>> [looks_like({"answer": text}) for text in ("5 km", "(B)", "10-5", "12,0", "Paris")]
    ['number', 'choice', 'exact', 'decimal comma', None]
    """
    gold = row["answer"]
    kind = kind_of(gold)
    number = parse_number(gold)
    if isinstance(row.get("kind"), str):
        return None
    if kind != "number" and re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold):
        return "decimal comma"
    if kind == "text" and labels.split_option(gold)[0]:
        return "choice"
    if kind == "text" and number is not None and number.unit:
        return "number"
    if kind == "text" and re.fullmatch(r"\S*\d\S*", gold):
        return "exact"
    return None
