"""The answers in a data report: how many of each kind, and which ones suggest declaring a kind."""

import contextlib
import re

from helpers.judging.answers import DECLARED_KINDS, documents
from helpers.judging.answers.choices_and_codes import split_option
from helpers.judging.answers.kinds import kind_of
from helpers.judging.answers.numbers import parse_number


def survey(rows: list[dict]) -> dict[str, dict]:
    """Count the kinds of the rows' answers, most frequent first, each with up to ten examples.

    `answer_kinds` counts the kinds by which the rows are judged. `answer_hints` counts the rows
    that look like another kind (see `looks_like`).

    >>> rows = [{"answer": answer} for answer in ("4", "5", "(B)", "12,0")]
    >>> survey(rows)["answer_hints"]["decimal comma"]
    {'rows': 1, 'examples': ['12,0']}
    """
    report: dict[str, dict] = {}
    for name, kind_for in (("answer_kinds", kind_of_row), ("answer_hints", looks_like)):
        answers: dict[str, list[str]] = {}
        for row in rows:
            kind = kind_for(row)
            if kind is not None:
                answers.setdefault(kind, []).append(row["answer"][:200])
        report[name] = {}
        for kind, found in sorted(answers.items(), key=lambda item: -len(item[1])):
            report[name][kind] = {"rows": len(found), "examples": list(dict.fromkeys(found))[:10]}
    return report


def kind_of_row(row: dict) -> str:
    """Return the kind by which a row is judged: the declared one, or that of its `answer`."""
    return row["kind"] if row.get("kind") in DECLARED_KINDS else kind_of(row["answer"])


def looks_like(row: dict) -> str | None:
    """Return a kind that the row should perhaps declare, or "decimal comma", which no kind reads;
    None for most rows. A guess, for the report only.

    >>> [looks_like({"answer": text}) for text in ("5 km", "(B)", "10-5", "12,0", "Paris")]
    ['number', 'choice', 'exact', 'decimal comma', None]
    >>> [looks_like({"answer": text}) for text in ('{"a": 1}', '["red"]', "[1, 2]")]
    ['json', 'json', None]
    """
    gold = row["answer"]
    kind = kind_of(gold)
    number = parse_number(gold)
    is_list_or_text = row.get("kind") in ("set", "choice", "exact", "json", "text")
    if kind != "number" and not is_list_or_text and re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold):
        return "decimal comma"
    if isinstance(row.get("kind"), str):
        return None
    with contextlib.suppress(ValueError):
        value = documents.value_of(gold)
        if isinstance(value, dict) or (isinstance(value, list) and kind == "text"):
            return "json"
    if kind == "text" and split_option(gold)[0]:
        return "choice"
    if kind == "text" and number is not None and number.unit:
        return "number"
    if kind == "text" and re.fullmatch(r"\S*\d\S*", gold):
        return "exact"
    return None
