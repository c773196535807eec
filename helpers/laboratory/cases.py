"""The two kinds of completions that `measures.Lab` reads from files.

- Cases: completions whose correct score is known. `load_cases` and `suite_cases` read them, and
  `differences` and `style_cases` show which scores are not the expected ones.
- Groups that a policy has sampled: `stored_groups` reads them, such as those of an earlier run.
"""

import html
import re
from pathlib import Path

import pandas as pd

from helpers.data.files import Broken, file_rows
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

CASES = Path(__file__).with_name("cases.jsonl")
TOLERANCE = 1e-3  # a score this close to the expected one is equal to it


def load_cases(path: str | Path) -> list[dict]:
    """Return the cases of a JSON-lines file, as `Lab.cases` describes them.

    Raise ValueError, with the number of the line's case, if a line is not a case.
    """
    file = Path(path)
    cases = {}
    for number, case in enumerate(file_rows(file), start=1):
        has_both = isinstance(case, dict) and "name" in case and "completion" in case
        if not has_both or case["name"] in cases:
            raise ValueError(
                f"{file.name}, case {number} is not a valid case. It needs the texts `name`, "
                "which must be unique, and `completion`, and may have scores of rewards in "
                f'`expected`, such as {{"correctness_reward": 1}}; it is {case!r:.100}.'
            )
        cases[case["name"]] = {"expected": {}} | case
    return list(cases.values())


def suite_cases(tags: TagFormat) -> list[dict]:
    """Return the suite's own cases, written with these tags.

    If the prompt opens the reasoning, the cases lose their opening tag, and those that do not begin
    with it are left out.
    """
    # 1. The file has the tags of THINK_ANSWER. Replace them in one pass: if your tags are the same
    # two names exchanged, a second pass would replace what the first has written.
    cases = load_cases(CASES)
    your_tags = dict(zip(THINK_ANSWER.tags, tags.tags, strict=True))
    any_tag = "|".join(your_tags)
    for case in cases:
        case["completion"] = re.sub(
            any_tag, lambda match: your_tags[match.group()], case["completion"]
        )
    if not tags.opened:
        return cases

    # 2. Remove the opening tag, which is in the prompt.
    opening = tags.tags[0]
    cases = [case for case in cases if case["completion"].startswith(opening)]
    for case in cases:
        case["completion"] = case["completion"].removeprefix(opening)
        # the expected share was of four tags, and three are left
        if case["expected"].get("incremental_format_reward") not in (0, 1):
            case["expected"].pop("incremental_format_reward", None)
    return cases


def differences(cases: pd.DataFrame) -> pd.DataFrame:
    """Return the scores that are not the expected ones: rows of case, reward, expected, score."""
    rows = []
    for column in cases.filter(regex="^expected "):
        reward = column.removeprefix("expected ")
        for name, expected, score in zip(cases.index, cases[column], cases[reward], strict=True):
            if pd.isna(expected):
                continue
            is_equal = abs(score - expected) <= TOLERANCE  # False for a missing score (nan)
            if not is_equal:
                rows.append((name, reward, expected, score))
    return pd.DataFrame(rows, columns=["case", "reward", "expected", "score"])


def style_cases(cases: pd.DataFrame):
    """Return the cases as a pandas Styler. A score that is not the expected one is red, and the
    expected one is beside it.
    """
    rewards = [column for column in cases.columns if f"expected {column}" in cases]
    # pandas does not escape the names, which come from a user's file
    cases = cases.rename(index=html.escape)
    texts = cases[[*rewards, "total"]].map(
        lambda score: f"{score:.3f}" if pd.notna(score) else "None"
    )
    styles = pd.DataFrame("", index=texts.index, columns=texts.columns)
    for row in differences(cases).itertuples():
        texts.loc[row.case, row.reward] += f" (not {row.expected:g})"
        styles.loc[row.case, row.reward] = "color: white; background-color: #C0392B"
    return texts.style.set_uuid("cases").apply(lambda _: styles, axis=None)


