"""The reward to look through."""

import pytest

from helpers.rewards import debug_reward
from helpers.tags import THINK_ANSWER

GOOD = THINK_ANSWER.render("2 + 2", "4")


@pytest.mark.parametrize(("samples", "shown"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_first_completions_are_printed_and_all_earn_1(capsys, samples, shown):
    texts = [GOOD, [{"role": "assistant", "content": "five"}], "\ud800"]
    prompts = [[{"role": "system", "content": "no"}, {"role": "user", "content": "2 \ud800"}]] * 3
    assert debug_reward(texts, prompts, ["4", "5", "6"], samples) == [1.0] * 3
    blocks = [
        f"--- completion {n} of 3, answer {gold!r}\n> 2 ?\n{text}\n"
        for n, gold, text in ((1, "4", GOOD), (2, "5", "five"), (3, "6", "?"))
    ]
    assert capsys.readouterr().out == "".join(blocks[:shown])
