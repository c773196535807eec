"""checked_scores: whatever a reward does, the scores that hold are kept and the rest
becomes a Fault.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers.rewards import format_reward
from helpers.rewards.faults import checked_scores

RIGHT = "<think>2</think><answer>4</answer>"


def gives(returned):
    """A reward that returns this, whatever it is asked."""

    def some_reward(completions, **columns):
        return returned

    return some_reward


# --- What holds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        [1.0, 0.0],
        [1, 0],
        (1.0, 0.0),
        [True, False],
        [np.float32(1), np.int64(0)],
        [np.bool_(True), np.bool_(False)],
        [Fraction(1), Fraction(0)],
        np.array([1.0, 0.0]),
        torch.tensor([1.0, 0.0]),
        torch.tensor([1.0, 0.0], dtype=torch.bfloat16),
        [torch.tensor(1.0), torch.tensor([0.0])],
        iter([1.0, 0.0]),
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_numbers_of_any_kind_are_scores(returned):
    scores, faults = checked_scores(gives(returned), ["a", "b"], {})
    assert scores == [1.0, 0.0] and faults == []
    assert [type(score) for score in scores] == [float, float]


def test_none_is_a_score_and_no_completions_are_no_faults():
    assert checked_scores(gives([None, 0.5]), ["a", "b"], {}) == ([None, 0.5], [])
    assert checked_scores(format_reward, [], {}) == ([], [])


# --- What does not --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (10**400, "1000"),
        ("1.0", "'1.0'"),
        (b"1", "b'1'"),
        ([1.0], "[1.0]"),
        ({"score": 1.0}, "{'score': 1.0}"),
        (1j, "1j"),
        (np.float32("nan"), "nan"),
        (torch.tensor(math.nan), "tensor(nan)"),
        (torch.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    ],
    ids=repr,
)
def test_a_value_that_is_no_finite_number_is_a_fault(value, shown):
    scores, (fault,) = checked_scores(gives([1.0, value]), ["a", "b"], {})
    assert scores == [1.0, None]
    assert (fault.reward, fault.position, fault.completion) == ("some_reward", 1, "b")
    assert shown in str(fault)


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (None, "None"),
        (0.5, "0.5"),
        (np.array(0.5), "array(0.5)"),
        (torch.tensor(0.5), "tensor(0.5"),
        ("10", "'10'"),
        (b"10", "b'10'"),
        ({"a": 1.0, "b": 0.0}, "{'a': 1.0"),
        ([], "0 values"),
        ([1.0, 0.0, 1.0], "3 values"),
        (torch.ones(3), "3 values"),
    ],
    ids=repr,
)
def test_what_is_not_one_value_per_completion_is_a_fault_of_each(returned, shown):
    scores, faults = checked_scores(gives(returned), ["a", "b"], {})
    assert scores == [None, None]
    assert [(fault.reward, fault.position, fault.completion) for fault in faults] == [
        ("some_reward", 0, "a"),
        ("some_reward", 1, "b"),
    ]
    assert all("some_reward" in str(fault) and shown in str(fault) for fault in faults)


def first_word(completions, **columns):
    return [float(text.split()[0]) for text in completions]


def first_word_lazily(completions, **columns):
    for text in completions:
        yield float(text.split()[0])


@pytest.mark.parametrize("reward", [first_word, first_word_lazily], ids=["list", "generator"])
def test_a_completion_that_makes_it_raise_costs_only_itself(reward):
    scores, faults = checked_scores(reward, ["1 a", "", "0.5", "x", "nan"], {})
    assert scores == [1.0, None, 0.5, None, None]
    assert [(fault.position, fault.completion) for fault in faults] == [
        (1, ""),
        (3, "x"),
        (4, "nan"),
    ]
    assert "IndexError: list index out of range" in str(faults[0])
    assert "ValueError: could not convert string to float: 'x'" in str(faults[1])
    assert "no finite number" in str(faults[2])


def test_what_raises_on_the_batch_but_not_alone_is_a_fault_of_each():
    def some_reward(completions, **columns):
        (only,) = completions
        return [float(len(only))]

    scores, faults = checked_scores(some_reward, ["a", "b", "c"], {})
    assert scores == [None] * 3
    assert [(fault.position, fault.completion) for fault in faults] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]
    assert all("raised ValueError: too many values to unpack" in str(fault) for fault in faults)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_stop_is_no_fault(error):
    def some_reward(completions, **columns):
        raise error

    with pytest.raises(error):
        checked_scores(some_reward, ["a"], {})


# --- Columns --------------------------------------------------------------------------------------


def test_each_completion_keeps_its_columns_when_it_is_scored_alone():
    seen = []

    def some_reward(completions, answer, state, sources, **columns):
        if len(completions) > 1:
            raise RuntimeError("one at a time")
        seen.append((completions, answer, state, sources, columns))
        if completions == ["c"]:
            raise ValueError("not this one")
        return [1.0]

    columns = {
        "answer": ["1", "2", "3"],
        "state": {"step": 3},
        "sources": ("x", "y", "z"),
        "label": "abc",
        "few": [1, 2],
    }
    scores, faults = checked_scores(some_reward, ["a", "b", "c"], columns)
    rest = {"label": "abc", "few": [1, 2]}
    assert scores == [1.0, 1.0, None] and len(faults) == 1
    assert seen == [
        (["a"], ["1"], {"step": 3}, ["x"], rest),
        (["b"], ["2"], {"step": 3}, ["y"], rest),
        (["c"], ["3"], {"step": 3}, ["z"], rest),
    ]


def test_what_logs_a_value_a_batch_is_called_for_the_batch_only():
    logged = []

    def some_reward(completions, log_extra, log_metric, **columns):
        log_extra("length", [len(text) for text in completions])
        log_metric("longest", max(map(len, completions)))
        return [1 / len(text) for text in completions]

    columns = {
        "log_extra": lambda *row: logged.append(row),
        "log_metric": lambda *row: logged.append(row),
    }
    scores, (fault,) = checked_scores(some_reward, ["ab", ""], columns)
    assert scores == [0.5, None] and "ZeroDivisionError" in str(fault)
    assert logged == [("length", [2, 0]), ("longest", 2)]


# --- The fault itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("completion", [RIGHT, [{"role": "assistant", "content": RIGHT}]])
def test_a_fault_holds_the_text_of_the_completion(completion):
    _, (fault,) = checked_scores(gives([math.nan]), [completion], {})
    assert fault.completion == RIGHT and repr(RIGHT) in str(fault)


def raises_at_length(completions, **columns):
    raise ValueError("y" * 10_000)


@pytest.mark.parametrize("reward", [gives(["y" * 10_000]), raises_at_length])
def test_a_long_completion_and_a_long_value_or_error_are_cut_in_the_message(reward):
    _, (fault,) = checked_scores(reward, ["x" * 10_000], {})
    assert fault.completion == "x" * 10_000
    assert "x" * 200 + "…" in str(fault) and "x" * 201 not in str(fault)
    assert 50 < str(fault).count("y") <= 200


def test_a_fault_is_json_even_with_lone_surrogates():
    def some_reward(completions, **columns):
        raise ValueError("bad \ud800 text")

    _, (fault,) = checked_scores(some_reward, ["a \udfff b"], {})
    row = fault.as_dict()
    assert json.loads(json.dumps(row, ensure_ascii=False).encode()) == row
    assert row == {
        "reward": "some_reward",
        "position": 0,
        "completion": "a \\udfff b",
        "what": "raised ValueError: bad \\ud800 text",
    }
