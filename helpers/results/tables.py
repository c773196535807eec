"""evaluation.json as tables of text."""

import pandas as pd


def summary(evaluation: dict[str, dict]) -> list[str]:
    """Return evaluation.json as lines of text, a model a line: accuracy with its interval, greedy
    accuracy, in-format share, number of questions, and the mean length of a sampled completion in
    tokens; nothing for what was not measured.
    """
    rows = {}
    for name, entry in evaluation.items():
        low, high = entry["ci95"]
        rows[name] = {
            # notebook 00 measures at temperature 0 alone
            "sampled": "" if entry.get("temperature") == 0 else f"{entry['accuracy']:.1%}",
            "95 % interval": f"{low:.1%} to {high:.1%}",
            "greedy": f"{entry['greedy']['accuracy']:.1%}" if "greedy" in entry else "",
            "in format": f"{entry['in_format']:.1%}",
            "questions": entry["n"],
            "tokens": f"{entry['mean_length']:.1f}" if "mean_length" in entry else "",
        }
    return _lines(pd.DataFrame.from_dict(rows, orient="index"))


def samples_summary(evaluation: dict[str, dict]) -> list[str]:
    """Return pass@k and the majority vote of evaluation.json as lines of text: a measure a line, a
    model a column.

    Models that were not sampled several times are left out; no line at all where none was.
    """
    columns = {}
    for name, entry in evaluation.items():
        if "pass_at_k" not in entry:
            continue
        cells = {"samples": f"{entry['samples']} for {entry['pass_at_k_questions']} questions"}
        for k, point in entry["pass_at_k"].items():
            cells[f"pass@{k}"] = _cell(point["value"], point["ci95"])
        cells["majority"] = _cell(entry["majority"]["accuracy"], entry["majority"]["ci95"])
        columns[name] = cells
    return _lines(pd.DataFrame(columns))


def difficulty_summary(evaluation: dict[str, dict]) -> list[str]:
    """Return sampled accuracy by difficulty as lines of text: a level a line, a model a column,
    with intervals and questions.

    Models whose questions have no levels are left out; no line at all where none has.
    """
    columns = {}
    for name, entry in evaluation.items():
        for level, point in entry.get("by_difficulty", {}).items():
            columns.setdefault("questions", {})[level] = point["n"]
            columns.setdefault(name, {})[level] = _cell(point["accuracy"], point["ci95"])
    return _lines(pd.DataFrame(columns).rename_axis(columns="difficulty"))


def _cell(value: float, ci95: list[float]) -> str:
    return f"{value:.1%} ({100 * ci95[0]:.1f} to {100 * ci95[1]:.1f})"


def _lines(table: pd.DataFrame) -> list[str]:
    """Return a table as text, the names of its columns first; what a column lacks stays empty."""
    return table.fillna("").to_string().splitlines() if len(table) else []
