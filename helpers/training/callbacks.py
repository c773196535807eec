"""Trainer callbacks: show a training run while it runs, and stop it early.

    history = History(run)
    watch = Watch(history, diagnose, dashboard)
    stop = EarlyStopping(history, diagnose, Signals, patience=16)
    trainer = GRPOTrainer(…, callbacks=[history, watch, stop])

`watch` and `stop` read the rows of `history`, which therefore comes first; a list in another order
is refused when training begins.
"""

import time
from collections.abc import Callable

import pandas as pd

from helpers import processes
from helpers.environment import kernel
from helpers.figures import view
from helpers.training.checkpoints import AfterHistory, History

# From a history to findings, each with a `rule` and a `severity`. The rules are those of stage 04.
Diagnose = Callable[[pd.DataFrame], list]

# Besides the reward, the line of a step shows: a label, TRL's name of the metric, decimal places.
_IN_A_LINE = (
    ("spread", "reward_std", 3),
    ("dead groups", "frac_reward_zero_std", 3),
    ("kl", "kl", 3),
    ("length", "completions/mean_length", 0),
    ("calls", "tools/call_frequency", 1),
)
_REDRAW = 2.0  # seconds between two drawings, each of which takes about half a second


class Watch(AfterHistory):
    """Show the progress of a training run.

    - In a notebook with a person watching: a figure that is redrawn in place.
    - In a notebook executed as a batch: the line of the last step, and the figure at the end.
    - Outside a notebook: a printed line per step.

    history: the callback whose rows are shown; put it before this one among the callbacks.
    diagnose: returns findings for the history as a table (`helpers.metrics.diagnosis.diagnose`). A
        warning or critical finding is printed once, at the step where it first appears.
    draw: returns the figure for the same table (`helpers.metrics.plots.dashboard`).

    Only the first of several processes shows anything.
    """

    def __init__(self, history: History, diagnose: Diagnose, draw: Callable):
        self.history = history
        self.diagnose = diagnose
        self.draw = draw
        # Which of the three ways above. A person watches if the front end accepts input; papermill
        # and nbconvert do not.
        if kernel() is None:
            self.mode = "terminal"
        elif getattr(kernel(), "_allow_stdin", False):
            self.mode = "watched notebook"
        else:
            self.mode = "batch notebook"
        self.handle = None  # IPython's handle of the display that is updated
        self.drawn = 0.0  # monotonic time of the last drawing
        self.printed: set[str] = set()  # rules whose finding has been printed

    def on_log(self, args, state, control, logs, **kwargs):
        """Show the step, then print new findings."""
        if "reward" not in logs or not processes.is_first():
            return

        # format the step as a line
        row = self.history.rows[-1]
        parts = [f"step {row['step']:>4}/{state.max_steps}", f"reward {row['reward']:.3f}"]
        for label, key, digits in _IN_A_LINE:
            if row.get(key) is not None:
                parts.append(f"{label} {row[key]:.{digits}f}")
        line = "  ".join(parts)

        # show the figure to a person in a notebook, and the line to anyone else
        if self.mode == "terminal":
            print(line, flush=True)
        elif self.mode == "batch notebook":
            self._put({"text/plain": line})
        elif time.monotonic() - self.drawn > _REDRAW:
            self._draw()

        # print each warning or critical finding once
        for finding in self.diagnose(pd.DataFrame(self.history.rows)):
            if finding.severity != "info" and finding.rule not in self.printed:
                self.printed.add(finding.rule)
                print(f"step {state.global_step}: {finding}", flush=True)

    def on_train_end(self, args, state, control, **kwargs):
        """Draw the final figure."""
        if self.mode != "terminal" and self.history.rows and processes.is_first():
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
        """Display a bundle of MIME types, replacing the previous one."""
        from IPython.display import display

        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)


class EarlyStopping(AfterHistory):
    """Save a checkpoint and stop training once the held-out score stalls, or a critical finding
    persists, for `patience` steps.

    diagnose: as for `Watch`.
    signals: reads the history as a table (`helpers.metrics.signals.Signals`); its `held_out`
        has the held-out score by step as `score`, or is None.

    After a stop, `reason` says why; otherwise it is None. If several processes train together, the
    first decides for all.
    """

    def __init__(self, history: History, diagnose: Diagnose, signals: Callable, patience: int):
        self.history = history
        self.diagnose = diagnose
        self.signals = signals
        self.patience = patience
        self.reason = None
        # rule of a critical finding -> the step since which the finding has persisted
        self.since: dict[str, int] = {}

    def on_log(self, args, state, control, logs, **kwargs):
        """Stop if the held-out score has not improved, or a critical finding has persisted, for
        `patience` steps.
        """
        if "eval_reward" in logs:
            self._check_held_out(state, control)
        if "reward" not in logs:
            return
        critical = processes.from_first(self._critical_findings)
        # a finding that persists keeps its first step, and one that ends is forgotten
        self.since = {rule: self.since.get(rule, state.global_step) for rule in critical}
        for rule, first in self.since.items():
            steps = state.global_step - first
            if steps >= self.patience:
                self._stop(
                    state, control, f"this has persisted for {steps} steps: {critical[rule]}"
                )

    def _critical_findings(self) -> dict:
        """Return the critical findings of the history, by rule."""
        return {
            finding.rule: finding
            for finding in self.diagnose(pd.DataFrame(self.history.rows))
            if finding.severity == "critical"
        }

    def _check_held_out(self, state, control) -> None:
        """Stop if the best held-out score is at least `patience` steps old."""
        found = processes.from_first(lambda: self.signals(pd.DataFrame(self.history.rows)).held_out)
        if found is None:
            return
        score = found.score
        best = score.idxmax()  # the earliest of equals
        if score.index[-1] - best >= self.patience:
            self._stop(
                state,
                control,
                f"the held-out score has not improved since step {best} ({score[best]:.3g}, now "
                f"{score.iloc[-1]:.3g})",
            )

    def _stop(self, state, control, reason: str) -> None:
        if state.global_step >= state.max_steps:  # nothing is left to stop
            return
        if self.reason is None:
            self.reason = reason
            print(f"stopping early: {reason}", flush=True)
        control.should_save = True
        control.should_training_stop = True
