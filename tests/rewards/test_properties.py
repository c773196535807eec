"""For each kind of answer: another spelling never turns right into wrong, another answer never
wrong into right.

ANSWER_EXAMPLES sets how many of each are tried (10,000 were, by hand); they are the same in every
run.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from spellings import OTHERS, SPELLINGS

from helpers.rewards.answers import kind_of, same_answer

tried = settings(
    max_examples=int(os.environ.get("ANSWER_EXAMPLES", "150")),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("kind", SPELLINGS)
def test_another_spelling_stays_right(kind):
    @tried
    @given(SPELLINGS[kind])
    def check(case):
        gold, spelt, _ = case
        assert kind_of(gold) == kind
        assert same_answer(spelt, gold)

    check()


@pytest.mark.parametrize("kind", OTHERS)
def test_another_answer_stays_wrong(kind):
    @tried
    @given(OTHERS[kind])
    def check(case):
        gold, other = case
        assert not same_answer(other, gold)

    check()
