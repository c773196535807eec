"""evaluation.json as tables of text."""

import pandas as pd


def summary(evaluation: dict[str, dict]) -> list[str]:
    """Return evaluation.json as a table in lines of text, one model per line.

    Columns: sampled accuracy with its interval, greedy accuracy, share in format, number of
    questions, and mean length of a completion in tokens. Cells without a measurement are empty.
    If a model was also measured without its quantisation, the next line shows that measurement.
    """
    rows = {}
    for name, entry in evaluation.items():
        rows[name] = _row(entry)
        if whole := entry.get("unquantised"):
            bits = 32 if whole["dtype"] == "torch.float32" else 16
            rows[f"base model, {bits} bits"] = _row(whole)
    return _lines(pd.DataFrame.from_dict(rows, orient="index"))


def samples_summary(evaluation: dict[str, dict]) -> list[str]:
    """Return pass@k and the majority vote as a table in lines of text, one column per model.

    Models without several samples per question are left out; without any such model, the list is
    empty.
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
    """Return sampled accuracy by difficulty as a table in lines of text: one line per level, one
    column per model.

    Models without difficulty levels are left out; without any such model, the list is empty.
    """
    columns = {}
    for name, entry in evaluation.items():
        for level, point in entry.get("by_difficulty", {}).items():
            columns.setdefault("questions", {})[level] = point["n"]
            columns.setdefault(name, {})[level] = _cell(point["accuracy"], point["ci95"])
    return _lines(pd.DataFrame(columns).rename_axis(columns="difficulty"))


def _row(entry: dict) -> dict[str, str | int]:
    """Return the cells of `summary` for one entry of evaluation.json."""
    low, high = entry["ci95"]
    return {
        # notebook 00 measures greedy accuracy (temperature 0) only
        "sampled": "" if entry.get("temperature") == 0 else f"{entry['accuracy']:.1%}",
        "95% interval": f"{low:.1%} to {high:.1%}",
        "greedy": f"{entry['greedy']['accuracy']:.1%}" if "greedy" in entry else "",
        "in format": f"{entry['in_format']:.1%}",
        "questions": entry["n"],
        "tokens": f"{entry['mean_length']:.1f}" if "mean_length" in entry else "",
    }


def _cell(value: float, ci95: list[float]) -> str:
    return f"{value:.1%} ({100 * ci95[0]:.1f} to {100 * ci95[1]:.1f})"


def _lines(table: pd.DataFrame) -> list[str]:
    """Return a table as lines of text, starting with the column names; missing values are blank."""
    return table.fillna("").to_string().splitlines() if len(table) else []
