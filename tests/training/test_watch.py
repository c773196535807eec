"""What is shown while a training runs, and when it is stopped: on histories of our own, and in a
real training.
"""

import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from transformers import TrainerControl, TrainerState

from helpers import PROJECT
from helpers.environment import interactive
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.plots import dashboard
from helpers.runs import Run
from helpers.training import callbacks
from helpers.training.callbacks import EarlyStopping, Watch, progress_line
from helpers.training.checkpoints import History


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    return Run("a")


def row(step: int, **more) -> dict:
    return {
        "loss": 0.0,
        "reward": 1 + step / 100,
        "reward_std": 0.5,
        "frac_reward_zero_std": 0.1,
        "kl": 0.01,
    } | more


def log(step: int, *callbacks, logs: dict | None = None, max_steps: int = 100) -> TrainerControl:
    control = TrainerControl()
    for callback in callbacks:
        callback.on_log(
            None,
            TrainerState(global_step=step, max_steps=max_steps),
            control,
            logs=logs or row(step),
        )
    return control


# --- Lines and the figure -------------------------------------------------------------------------


def test_in_a_batch_there_is_a_line_for_each_logged_step_and_nothing_for_the_summary(run, capsys):
    history = History(run)
    shown = Watch(history, diagnose, dashboard)
    for step in (1, 2, 3):
        log(step, history, shown)
    log(3, history, shown, logs={"train_runtime": 3.0})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("/")[0] for line in lines] == ["step    1", "step    2", "step    3"]
    assert (
        lines[0] == "step    1/100  reward 1.010  spread 0.500  same-score groups 0.100  kl 0.010"
    )


def test_a_line_leaves_out_what_was_not_logged():
    assert progress_line({"step": 1, "reward": 0.5, "kl": None}, 50) == "step    1/50  reward 0.500"
    assert progress_line(row(1) | {"step": 1, "completions/mean_length": 21.6}, 50).endswith(
        "kl 0.010  length 22"
    )
    assert progress_line({"step": 1, "reward": 0.5, "tools/call_frequency": 5.24}, 50).endswith(
        "reward 0.500  calls 5.2"
    )


def test_in_jupyter_one_figure_is_redrawn_in_place_and_no_line_is_printed(run, capsys, monkeypatch):
    shown, drawn = [], []

    class Handle:
        def update(self, bundle, raw):
            shown.append(("again", bundle))

    def display(bundle, raw, display_id):
        shown.append(("first", bundle))
        return Handle()

    def draw(table):
        drawn.append(dashboard(table))
        return drawn[-1]

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(callbacks, "_REDRAW", 0.0)
    history = History(run)
    watching = Watch(history, diagnose, draw, live=True)
    for step in (1, 2, 3):
        log(step, history, watching)
    watching.on_train_end(None, None, None)
    assert [how for how, _ in shown] == [
        "first",
        "again",
        "again",
        "again",
    ] and capsys.readouterr().out == ""
    assert shown[-1][1]["text/plain"].endswith("The reward: 1.01 at step 1, 1.03 at step 3.")
    figure = drawn[-1]
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert len(titles) == 6
    reward = next(axes for axes in figure.axes if axes.get_title(loc="left") == "Reward")
    assert list(reward.get_lines()[0].get_ydata()) == [1.01, 1.02, 1.03]


def test_the_figure_is_not_drawn_more_often_than_a_reader_can_see(run, monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(callbacks, "time", clock)
    monkeypatch.setattr(
        Watch, "_draw", lambda self: drawn.append(clock.now) or setattr(self, "drawn", clock.now)
    )
    drawn, history = [], History(run)
    watching = Watch(history, diagnose, dashboard, live=True)
    for step in range(1, 10):  # a second apart
        log(step, history, watching)
        clock.now += 1
    assert drawn == [1000, 1003, 1006], "more than two seconds apart"


def test_nobody_sits_at_a_test_nor_at_papermill():
    assert interactive() is False


def test_a_front_end_that_can_be_asked_is_a_person(monkeypatch):
    kernel = SimpleNamespace(_allow_stdin=True)
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    )
    assert interactive() is True
    kernel._allow_stdin = False  # as nbclient leaves it, which papermill runs notebooks with
    assert interactive() is False


def test_a_finding_is_told_once_at_the_step_where_it_first_stands(run, capsys):
    history = History(run)
    watching = Watch(history, diagnose, dashboard)
    for step in range(1, 60):
        log(step, history, watching, logs=row(step, kl=0.01 if step < 30 else 2.0))
    told = [line for line in capsys.readouterr().out.splitlines() if ": " in line and "KL" in line]
    assert len(told) == 1 and 30 <= int(told[0].split(":")[0].split()[1]) < 59


# --- Stopping early -------------------------------------------------------------------------------


def steps_until_it_stops(
    stopping: EarlyStopping, history: History, last: int, **changes
) -> int | None:
    for step in range(len(history.rows) + 1, last + 1):
        logs = row(step, **{name: value(step) for name, value in changes.items()})
        control = log(step, history, stopping, logs=logs)
        stopping.on_step_end(None, TrainerState(global_step=step), control)
        if control.should_training_stop:
            assert control.should_save, "a checkpoint comes first"
            return step
    return None


