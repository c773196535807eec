"""checked_scores: the valid scores of a faulty reward are kept, and each failure becomes a Fault."""

import asyncio
import contextlib
import math
import re
import signal
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from math_verify import parse, verify
from math_verify.errors import TimeoutException
from math_verify.utils import timeout

from helpers.rewards import faults as module
from helpers.rewards.faults import LATE, MESSAGES, checked_scores


def gives(returned):
    """Return a reward that always returns the same value."""

    def some_reward(completions, **columns):
        return returned

    return some_reward


# --- Valid scores ---------------------------------------------------------------------------------


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


def test_none_is_a_score_and_an_empty_batch_has_no_faults():
    assert checked_scores(gives([None, 0.5]), ["a", "b"], {}) == ([None, 0.5], [])
    assert checked_scores(gives([]), [], {}) == ([], [])


# --- Faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "scores", "shown"),
    [
        # a value that is not a finite number
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
def test_anything_but_one_finite_number_per_completion_is_a_fault(returned, scores, shown):
    judged, faults = checked_scores(gives(returned), ["a", "b"], {})
    assert judged == scores
    places = [(fault.position, fault.completion) for fault in faults]
    assert places == [(at, "ab"[at]) for at, score in enumerate(scores) if score is None]
    assert all("some_reward" in str(fault) and shown in str(fault) for fault in faults)


def test_a_completion_that_makes_a_reward_raise_loses_only_its_own_score():
    def first_word(completions, **columns):
        yield from (float(text.split()[0]) for text in completions)

    scores, faults = checked_scores(first_word, ["1 a", "", "0.5", "x", "nan"], {})
    here = f"test_faults.py, line {first_word.__code__.co_firstlineno + 1}"
    assert scores == [1.0, None, 0.5, None, None]
    assert [(fault.position, fault.completion, fault.what) for fault in faults] == [
        (1, "", f"raised IndexError in {here}: list index out of range"),
        (3, "x", f"raised ValueError in {here}: could not convert string to float: 'x'"),
        (4, "nan", "returned nan, which is not a finite number,"),
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


def test_a_reward_that_raises_only_on_a_batch_has_a_fault_for_each_completion():
    def some_reward(completions, **columns):
        (only,) = completions
        return [float(len(only))]

    scores, faults = checked_scores(some_reward, ["a", "b"], {})
    assert scores == [None] * 2 and [fault.position for fault in faults] == [0, 1]
    assert all("too many values to unpack" in str(fault) for fault in faults)


# --- Columns --------------------------------------------------------------------------------------


def test_a_completion_scored_alone_keeps_its_columns_and_logs_nothing():
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


# --- The message ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "long", ["\udfff" * 999, [{"role": "assistant", "content": "\udfff" * 999}]]
)
def test_a_message_can_be_printed_and_cuts_a_long_completion_and_a_long_error(long):
    def raises_at_length(completions, **columns):
        raise ValueError("\ud800\x1b[31m\n\u202e" + "y" * 10_000)

    _, (fault,) = checked_scores(raises_at_length, [long], {})
    assert fault.completion == "\udfff" * 999
    assert "\\udfff" * 200 + "…" in str(fault) and "\\udfff" * 201 not in str(fault)
    assert "\\ud800\\x1b[31m\\n\\u202eyyy" in str(fault) and str(fault).isprintable()
    assert 50 < str(fault).count("y") <= 200


# --- The advice -----------------------------------------------------------------------------------


def no_columns(prompts, completions):
    return [1.0] * len(completions)


def other_column(completions, difficulty, **columns):
    return [1.0] * len(completions)


async def runs_a_loop(completions, **columns):
    asyncio.get_running_loop().run_forever()


def does(rule):
    """Return a reward that applies a rule to each completion."""

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


def hangs_after(disarms):
    """Return a reward that uses the alarm of the process for itself, and then never returns."""

    def some_reward(completions, **columns):
        disarms()
        while True:
            pass

    return some_reward


def sleeps_after_math_verify(completions, **columns):
    parse("$1$")
    time.sleep(3600)


ADVICE = {
    "Add `**columns`": no_columns,
    "'difficulty' is not among them. The columns here: answer, candidates.": other_column,
    "Write it as `async def`": runs_a_loop,
    "'solution' is not among them. The columns here: answer, candidates.": misses_the_solution,
    MESSAGES: [
        does(lambda completion: float(bool(completion.strip()))),
        does(lambda completion: float(bool(re.search("x", completion)))),
    ],
    LATE: [
        hangs,
        swallows_the_alarm,
        hangs_after(lambda: parse("$1$")),
        hangs_after(lambda: verify(parse("$1$"), parse("$2$"))),
        hangs_after(lambda: signal.setitimer(signal.ITIMER_REAL, 0)),
        sleeps_after_math_verify,
    ],
    "Return a list with one number per completion.": gives([1.0]),
    "Return one finite number per completion": gives([math.nan, 1.0]),
    "": [
        does(lambda completion: other_column([completion])),  # the reward's own call, not TRL's
        does(lambda completion: exit()),
        ends_the_process_later,
        does(lambda completion: list("ab")["A"]),  # the error names a list, but not the completion
        does(lambda completion: completion[0]["content"].split() / 100),
    ],
}


@pytest.mark.parametrize(
    ("advice", "reward"),
    [
        (advice, reward)
        for advice, rewards in ADVICE.items()
        for reward in (rewards if isinstance(rewards, list) else [rewards])
    ],
)
def test_each_known_error_has_its_advice_and_no_other(monkeypatch, advice, reward):
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    monkeypatch.setattr(module, "_SECONDS_EACH", 0.0)
    chats = [[{"role": "assistant", "content": text}] for text in ("a", "b")]
    columns = {"answer": ["1", "2"], "candidates": [["x"], ["y"]], "completion_ids": [[1], [2]]}
    _, (fault, *_) = checked_scores(reward, chats, columns | {"trainer_state": None})
    assert [known for known in ADVICE if known and known in fault.advice] == [advice] * bool(advice)
    assert bool(fault.advice) == bool(advice)


def test_a_large_batch_has_a_time_limit_and_a_users_interrupt_is_passed_on(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_MOST", 0.2)
    scores, faults = checked_scores(hangs, ["a"] * 1000, {})
    assert scores == [None] * 1000 and faults[0].cause == "out of time"
    assert "0.2 s" in faults[0].what

    def interrupted(completions, **columns):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked_scores(interrupted, ["a"], {})


def test_a_time_limit_inside_a_reward_is_its_own():
    @timeout(1)
    def endless():
        while True:
            pass

    def some_reward(completions, **columns):
        with contextlib.suppress(TimeoutException):
            endless()
        return [1.0] * len(completions)

    assert checked_scores(some_reward, ["a"], {}) == ([1.0], [])
