"""Stored completions and cases of somebody else's making: what is wrong with them is said."""

import pandas as pd
import pytest

from helpers.rewards import correctness_reward, format_reward
from helpers.rewards.answers import symbolic
from helpers.rewards.lab import Lab, stored_groups

ROW = {"question": "1 + 1?", "answer": "2", "completion": "<answer>2</answer>"}


@pytest.mark.parametrize("bad", [None, float("nan"), 3])
def test_a_completion_that_is_no_text_is_named(bad):
    with pytest.raises(ValueError, match="`completion` in row 1 is"):
        stored_groups(pd.DataFrame([ROW, ROW | {"completion": bad}]))


def test_chat_messages_are_read():
    chat = [{"role": "assistant", "content": "<answer>2</answer>"}]
    _, (group,) = stored_groups(pd.DataFrame([ROW, ROW | {"completion": chat}]))
    assert group == ["<answer>2</answer>"] * 2


def test_a_question_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match="`question` must be a text"):
        stored_groups(
            pd.DataFrame([ROW | {"question": [{"role": "user", "content": "1 + 1?"}]}] * 2)
        )


@pytest.mark.filterwarnings("ignore:.*have no answer")
def test_rows_without_answers_are_no_go_for_that_reason():
    lab = Lab([correctness_reward, format_reward], [1.0, 0.5])
    lab.signal(
        *stored_groups(
            pd.DataFrame([ROW | {"answer": None}, ROW | {"answer": None, "completion": "2"}])
        )
    )
    assert "`correctness_reward` judged none of the completions" in str(lab.verdict())


@pytest.mark.parametrize("weight", [None, "x", True])
def test_a_weight_that_is_no_number_is_refused(weight):
    with pytest.raises(ValueError, match="is not a number"):
        Lab([correctness_reward], [weight])


def test_a_case_for_an_unknown_reward_names_the_case(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"name": "mine", "completion": "", "expected": {"corectness_reward": 1}}')
    with pytest.raises(
        ValueError,
        match=r"case 'mine' expects a score of 'corectness_reward', .* mean 'correctness_reward'",
    ):
        Lab([correctness_reward], [1.0]).cases(path)


def test_speed_is_that_of_judging_not_of_remembering():
    lab = Lab([correctness_reward], [1.0])
    rows = pd.DataFrame([{"question": str(n), "answer": f"x^2+{n}x+1"} for n in range(20)])
    groups = [[f"<answer>1+{n}x+x^2</answer>", f"<answer>(x+{n})(x+1)</answer>"] for n in range(20)]
    assert lab.signal(rows, groups)["rewards"]["correctness_reward"]["mean"] > 0
    symbolic.equal([("an older", "question")])
    lab.speed()
    assert len(symbolic._memory) == 40, (
        "what was remembered is forgotten, and the forty judged anew"
    )
