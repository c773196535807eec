"""Reward a correct answer, judged on the last complete answer block outside the reasoning."""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations

from helpers.judging.answers import DECLARED_KINDS, Comparison, check_kind
from helpers.judging.answers.kinds import are_right, compare_answers
from helpers.judging.answers.texts import LONGEST_ANSWER
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

_MOST_BLOCKS = 8  # with more answer blocks a completion is wrong, because every two are compared


def correctness_reward(
    completions: list,
    answer: list | None = None,
    tags: TagFormat = THINK_ANSWER,
    question: list | None = None,
    kind: str | list | None = None,
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """1.0 if the answer means the same as the row's answer, else 0.0; None for a row without one.

    Answer blocks that disagree score 0, because naming two answers is hedging.

    completions: strings or chat messages.
    answer, question: columns with one text per completion. An answer that only respells an
        expression of the question is wrong.
    kind: how answers are compared (number, mathematics, set, choice, exact, json or text), or a
        column with a kind per row. By default, the row's answer decides: number if it parses as
        one, mathematics if it clearly is an expression, otherwise text. Another name raises
        ValueError; in a column it is ignored with a warning, because the column may be the
        dataset's own.
    log_metric: under TRL, logs the share of math-verify's judgements that ran out of time, and so
        earn nothing, as `correctness_reward/out_of_time`.

    >>> correctness_reward(["<think>2 + 2</think><answer>$4.00</answer>", "4"], answer=["4", "4"])
    [1.0, 0.0]
    >>> correctness_reward(["<answer>B</answer>"], answer=["(b)"], kind="choice")
    [1.0]
    """
    rows = len(completions)

    # 1. Turn each row's answer into text; "" if it is missing. pandas writes a missing value as a
    # float nan, which differs from itself.
    golds = []
    for gold in [None] * rows if answer is None else answer:
        golds.append("" if gold is None or gold != gold else str(gold).strip())
    if missing := golds.count(""):
        warnings.warn(
            f"correctness_reward: {missing} of {rows} rows have no answer; they score None.",
            stacklevel=2,
        )

    # 2. Find the declared kind of each row; None if there is none.
    if kind is None or isinstance(kind, str):
        kinds = [check_kind(kind) if kind else None] * rows
    else:
        kinds = [value if isinstance(value, str) and value else None for value in kind]
        foreign = set(kinds) - {None, *DECLARED_KINDS}
        if foreign:
            warnings.warn(
                f"correctness_reward: the column `kind` holds {min(foreign)!r}, which is not a "
                "kind of answer; these rows are judged as if none were given. Known: "
                f"{', '.join(DECLARED_KINDS)}.",
                stacklevel=2,
            )
            kinds = [None if value in foreign else value for value in kinds]

    # 3. Turn each row's question into text; "" if it is missing.
    questions = [text if isinstance(text, str) else "" for text in question or [None] * rows]

    # 4. Compare the answers, which settles most of them. A completion without an answer is wrong.
    comparisons = []
    for completion, gold, row_question, row_kind in zip(
        completions, golds, questions, kinds, strict=True
    ):
        comparison = Comparison(False)
        given = answer_of(completion, tags) if gold else None
        if given:
            comparison = compare_answers(given, gold, row_question, row_kind)
        comparisons.append(comparison)

    # 5. Let math-verify judge the others, in one batch.
    log = log_metric and partial(log_metric, "correctness_reward/out_of_time")
    verdicts = are_right(comparisons, log)
    return [float(right) if gold else None for right, gold in zip(verdicts, golds, strict=True)]


def answer_of(completion: object, tags: TagFormat = THINK_ANSWER) -> str | None:
    """Return the answer that `correctness_reward` judges: the last complete answer block.

    Returns None if there is no block, or if two blocks differ. Blocks that only math-verify could
    prove equal, such as `x/2` and `\\frac{x}{2}`, count as different.

    >>> answer_of("<answer>4</answer> or <answer>4.0</answer>")
    '4.0'
    """
    blocks = tags.answer_blocks(completion_text(completion))
    if not blocks or len(blocks) > _MOST_BLOCKS:
        return None
    distinct = list(dict.fromkeys(blocks))
    if len(distinct) > 1 and sum(map(len, distinct)) > LONGEST_ANSWER:
        return None
    agree = all(compare_answers(one, other).right for one, other in combinations(distinct, 2))
    return blocks[-1] if agree else None
