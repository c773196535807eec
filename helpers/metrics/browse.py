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
        shown.value = _group(rows, rewards)

    step.observe(list_questions, "value")
    question.observe(show, "value")
    list_questions()
    return ipywidgets.VBox([step, question, shown])


def _folded(rows: pd.DataFrame, step: int, rewards: list[str], groups: int) -> str:
    mean = rows[rewards].mean()
    summary = f"step {step}: " + ", ".join(f"{name} {mean[name]:.2f}" for name in rewards)
    some = [
        _group(group, rewards) for _, group in list(rows.groupby("question", sort=False))[:groups]
    ]
    return f"<details><summary>{html.escape(summary)}</summary>{''.join(some)}</details>"


def _group(rows: pd.DataFrame, rewards: list[str]) -> str:
    """The completions of one question as an HTML table; all of it escaped, for a completion may
    hold any text.
    """
    if rows.empty:
        return ""
    first = rows.iloc[0]
    # A long name may break behind each underscore: in a narrow window the table then needs no
    # scrolling.
    head = "".join(
        f"<th>{html.escape(name).replace('_', '_<wbr>')}</th>" for name in ["completion", *rewards]
    )
    body = "".join(
        f"<tr><td style='text-align:left;white-space:pre-wrap'>{html.escape(str(row['completion']))}</td>"
        + "".join(
            f"<td>{'' if pd.isna(row[name]) else f'{row[name]:.2f}'}</td>" for name in rewards
        )
        + "</tr>"
        for _, row in rows.iterrows()
    )
    title = (
        f"<p><b>{html.escape(str(first['question']))}</b> → {html.escape(str(first['answer']))}</p>"
    )
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
