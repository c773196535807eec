"""checked_scores: whatever a reward does, the scores that hold are kept and the rest
becomes a Fault.
"""

import asyncio
import contextlib
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers.rewards import faults as module
from helpers.rewards.faults import LATE, MESSAGES, checked_scores


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
        torch.tensor([[1.0], [0.0]]),
        np.array([[1.0], [0.0]]),
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
    assert checked_scores(gives([]), [], {}) == ([], [])


# --- What does not --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "scores", "shown"),
    [
        # one value that is no finite number
        ([1.0, math.nan], [1.0, None], "nan"),
        ([1.0, math.inf], [1.0, None], "inf"),
        ([1.0, 10**400], [1.0, None], "1000"),
        ([1.0, "1.0"], [1.0, None], "'1.0'"),
        ([1.0, b"1"], [1.0, None], "b'1'"),
        ([1.0, [1.0]], [1.0, None], "[1.0]"),
        ([1.0, {"score": 1.0}], [1.0, None], "{'score': 1.0}"),
        ([1.0, 1j], [1.0, None], "1j"),
        ([1.0, torch.tensor(math.nan)], [1.0, None], "tensor(nan)"),
        ([1.0, torch.tensor([1.0, 2.0])], [1.0, None], "tensor([1., 2.])"),
        # not one value per completion
        (None, [None, None], "None"),
        (0.5, [None, None], "0.5"),
        (torch.tensor(0.5), [None, None], "tensor(0.5"),
        (np.ones((2, 2)), [None, None], "array([1., 1., 1., 1.]), not one"),
        (b"10", [None, None], "b'10'"),
        ({"a": 1.0, "b": 0.0}, [None, None], "{'a': 1.0"),
        ([], [None, None], "[], not one number for each"),
        ([1.0, 0.0, 1.0], [None, None], "[1.0, 0.0, 1.0]"),
    ],
    ids=repr,
)
def test_what_is_not_one_finite_number_per_completion_is_a_fault(returned, scores, shown):
    judged, faults = checked_scores(gives(returned), ["a", "b"], {})
    assert judged == scores
    places = [(fault.position, fault.completion) for fault in faults]
    assert places == [(at, "ab"[at]) for at, score in enumerate(scores) if score is None]
    assert all("some_reward" in str(fault) and shown in str(fault) for fault in faults)


def test_a_completion_that_makes_it_raise_costs_only_itself():
    def first_word(completions, **columns):
        yield from (float(text.split()[0]) for text in completions)

    scores, faults = checked_scores(first_word, ["1 a", "", "0.5", "x", "nan"], {})
    here = f"test_faults.py, line {first_word.__code__.co_firstlineno + 1}"
    assert scores == [1.0, None, 0.5, None, None]
    assert [(fault.position, fault.completion, fault.what) for fault in faults] == [
        (1, "", f"raised IndexError in {here}: list index out of range"),
        (3, "x", f"raised ValueError in {here}: could not convert string to float: 'x'"),
        (4, "nan", "returned nan, which is no finite number,"),
    ]


def test_faults_of_one_origin_share_a_cause_and_no_others_do():
    def shares(completions, **columns):
        scores = []
        for text in completions:
            if text.isdigit():
                scores.append(1 / int(text))
            else:
                scores.append({"a": 1.0, "nan": math.nan, "inf": math.inf}[text])
        return scores

    line = shares.__code__.co_firstlineno
    completions = ["b", "0", "a", "c", "00"]
    divided = f"ZeroDivisionError in test_faults.py, line {line + 4}"
    missing = f"KeyError in test_faults.py, line {line + 6}"
    _, faults = checked_scores(shares, completions, {})
    assert [fault.cause for fault in faults] == [missing, divided, missing, divided]
    _, faults = checked_scores(shares, ["nan", "inf", "a"], {})
    assert [fault.cause for fault in faults] == ["no finite number"] * 2
    _, faults = checked_scores(gives([1.0]), ["a", "b"], {})
    assert [fault.cause for fault in faults] == ["not one number per completion"] * 2


def test_what_raises_on_the_batch_but_not_alone_is_a_fault_of_each():
    def some_reward(completions, **columns):
        (only,) = completions
        return [float(len(only))]

    scores, faults = checked_scores(some_reward, ["a", "b"], {})
    assert scores == [None] * 2 and [fault.position for fault in faults] == [0, 1]
    assert all("too many values to unpack" in str(fault) for fault in faults)


# --- Columns --------------------------------------------------------------------------------------


