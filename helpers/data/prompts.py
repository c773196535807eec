"""The prompt of a question as chat messages, with worked examples before the question."""

from collections.abc import Sequence
from pathlib import Path

from helpers.data.files import file_rows
from helpers.printing import shorten


def chat_prompt(system: str, question: str, turns: Sequence[dict] = ()) -> list[dict]:
    """Return a system message (unless it is empty), the turns of worked examples and the question.

    >>> chat_prompt("Add.", "1 + 1?")
    [{'role': 'system', 'content': 'Add.'}, {'role': 'user', 'content': '1 + 1?'}]
    """
    messages = [*turns, {"role": "user", "content": question}]
    return [{"role": "system", "content": system}, *messages] if system else messages


def example_turns(few_shot: list[dict] | str | None) -> list[dict]:
    """Return worked examples as chat turns: a user's question, then the assistant's completion.

    few_shot: a list of {"question": …, "completion": …}, or the path of a file of such rows. The
        completion is the text that the model should write, tags included.

    Raise ValueError if a row lacks one of the texts, or if a file has no rows.

    >>> example_turns([{"question": "What is 1 + 1?", "completion": "<answer>2</answer>"}])[1]
    {'role': 'assistant', 'content': '<answer>2</answer>'}
    """
    rows = few_shot or []
    where = "the list"
    if isinstance(few_shot, str):
        where = few_shot
        rows = list(file_rows(Path(few_shot), ("question", "completion")))
        if not rows:
            raise ValueError(f"{few_shot}: the file has no worked examples.")
    turns = []
    for number, row in enumerate(rows, 1):
        texts = [row.get("question"), row.get("completion")] if isinstance(row, dict) else [None]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(
                f"{where}: a worked example is a question and a completion, both texts that are "
                'not blank: {"question": "…", "completion": "…"}. This one is not: row '
                f"{number}: {shorten(row)}"
            )
        turns += [
            {"role": "user", "content": row["question"].strip()},
            {"role": "assistant", "content": row["completion"].strip()},
        ]
    return turns