def stored_groups(
    stored: pd.DataFrame | str | Path,
    data: pd.DataFrame | None = None,
    columns: dict | None = None,
) -> tuple[pd.DataFrame, list[list[str]]]:
    """Return the rows and groups that `Lab.signal` needs, from a table of stored completions or a
    .parquet, .csv or .jsonl file of them.

    The columns are `question` or TRL's `prompt`, `completion`, whatever the rewards need, such as
    `answer`, and optionally `step`. The completions of one question at one step are a group, as in
    the `completions.parquet` of a run. Raise ValueError if a column is missing, or if no group has
    two completions.

    data: rows with different questions. A row of completions takes the columns it lacks from the
        row of its question. Raise ValueError if it lacks `answer` and its question is not there.
    columns: other names of the columns, as for `load_task`.
    """
    # 1. Read the table. Its name is for messages.
    is_table = isinstance(stored, pd.DataFrame)
    name = "this table" if is_table else stored
    table = stored if is_table else _stored_table(stored)
    questions = [] if data is None else list(data["question"])
    table = _with_usual_columns(table, columns or {}, questions)
    for column in ("question", "completion"):
        if column not in table:
            raise ValueError(
                f"{name}: stored completions need the columns question, answer and completion; "
                f"{column!r} is missing. It has: {', '.join(map(str, table))}."
            )

    texts = [_whole(completion_text(each)) for each in table["completion"]]
    table = table.assign(completion=texts)

    # 2. Form groups: several completions of one question, at one step if steps are known.
    keys = [key for key in ("step", "question") if key in table]
    groups = [group for _, group in table.groupby(keys, sort=False) if len(group) > 1]
    if not groups:
        raise ValueError(
            f"{name}: none of the {len(table)} stored completions share a question: a group needs "
            "at least two."
        )
    completions = [group["completion"].tolist() for group in groups]

    # 3. Make a row per group: all columns of its first completion but the completion. Columns that
    # are missing come from the row of the data with the same question.
    rows = pd.DataFrame([group.iloc[0] for group in groups]).drop(columns="completion")
    rows = rows.reset_index(drop=True)
    if data is None:
        return rows, completions
    unknown = rows[~rows["question"].isin(data["question"])]
    if "answer" not in rows and len(unknown):
        raise ValueError(
            f"{name} has no column answer, and {len(unknown)} of its {len(rows)} questions are "
            f"not in the data, such as {unknown['question'].iloc[0]!r:.200}. Add the column."
        )
    missing = data.columns.difference(rows.columns)
    return rows.join(data.set_index("question")[missing], on="question"), completions


def _stored_table(file: str | Path) -> pd.DataFrame:
    """Return the rows of a file of stored completions. Raise ValueError if one cannot be read."""
    rows = []
    for row in file_rows(Path(file)):
        if isinstance(row, Broken):
            raise ValueError(f"{file}: {row.where} cannot be read: {row.reason}.")
        # JSON can hold half a surrogate pair, which pandas refuses
        rows.append({name: _whole(value) for name, value in row.items()})
    return pd.DataFrame(rows)


def _with_usual_columns(table: pd.DataFrame, columns: dict, questions: list[str]) -> pd.DataFrame:
    """Return a table of completions with the usual names of its columns. If it has prompts instead
    of questions, they are searched for these questions.

    columns: by usual name, the name in the table. It may be meant for the data alone: a run's
        completions have the usual names, and a second `question` must not join the first. Several
        names for one column, which `load_task` joins, do not count here.
    """
    new_names = {}
    for usual, column in columns.items():
        if isinstance(column, str) and usual not in table:
            new_names[column] = usual
    table = table.rename(columns=new_names)
    if "question" in table or "prompt" not in table:
        return table
    return table.assign(question=[_question_in(prompt, questions) for prompt in table["prompt"]])


def _question_in(prompt: object, known: list[str]) -> str:
    """Return the known question that is in a prompt, or else the text of the prompt.

    If several are in it, such as those of worked examples, return the one whose last occurrence
    ends last; if some end together, the longest, which contains the others.

    prompt: a text, such as TRL logs after the chat template, or messages, of which the last counts.
    """
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]

    def last_end(question: str) -> tuple[int, int]:
        """Return where a question ends in the text, and its length to decide between equal ends."""
        return text.rfind(question) + len(question), len(question)

    found = [question for question in known if question in text]
    return max(found, key=last_end, default=text)


def _whole(value: object) -> object:
    """Return a value, with "?" for each lone surrogate if it is a text."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="replace").decode()
