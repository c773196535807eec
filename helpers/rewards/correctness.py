"""The reward for a right answer.

What is judged is the last complete answer block outside the reasoning.
"""

import warnings
from itertools import combinations

from helpers.rewards.answers import Comparison
from helpers.rewards.answers.kinds import (
    DECLARED_KINDS,
    are_right,
    check_kind,
    compare_answers,
)
from helpers.rewards.answers.texts import LONGEST_ANSWER
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

_MOST_BLOCKS = 8  # more than this, or long ones, are no answer, and comparing every two would cost


def correctness_reward(
    completions: list,
    answer: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    question: list | None = None,
    kind: str | list | None = None,
    **columns,
) -> list[float | None]:
    """1.0 where the judged answer means what the row's answer means, else 0.0; None where the row
    has no answer.

    Blocks that disagree with one another score 0: naming two answers is hedging. `completions` are
    strings or chat messages; `answer`, and `question` where there is one, hold a text per
    completion.

    kind: how answers are judged, one of number, mathematics, set, choice, exact, text; or a column
        with a kind for each row. Without one, a row's answer is a number where it parses as one,
        mathematics where it clearly is, and otherwise text. ValueError for another name; what a
        data set's own column of that name says is passed over, with one warning.

    >>> correctness_reward(["<think>2 + 2</think><answer>$4.00</answer>", "4"], answer=["4", "4"])
    [1.0, 0.0]
    >>> correctness_reward(["<answer>B</answer>"], answer=["(b)"], kind="choice")
    [1.0]
    """
    rows = len(completions)

    # 1. The row's answer as a text, "" where there is none. gold != gold: a float nan, which is how
    # pandas spells a missing value.
    golds = []
    for gold in [None] * rows if answer is None else answer:
        golds.append("" if gold is None or gold != gold else str(gold).strip())
    missing = golds.count("")
    if missing:
        warnings.warn(
            f"correctness_reward: {missing} of {rows} rows have no answer; they score None.",
            stacklevel=2,
        )

    # 2. The kind of each row, None where nothing says it.
    if kind is None or isinstance(kind, str):
        kinds = [kind and check_kind(kind)] * rows
    else:
        kinds = [name if isinstance(name, str) and name else None for name in kind]
        foreign = set(kinds) - {None, *DECLARED_KINDS}
        if foreign:
            warnings.warn(
                f"correctness_reward: the column `kind` holds {min(foreign)!r}, which is not a "
                "kind of answer; these rows are judged as if none were given. Known: "
                f"{', '.join(DECLARED_KINDS)}.",
                stacklevel=2,
            )
            kinds = [None if name in foreign else name for name in kinds]

    # 3. What can be told at once: nearly all.
    comparisons = []
    questions = question or [""] * rows
    for completion, gold, text, name in zip(completions, golds, questions, kinds, strict=True):
        given = answer_of(completion, tags) if gold else None
        if given:
            text = text if isinstance(text, str) else ""
            comparisons.append(compare_answers(given, gold, text, name))
        else:
            comparisons.append(Comparison(False))

    # 4. The rest in one batch, by math-verify.
    verdicts = are_right(comparisons)
    return [float(right) if gold else None for right, gold in zip(verdicts, golds, strict=True)]


def answer_of(completion: object, tags: TagFormat = THINK_ANSWER) -> str | None:
    """Return the text that `correctness_reward` judges, the last complete answer block; None where
    there is none, or where two blocks are not the same at once. What math-verify alone could tell
    to be the same, such as `x/2` and `\\frac{x}{2}`, is not worked out: it is two answers.
    """
    blocks = tags.answer_blocks(completion_text(completion))
    if not blocks or len(blocks) > _MOST_BLOCKS:
        return None
    distinct = list(dict.fromkeys(blocks))
    if len(distinct) > 1 and sum(map(len, distinct)) > LONGEST_ANSWER:
        return None
    agree = all(compare_answers(one, other).right for one, other in combinations(distinct, 2))
    return blocks[-1] if agree else None
