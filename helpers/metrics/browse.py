"""Looking through the completions of a training: menus where a kernel runs, and a page that folds
where none does.
"""

from __future__ import annotations

import html

import pandas as pd

from helpers.environment import interactive


def completions(table: pd.DataFrame, rewards: list[str], steps: int = 5, groups: int = 2):
    """What the policy wrote, with question, gold answer and each reward, to be displayed as the
    last line of a cell.

    table: `completions.parquet` of a run. In Jupyter, two menus choose any step and question;
    elsewhere (a page on the web, a batch run) `steps` steps from first to last can be unfolded,
    with `groups` questions each.
    """
    if interactive():
        return _menus(table, rewards)
    from IPython.display import HTML

    known = sorted(table["step"].unique())
    some = sorted({known[round(i * (len(known) - 1) / max(1, steps - 1))] for i in range(steps)})
    return HTML(
        "".join(_folded(table[table["step"] == step], step, rewards, groups) for step in some)
    )


def _menus(table: pd.DataFrame, rewards: list[str]):
    import ipywidgets

    step = ipywidgets.SelectionSlider(
        options=sorted(map(int, table["step"].unique())), description="step"
    )
    question = ipywidgets.Dropdown(description="question", layout={"width": "70%"})
    shown = ipywidgets.HTML()
    shown.add_class("jp-RenderedHTMLCommon")  # JupyterLab's look of a table

    def list_questions(*_) -> None:
        question.options = list(dict.fromkeys(table.loc[table["step"] == step.value, "question"]))
        question.index = 0
        show()

    def show(*_) -> None:
        rows = table[(table["step"] == step.value) & (table["question"] == question.value)]
        shown.value = "" if rows.empty else _group(rows, rewards)

    step.observe(list_questions, "value")
    question.observe(show, "value")
    list_questions()
    return ipywidgets.VBox([step, question, shown])


def _folded(rows: pd.DataFrame, step: int, rewards: list[str], groups: int) -> str:
    means = ", ".join(f"{name} {rows[name].mean():.2f}" for name in rewards)
    some = list(rows.groupby("question", sort=False))[:groups]
    shown = "".join(_group(group, rewards) for _, group in some)
    return f"<details><summary>{html.escape(f'step {step}: {means}')}</summary>{shown}</details>"


def _group(rows: pd.DataFrame, rewards: list[str]) -> str:
    """The completions of one question as an HTML table; all of it escaped, for a completion may
    hold any text.
    """
    # A long name may break behind each underscore: in a narrow window the table then needs no
    # scrolling.
    names = [html.escape(name).replace("_", "_<wbr>") for name in ("completion", *rewards)]
    body = ""
    for _, row in rows.iterrows():
        text = html.escape(str(row["completion"]))
        scores = ["" if pd.isna(row[name]) else f"{row[name]:.2f}" for name in rewards]
        body += f"<tr><td style='text-align:left;white-space:pre-wrap'>{text}</td>"
        body += "".join(f"<td>{score}</td>" for score in scores) + "</tr>"
    head = "".join(f"<th>{name}</th>" for name in names)
    question, answer = (html.escape(str(rows[name].iloc[0])) for name in ("question", "answer"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p><b>{question}</b> → {answer}</p>{table}"
