"""Watching a training: curves that redraw in Jupyter, a changing line in a batch, findings as they
come, and stopping early.
"""

import time
from collections.abc import Callable

import pandas as pd
from transformers import TrainerCallback

from helpers.environment import kernel
from helpers.figures import view
from helpers.runs import Run
from helpers.training import processes
from helpers.training.checkpoints import History, rows_until, write_rows

_REDRAW = 2.0  # seconds between two drawings; one takes about half a second
# What the line of a step shows besides the reward: a label, TRL's name, decimal places.
_IN_A_LINE = (
    ("spread", "reward_std", 3),
    ("dead groups", "frac_reward_zero_std", 3),
    ("kl", "kl", 3),
    ("length", "completions/mean_length", 0),
    ("calls", "tools/call_frequency", 1),
)
# a history to findings, each with `rule` and `severity`; stage 04 has the rules
Diagnose = Callable[[pd.DataFrame], list]


class Watch(TrainerCallback):
    """Show a training as it goes, in one place: to a person a figure that is redrawn, in a batch
    the line of the last step.

    At the end the figure is shown in both, so that an executed notebook keeps one picture rather
    than a line for each step. Outside a notebook each step is a printed line.

    diagnose: takes the history as a table and gives findings (`helpers.metrics.diagnosis.diagnose`,
        the rules of notebook 04). A warning or critical one is printed once, at the step where it
        is first found.
    draw: takes the same table and gives the figure (`helpers.metrics.plots.dashboard`).
    live: whether a person watches; None asks the kernel.

    Put it after `history` among the callbacks, whose rows it shows. Of several processes only the
    first shows anything.
    """

    def __init__(
        self, history: History, diagnose: Diagnose, draw: Callable, live: bool | None = None
    ):
        self.history = history
        self.diagnose = diagnose
        self.draw = draw
        # a front end that can be asked for input has a person, unlike papermill and nbconvert
        self.live = getattr(kernel(), "_allow_stdin", False) if live is None else live
        self.in_place = self.live or kernel() is not None
        self.handle = None  # of the figure or line that is renewed
        self.drawn = 0.0  # when it was last drawn, by the monotonic clock
        self.printed: set[str] = set()  # the rules whose finding has been

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Redraw, or print the step; then what is newly found."""
        if not logs or "reward" not in logs or not processes.is_first():
            return

        # the step as a line
        row = self.history.rows[-1]
        parts = [f"step {row['step']:>4}/{state.max_steps}", f"reward {row['reward']:.3f}"]
        for label, key, digits in _IN_A_LINE:
            if row.get(key) is not None:
                parts.append(f"{label} {row[key]:.{digits}f}")
        line = "  ".join(parts)

        # a person gets the figure instead
        if self.live and time.monotonic() - self.drawn > _REDRAW:
            self._draw()
        elif self.in_place and not self.live:
            self._put({"text/plain": line})
        elif not self.in_place:
            print(line, flush=True)

        # findings, each once
        for finding in self.diagnose(pd.DataFrame(self.history.rows)):
            if finding.severity != "info" and finding.rule not in self.printed:
                self.printed.add(finding.rule)
                print(f"step {state.global_step}: {finding}", flush=True)

    def on_train_end(self, args, state, control, **kwargs):
        """Draw the figure as it is at the end."""
        if self.in_place and self.history.rows and processes.is_first():
            self._draw()

    def _draw(self) -> None:
        rows = self.history.rows
        ends = [f"{row['reward']:.2f} at step {row['step']}" for row in (rows[0], rows[-1])]
        text = (
            "The curves of this training, each explained in notebook 4. The reward: "
            f"{', '.join(ends)}."
        )
        self._put(view(self.draw(pd.DataFrame(rows)), text)._repr_mimebundle_())
        self.drawn = time.monotonic()

    def _put(self, bundle: dict) -> None:
        """Display a bundle of MIME types in place of the one before it."""
        from IPython.display import display

        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)


class EarlyStopping(TrainerCallback):
    """Stop a training, after a checkpoint, that no longer learns or is going wrong.

    diagnose: as for `Watch`.
    patience: in steps. The training stops once the holdout has not improved, or a critical finding
        has persisted, for that many steps.
    measure: a function without arguments that gives the accuracy on (a part of) the holdout, called
        at every half of the patience; None judges by findings alone.

    What was measured is kept in `checkpoints/holdout.csv`, and taken up again by a training that is
    continued. `reason` says why it stopped, or is None. If several processes train together, each
    measures and what the first found counts for all.
    """

    def __init__(
        self,
        run: Run,
        history: History,
        diagnose: Diagnose,
        patience: int,
        measure: Callable[[], float] | None = None,
        resumed_from=None,
    ):
        self.history = history
        self.diagnose = diagnose
        self.patience = patience
        self.measure = measure
        self.reason = None
        self.path = run.folder / "checkpoints" / "holdout.csv"
        self.measured = processes.from_first(lambda: rows_until(resumed_from, self.path))
        # of each rule with a critical finding, the step since which it persists
        self.since: dict[str, int] = {}

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Stop if a critical finding has persisted for the patience."""
        if not logs or "reward" not in logs:
            return
        findings = self.diagnose(pd.DataFrame(self.history.rows))
        critical = {finding.rule: finding for finding in findings if finding.severity == "critical"}
        critical = processes.gather(critical)[0]
        self.since = {rule: self.since.get(rule, state.global_step) for rule in critical}
        for rule, first in self.since.items():
            steps = state.global_step - first
            if steps >= self.patience:
                self._stop(control, f"for {steps} steps this has stood: {critical[rule]}")

    def on_step_end(self, args, state, control, **kwargs):
        """Measure the holdout when it is time, and stop if it has not improved for the patience."""
        if self.measure is None or state.global_step % max(1, self.patience // 2):
            return
        # by all processes, whose random numbers it may need
        accuracy = processes.gather(self.measure())[0]
        self.measured.append({"step": state.global_step, "accuracy": accuracy})
        write_rows(self.path, self.measured)
        best = max(self.measured, key=lambda row: row["accuracy"])  # the first of equals
        if state.global_step - best["step"] >= self.patience:
            self._stop(
                control,
                f"the holdout has not improved since step {best['step']} "
                f"({best['accuracy']:.1%}, now {accuracy:.1%})",
            )

    def _stop(self, control, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            print(f"stopping early: {reason}", flush=True)
        control.should_save = True
        control.should_training_stop = True
