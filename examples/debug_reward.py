"""Print what a reward receives: some completions of each batch, their answers, the columns of their
rows, and their scores.

In notebook 02 or 03, while you write a reward:

    reward_functions = [debug(my_reward), partial(correctness_reward, tags=fmt)]
"""

from functools import wraps

from helpers.judging.answers.kinds import compare_answers
from helpers.judging.answers.numbers import parse_number
from helpers.judging.answers.survey import kind_of_row
from helpers.rewards.common import reward_name
from helpers.tags import THINK_ANSWER, TagFormat, completion_text


def debug(reward, count: int = 2, tags: TagFormat = THINK_ANSWER):
    """Return a reward with the same name and scores that also prints the first `count` completions
    of each call, and why their answers are correct or wrong.
    """

    @wraps(reward, assigned=(), updated=())
    def debugged(completions, **columns):
        scores = reward(completions=completions, **columns)
        for at, completion in enumerate(completions[:count]):
            text = completion_text(completion)
            row = {}
            for name, values in columns.items():
                if isinstance(values, list) and len(values) == len(completions):
                    row[name] = values[at]
            print(f"--- {debugged.__name__} gave {scores[at]}")
            print(f"it sees {type(completion).__name__}, with the text {text!r:.300}")
            for name, value in row.items():
                print(f"column {name}: {value!r:.100}")
            explain(text, row, tags)
        return scores

    debugged.__name__ = reward_name(reward)
    return debugged


def explain(text: str, row: dict, tags: TagFormat) -> None:
    """Print how the answer of a completion is found and judged, if its row has an answer."""
    blocks = tags.answer_blocks(text)
    print(f"complete answer blocks outside the reasoning: {blocks}")
    if not blocks or not row.get("answer"):
        return
    answer = blocks[-1]
    gold = str(row["answer"])
    kind = kind_of_row(row | {"answer": gold})
    print(f"judged as {kind}: {answer!r} beside {gold!r}")
    if kind == "number":
        print(f"as numbers: {parse_number(answer)} beside {parse_number(gold)}")
    verdict = compare_answers(answer, gold, str(row.get("question") or ""), kind).right
    print(f"the same: {'math-verify decides' if verdict is None else verdict}")
