"""The callbacks that show and stop a training run, on made-up histories."""

import re
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
from transformers import TrainerControl, TrainerState

from helpers.metrics.diagnosis import diagnose
from helpers.metrics.plots import dashboard
from helpers.metrics.signals import Signals
from helpers.runs import Run
from helpers.training import callbacks
from helpers.training.callbacks import EarlyStopping, Watch
from helpers.training.checkpoints import History
from helpers.training.reward_guard import GuardedRewards
from helpers.training.vision import Looking


def row(step: int, **more) -> dict:
    logged = {"loss": 0.0, "reward": 1 + step / 100, "reward_std": 0.5, "kl": 0.01}
    return logged | {"frac_reward_zero_std": 0.1} | more


def log(step: int, *callbacks, logs: dict | None = None) -> TrainerControl:
    control, state = TrainerControl(), TrainerState(global_step=step, max_steps=100)
    for callback in callbacks:
        callback.on_log(None, state, control, logs=logs or row(step))
    return control


# --- Lines and the figure -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logs", "shown"),
    [
        ({"kl": None}, ""),
        ({"reward_std": 0.5, "frac_reward_zero_std": 0.1, "kl": 0.01},
         "  spread 0.500  dead groups 0.100  kl 0.010"),
        ({"kl": 0.01, "completions/mean_length": 21.6}, "  kl 0.010  length 22"),
        ({"tools/call_frequency": 5.24}, "  calls 5.2"),
    ],
)  # fmt: skip
def test_a_logged_step_is_printed_as_a_line(run, capsys, logs, shown):
    history = History(run)
    watching = Watch(history, lambda table: [], dashboard)
    for logged in ({"reward": 0.5} | logs, {"train_runtime": 3.0}):
        log(1, history, watching, logs=logged)
    assert capsys.readouterr().out == f"step    1/100  reward 0.500{shown}\n"


def test_in_jupyter_one_figure_is_redrawn_in_place(run, capsys, monkeypatch):
    """tests/commands/test_run.py tests the line that a batch shows instead."""
    display, drawn = Mock(), []

    def draw(table):
        drawn.append(list(table["reward"]))
        return dashboard(table)

    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(callbacks, "time", clock)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(callbacks, "kernel", lambda: SimpleNamespace(_allow_stdin=True))
    history = History(run)
    watching = Watch(history, diagnose, draw)
    for step in range(1, 6):  # a second apart
        log(step, history, watching)
        clock.now += 1
    watching.on_train_end(None, None, None)
    assert [len(rewards) for rewards in drawn] == [1, 4, 5], "more than two seconds apart"
    display.assert_called_once()
    update = display.return_value.update
    assert update.call_count == 2 and drawn[-1] == [1.01, 1.02, 1.03, 1.04, 1.05]
    numbers = re.findall(r"\d+(?:\.\d+)?", update.call_args.args[0]["text/plain"])
    assert numbers[-4:] == ["1.01", "1", "1.05", "5"]
    assert capsys.readouterr().out == ""


def test_a_finding_is_printed_once(run, capsys):
    history = History(run)
    watching = Watch(history, diagnose, dashboard)
    for step in range(1, 60):
        log(step, history, watching, logs=row(step, kl=0.01 if step < 30 else 2.0))
    lines = [line for line in capsys.readouterr().out.splitlines() if ": " in line and "KL" in line]
    assert len(lines) == 1 and 30 <= int(lines[0].split(":")[0].split()[1]) < 59


# --- The order of the callbacks -------------------------------------------------------------------


def test_a_wrong_order_is_refused_when_training_begins(run):
    history = History(run)
    looking = Looking(lambda: (0.5, 0.25), every=2)
    watching = Watch(history, diagnose, dashboard)
    early = EarlyStopping(history, diagnose, Signals, patience=2)

    def begin(*callbacks) -> None:
        """Begin a training run, as Trainer does: with a state of its own."""
        state = TrainerState()
        for callback in callbacks:
            callback.on_train_begin(None, state, TrainerControl(), model=None)

    for _ in range(2):  # a second run has its own order
        begin(GuardedRewards(run, []), looking, history, watching, early)
        begin(looking)  # without a history, nothing is recorded
        for late in (GuardedRewards(run, []), looking):
            name = type(late).__name__
            with pytest.raises(ValueError, match=f"^put {name} before History .*records.$"):
                begin(history, late)
        for soon in (watching, early):
            name = type(soon).__name__
            with pytest.raises(ValueError, match=f"^put its History before {name} .*rows.$"):
                begin(soon, history)
            with pytest.raises(ValueError, match=name):
                begin(soon)


# --- Stopping early -------------------------------------------------------------------------------


def stops_at(stopping: EarlyStopping, last: int, held_out=None, **changes) -> int | None:
    """Log steps up to `last`, and return the step at which training stops, or None. `held_out` has
    the score of each step that is evaluated, which is logged after the step, as Trainer does.
    """
    history = stopping.history
    for step in range(len(history.rows) + 1, last + 1):
        logs = row(step, **{name: value(step) for name, value in changes.items()})
        controls = [log(step, history, stopping, logs=logs)]
        if step in (held_out or {}):
            logs = {"eval_reward": held_out[step], "eval_runtime": 1.0}
            controls.append(log(step, history, stopping, logs=logs))
        if any(control.should_training_stop for control in controls):
            assert controls[-1].should_save, "a checkpoint comes first"
            return step
    return None


def stopping(run: Run, patience: int, resumed_from=None) -> EarlyStopping:
    return EarlyStopping(History(run, resumed_from), diagnose, Signals, patience)


def test_training_stops_when_the_held_out_score_stalls(run, capsys):
    scores = dict(zip(range(5, 35, 5), [0.2, 0.5, 0.7, 0.7, 0.6, 0.9], strict=True))
    early = stopping(run, 10)
    assert stops_at(early, 100, scores) == 25, "the best was at 15, and 20 only equalled it"
    assert re.search("step 15 .*0.7.*0.6", early.reason)
    assert f"stopping early: {early.reason}" in capsys.readouterr().out
    kept = pd.read_csv(run.require("checkpoints/metrics.csv")).dropna(subset="eval_reward")
    assert dict(zip(kept["step"], kept["eval_reward"], strict=True)) == {
        step: score for step, score in scores.items() if step <= 25
    }
    assert kept["reward"].notna().all(), "an evaluation is on the row of its step"


def test_a_stall_at_the_last_step_stops_nothing_and_the_last_step_is_always_logged(run, capsys):
    early = stopping(run, 50)
    stops_at(early, 100, {50: 0.5, 100: 0.5})
    assert early.reason is None and "stopping early" not in capsys.readouterr().out
    control = TrainerControl()
    early.history.on_step_end(None, TrainerState(global_step=99, max_steps=100), control)
    assert not control.should_log
    early.history.on_step_end(None, TrainerState(global_step=100, max_steps=100), control)
    assert control.should_log


def test_training_stops_when_a_critical_finding_persists(run):
    early = stopping(run, 7)
    step = stops_at(early, 100, loss=lambda step: float("nan") if step >= 40 else 0.0)
    assert step == 47 and "7 steps" in early.reason
    assert stops_at(stopping(Run("healthy"), 3), 60) is None


def test_a_resumed_training_run_keeps_its_held_out_scores(run):
    stops_at(stopping(run, 10), 7, {5: 0.8, 7: 0.9})
    later = stopping(run, 10, run.path("checkpoints/checkpoint-6"))
    assert len(later.history.rows) == 6
    assert stops_at(later, 40, {10: 0.5, 15: 0.5}) == 15, "0.8 at step 5 stays the best"