def test_each_completion_keeps_its_columns_and_logs_nothing_when_it_is_scored_alone():
    seen, logged = [], []

    def some_reward(completions, answer, state, sources, log_extra, log_metric, **columns):
        log_extra("length", [len(text) for text in completions])
        log_metric("longest", max(map(len, completions)))
        if len(completions) > 1:
            raise RuntimeError("one at a time")
        seen.append((completions, answer, state, sources, columns))
        return [1 / (completions != ["c"])]

    few = {"label": "abc", "few": [1, 2]}
    columns = {"answer": ["1", "2", "3"], "state": {"step": 3}, "sources": ("x", "y", "z")} | few
    logs = dict.fromkeys(("log_extra", "log_metric"), lambda *row: logged.append(row))
    scores, (fault,) = checked_scores(some_reward, ["a", "b", "c"], columns | logs)
    assert scores == [1.0, 1.0, None] and "ZeroDivisionError" in str(fault)
    assert logged == [("length", [1, 1, 1]), ("longest", 1)]
    assert seen == [
        (["a"], ["1"], {"step": 3}, ["x"], few),
        (["b"], ["2"], {"step": 3}, ["y"], few),
        (["c"], ["3"], {"step": 3}, ["z"], few),
    ]


# --- The fault itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "long", ["\udfff" * 999, [{"role": "assistant", "content": "\udfff" * 999}]]
)
def test_a_long_completion_and_a_long_error_are_cut_in_the_message_and_can_be_printed(long):
    def raises_at_length(completions, **columns):
        raise ValueError("\ud800\x1b[31m\n\u202e" + "y" * 10_000)

    _, (fault,) = checked_scores(raises_at_length, [long], {})
    assert fault.completion == "\udfff" * 999
    assert "\\udfff" * 200 + "…" in str(fault) and "\\udfff" * 201 not in str(fault)
    assert "\\ud800\\x1b[31m\\n\\u202eyyy" in str(fault) and str(fault).isprintable()
    assert 50 < str(fault).count("y") <= 200


# --- The way out, by the cause --------------------------------------------------------------------


def no_columns(prompts, completions):
    return [1.0] * len(completions)


def other_column(completions, difficulty, **columns):
    return [1.0] * len(completions)


async def runs_a_loop(completions, **columns):
    asyncio.get_running_loop().run_forever()


def does(rule):
    """A reward that applies a rule to each completion."""

    def some_reward(completions, **columns):
        return [rule(completion) for completion in completions]

    return some_reward


def hangs(completions, **columns):
    while True:
        with contextlib.suppress(Exception):
            re.match(r"^(\w+\s*)*$", "a" * 40 + "!")


def swallows_the_alarm(completions, **columns):
    scores = []
    for _ in completions:
        try:
            while True:
                pass
        except:  # noqa: E722
            scores.append(0.0)
    return scores


async def ends_the_process_later(completions, **columns):
    raise SystemExit(0)


def misses_the_solution(completions, solution, **columns):
    return [1.0] * len(completions)


misses_the_solution.__module__ = "trl.rewards"

WAYS_OUT = {
    "Add `**columns`": no_columns,
    "'difficulty' is not among them. The columns here: answer, candidates.": other_column,
    "Write it as `async def`": runs_a_loop,
    "'solution' is not among them. The columns here: answer, candidates.": misses_the_solution,
    MESSAGES: [
        does(lambda completion: float(bool(completion.strip()))),
        does(lambda completion: float(bool(re.search("x", completion)))),
    ],
    LATE: [hangs, swallows_the_alarm],
    "Return a list with one number per completion.": gives([1.0]),
    "Return one finite number per completion": gives([math.nan, 1.0]),
    "": [
        does(lambda completion: other_column([completion])),  # its own call, not TRL's
        does(lambda completion: exit()),
        ends_the_process_later,
        does(lambda completion: list("ab")["A"]),  # a list, but not a completion
        does(lambda completion: completion[0]["content"].split() / 100),
    ],
}


@pytest.mark.parametrize(
    ("advice", "reward"),
    [
        (advice, reward)
        for advice, rewards in WAYS_OUT.items()
        for reward in (rewards if isinstance(rewards, list) else [rewards])
    ],
)
def test_each_cause_has_its_advice_and_no_other(monkeypatch, advice, reward):
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    monkeypatch.setattr(module, "_SECONDS_EACH", 0.0)
    chats = [[{"role": "assistant", "content": text}] for text in ("a", "b")]
    columns = {"answer": ["1", "2"], "candidates": [["x"], ["y"]], "completion_ids": [[1], [2]]}
    _, (fault, *_) = checked_scores(reward, chats, columns | {"trainer_state": None})
    assert [way for way in WAYS_OUT if way and way in fault.advice] == [advice] * bool(advice)
    assert bool(fault.advice) == bool(advice)


def test_no_batch_has_a_limit_beyond_minutes_and_an_interrupt_of_the_user_passes(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_MOST", 0.2)
    scores, faults = checked_scores(hangs, ["a"] * 1000, {})
    assert scores == [None] * 1000 and faults[0].cause == "out of time"
    assert faults[0].what == "did not return within 0.2 s"

    def interrupted(completions, **columns):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked_scores(interrupted, ["a"], {})
