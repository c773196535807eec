"""The conditions sighted, blind and swapped: which picture each row gets, and the scores."""

import pandas as pd
import pytest

from helpers.results import looking

ROWS = pd.DataFrame(
    {
        "question": ["a", "b", "a", "a", "c", "b", "d"],
        "answer": ["1", "2", "1", "3", "1", "4", "2"],
        "image": [bytes([number]) for number in range(7)],
    }
)


def test_pictures_are_swapped_between_rows_with_the_same_question():
    given = looking.swapped_places(ROWS)
    assert sorted(given) == list(range(7)) and all(place != at for at, place in enumerate(given))
    questions = ROWS["question"]
    assert all(questions[given[at]] == questions[at] for at in (0, 1, 2, 3, 5))
    assert (given[4], given[6]) == (6, 4), "rows with a unique question swap with each other"


def test_the_blind_floor_is_the_most_frequent_answer_of_each_question():
    train = pd.DataFrame({"question": list("aaabb"), "answer": list("11322")})
    # a: the guess 1 is correct in two of three rows; b: 2, in one of two; c and d: 1, the first of
    # the two most frequent answers, is correct for c only
    assert looking.blind_floor(train, ROWS) == pytest.approx((2 + 1 + 1 + 0) / 7)


def test_an_entry_has_the_accuracy_of_each_condition():
    def answered(answers: str) -> list[str]:
        return [f"<think>.</think><answer>{answer}</answer>" for answer in answers]

    texts = {
        "sighted": answered("1213143"),
        "blind": answered("1111111"),
        "swapped": answered("9999999"),
    }
    entry = looking.score_conditions(texts, ROWS)
    assert entry["accuracy"] == pytest.approx(6 / 7) and entry["in_format"] == 1
    assert entry["blind"]["accuracy"] == pytest.approx(3 / 7)
    assert entry["swapped"]["accuracy"] == 0 and entry["swapped"]["n"] == 7
    # of the three rows with question a, one gets a picture with the same answer
    assert entry["same_answer"] == pytest.approx(1 / 7)
    told = "\n".join(looking.summary("trained", entry))
    assert "85.7%" in told and "14.3%" in told
    del texts["swapped"]
    assert "swapped" not in looking.score_conditions(texts, ROWS)
