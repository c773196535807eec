"""Looking through completions: what folds on a page without a kernel, and that no completion can
break the page.
"""

import itertools

import pandas as pd
import pytest

from helpers.metrics import browse

REWARDS = ["correctness_reward", "format_reward"]


@pytest.fixture
def table() -> pd.DataFrame:
    each = itertools.product(range(1, 31), ("1 + 1?", "2 + 2?", "3 + 3?"), (0.0, 1.0))
    rows = pd.DataFrame(each, columns=["step", "question", "correctness_reward"])
    completion = "<script>alert(" + rows["step"].astype(str) + ")</script>"
    abstaining = rows["correctness_reward"].map({0.0: 0.25, 1.0: None})
    return rows.assign(answer="gold", completion=completion, format_reward=abstaining)


def test_without_a_kernel_steps_from_first_to_last_unfold(table):
    page = browse.completions(table, REWARDS, steps=4, groups=2).data
    assert page.count("<details>") == 4 and "step 1:" in page and "step 30:" in page
    assert "correctness_reward 0.50" in page, "the mean of the step"
    assert page.count("1 + 1?</b> → gold") == 4 and "3 + 3?</b>" not in page, "two questions a step"
    assert "<td>1.00</td>" in page and "<td>0.25</td>" in page and "<td></td>" in page, (
        "each reward, blank where it abstained"
    )


def test_fewer_steps_than_asked_for_are_each_shown_once_and_a_completion_is_only_text(table):
    page = browse.completions(table[table["step"] <= 2], REWARDS, steps=5).data
    assert page.count("<details>") == 2
    assert "<script>" not in page and "&lt;script&gt;alert(1)" in page


def test_in_jupyter_two_menus_choose_the_step_and_the_question(table, monkeypatch):
    monkeypatch.setattr(browse, "interactive", lambda: True)
    step, question, _ = browse.completions(table, REWARDS).children
    assert question.options == ("1 + 1?", "2 + 2?", "3 + 3?") and step.value == 1
    step.value = 30
    assert step.value == 30 and question.value == "1 + 1?"