def test_it_stops_when_the_holdout_has_not_improved_for_the_patience(run, capsys):
    accuracies = iter([0.2, 0.5, 0.7, 0.7, 0.6, 0.9])  # at steps 5, 10, 15, …
    history = History(run)
    stopping = EarlyStopping(run, history, diagnose, patience=10, measure=lambda: next(accuracies))
    assert steps_until_it_stops(stopping, history, 100) == 25, (
        "the best was at 15, and 20 only equalled it"
    )
    assert "not improved since step 15 (70.0%, now 60.0%)" in stopping.reason
    assert f"stopping early: {stopping.reason}" in capsys.readouterr().out
    assert list(pd.read_csv(run.require("checkpoints/holdout.csv"))["accuracy"]) == [
        0.2,
        0.5,
        0.7,
        0.7,
        0.6,
    ]


def test_it_goes_on_while_the_holdout_improves(run):
    history = History(run)
    accuracies = iter(i / 100 for i in range(100))
    assert (
        steps_until_it_stops(
            EarlyStopping(run, history, diagnose, 10, lambda: next(accuracies)), history, 60
        )
        is None
    )


def test_it_stops_when_a_critical_finding_has_stood_for_the_patience(run):
    history = History(run)
    stopping = EarlyStopping(run, history, diagnose, patience=7)
    stopped = steps_until_it_stops(
        stopping, history, 100, loss=lambda step: float("nan") if step >= 40 else 0.0
    )
    assert stopped == 47 and "for 7 steps this has stood" in stopping.reason


def test_a_healthy_training_is_not_stopped_by_findings(run):
    history = History(run)
    assert (
        steps_until_it_stops(EarlyStopping(run, history, diagnose, patience=3), history, 60) is None
    )


def test_a_training_that_goes_on_remembers_what_was_measured_before(run):
    history = History(run)
    first = EarlyStopping(run, history, diagnose, patience=10, measure=lambda: 0.8)
    steps_until_it_stops(first, history, 7)
    later = EarlyStopping(
        run, history, diagnose, 10, lambda: 0.5, resumed_from=run.path("checkpoints/checkpoint-6")
    )
    assert later.measured == [{"step": 5, "accuracy": 0.8}]
    assert steps_until_it_stops(later, history, 40) == 15


@pytest.mark.parametrize("patience", [0, 1, -3, 2.5, "10", True])
def test_a_patience_that_is_none_is_named(run, patience):
    with pytest.raises(ValueError, match=r"early_stopping=.* is not a number of steps"):
        EarlyStopping(run, History(run), diagnose, patience)


@pytest.mark.slow
@pytest.mark.parametrize("person", [True, False])
def test_a_real_kernel_tells_a_person_from_a_batch_and_draws_in_place_for_one(person):
    """A kernel asked as Jupyter asks it (it may ask back), and as papermill does (it may not)."""
    from jupyter_client.manager import start_new_kernel

    code = (
        "import unsloth, os, tempfile; os.environ['GRPO_RUNS_DIR'] = tempfile.mkdtemp()\n"
        "from transformers import TrainerControl, TrainerState\n"
        "from helpers.runs import Run\n"
        "from helpers.training.checkpoints import History\n"
        "from helpers.metrics.diagnosis import diagnose\n"
        "from helpers.metrics.plots import dashboard\n"
        "from helpers.training import watch\n"
        "watch._REDRAW = 0.0\n"
        "history = History(Run('a')); shown = watch.Watch(history, diagnose, dashboard)\n"
        "for step in (1, 2, 3):\n"
        "    for callback in (history, shown):\n"
        "        state = TrainerState(global_step=step, max_steps=3)\n"
        "        callback.on_log(None, state, TrainerControl(), logs={'reward': 0.1 * step, "
        "'reward_std': 0.5, 'loss': 0.0})\n"
        "shown.on_train_end(None, None, None)\n"
    )
    manager, client = start_new_kernel(startup_timeout=600, cwd=str(PROJECT))
    seen = []
    try:
        reply = client.execute_interactive(
            code, allow_stdin=person, timeout=600, output_hook=seen.append
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok", reply["content"]
    drawn = [m["content"] for m in seen if m["msg_type"] in ("display_data", "update_display_data")]
    lines = [
        m["content"]["text"]
        for m in seen
        if m["msg_type"] == "stream" and "step " in m["content"]["text"]
    ]
    assert not lines and len(drawn) == 4
    assert len({content["transient"]["display_id"] for content in drawn}) == 1, (
        "each in the place of the one before"
    )
    pictures = ["<img alt=" in content["data"].get("text/html", "") for content in drawn]
    assert pictures == ([True] * 4 if person else [False] * 3 + [True])
    if not person:
        assert [content["data"]["text/plain"][:11] for content in drawn[:3]] == [
            f"step    {step}/3" for step in (1, 2, 3)
        ]
