"""How many questions of each table a notebook asks within its budget of seconds."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.training import sampling_budget

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = replace(PRESETS["pocket"], max_completion_length=20)
ROWS = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


@pytest.fixture
def within(policy, monkeypatch):
    """A function from a budget to the number of rows kept of each table. The measured batch, 64
    completions of 20 tokens, takes `takes` seconds, and a round of the training `round_takes`.
    """

    def within(seconds, takes, rows=64, extra=False, round_takes=None, **differs) -> list[int]:
        tables = {"questions": (pd.concat([ROWS] * 2)[:rows], 1, 2), "of them": (ROWS[:20], 4, 1)}
        clock = iter([0.0, takes, 0.0, round_takes])
        monkeypatch.setattr(sampling_budget.time, "perf_counter", lambda: next(clock))
        extras = {"wished": (ROWS[:20], 1, 1)} if extra else {}
        settings = replace(SETTINGS, **differs)
        told = {"training_follows": round_takes is not None}
        kept = sampling_budget.questions_within(seconds, *policy, settings, tables, extras, **told)
        tables |= extras
        for table, (given, *_) in zip(kept, tables.values(), strict=True):
            assert list(table["question"]) == list(given["question"][: len(table)])
        return [len(table) for table in kept]

    return within


def test_auto_limits_only_models_that_are_not_embedded(within, capsys):
    assert within("auto", 1e6) == within(None, 1e6) == [64, 20]
    assert capsys.readouterr().out == ""
    assert within("auto", 1e6, model="unsloth/Qwen3-4B") == [8, 8]


@pytest.mark.parametrize("processes", [1, 2])
def test_before_a_training_its_sampling_is_announced(within, capsys, processes):
    # in each process, 16 completions a round and 32 a step: 300 steps, two on the same completions,
    # of 40 tokens each; 32 tokens of 16 completions are sampled in 10.24 s, so 50 tokens a second
    shape = {"max_steps": 300, "num_iterations": 2, "max_completion_length": 40}
    shape |= {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    shape |= {"steps_per_generation": 2, "processes": processes}
    within(1e3, 12.8, round_takes=10.24, **shape)
    told = capsys.readouterr().out
    assert "about 52 s, at 160 tokens" in told
    assert re.search(r"300 steps.* 64\.0 minutes .* 50 ", told)
    # a round of 96 is measured as 64 completions: 32 tokens of these in 20.48 s, 100 a second
    large = shape | {"per_device_train_batch_size": 48, "steps_per_generation": None}
    within(1e3, 12.8, round_takes=20.48, **large | {"gradient_accumulation_steps": 2})
    assert re.search(r" 96\.0 minutes .* 100 ", capsys.readouterr().out)


def test_every_table_keeps_the_same_share_of_its_rows(within, capsys):
    # 208 completions of 20 tokens, at 100 tokens a second: 41.6 s
    assert within(41.7, 12.8) == [64, 20]
    everything = "to sample everything: at most about 42 s, at 100 tokens a second\n"
    assert capsys.readouterr().out == everything
    assert within(20.9, 12.8) == [32, 10]
    note = capsys.readouterr().out.removeprefix(everything)
    shares = re.findall(r"(\d+) of (\d+) .*?±(\d+) points", note)
    assert "sampling_seconds=20.9" in note and shares == [("32", "64", "17"), ("10", "20", "31")]
    assert within(6.3, 12.8, rows=60) == [9, 8], "never fewer than eight"


def test_a_budget_below_the_fewest_rows_is_said_with_the_time_that_these_take(within, capsys):
    # 8 x 2 and 8 x 4 completions of 20 tokens, at 100 tokens a second: 9.6 s
    assert within(2.0, 12.8) == [8, 8]
    told = capsys.readouterr().out
    assert "has room" not in told and re.search(" 8 of 64 .* 10 s", told)


@pytest.mark.parametrize(("seconds", "left"), [(41.5, 0), (42.8, 0), (43.5, 9), (45.7, 20)])
def test_extras_get_what_the_tables_leave_or_nothing(within, seconds, left, capsys):
    *tables, extra = within(seconds, 12.8, extra=True)
    assert extra == left and (left == 0 or tables == [64, 20])
    assert ("0 of 20 wished" in capsys.readouterr().out) == (left == 0)
