"""The rewards under test: how the laboratory calls them, and what has been found out about them.

`trial.AttackTrial` scores attacks with them, `measures.Lab` adds the steps, and `verdicts` judges
the results. `RewardsUnderTest.scores` is the one place where rewards are called.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pandas as pd

from helpers.printing import on_one_line, shorten
from helpers.rewards.common import is_own, reward_name
from helpers.rewards.faults import OUT_OF_TIME, Fault, checked_scores
from helpers.tags import THINK_ANSWER, TagFormat

# the honest answers that attacks are compared with
HONEST_CORRECT = "honest and correct"
HONEST_WRONG = "honest and wrong"

# How many completions are judged again, to see whether a reward repeats its scores. Copies of few
# completions make up this number; of many, more may be judged.
JUDGED_AGAIN = 64
# A program of `program_attacks` adds to it if a reward runs it in this process.
ran_here: list[int] = []
_TABLE_COLUMNS = ("total", "wins", "gain", "paid_by")  # names a reward cannot have


@dataclass
class Results:
    """What the steps of a lab returned; None for a step that was not run.

    cases, attacks, signal, speed: the result of the method of that name.
    ceilings: by attack, the name of the honest answer that it was compared with.
    lost: (correct answer, wrong answer) for each row on which both earn the same.
    tolerated: (correct answer, other answer) for each row on which a reward accepts the other
        answer, too, such as 43 for 42 with a tolerance of 5, or "US" for "USA".
    escapes: see `AttackTrial`.
    columns: the columns of the rows that were attacked.
    unsteady: (score, other score, whether only calls differ) by reward, for the rewards that gave
        the same completion two scores; see `note_unsteady`. If there are any, the attacks show
        nothing.
    completions: the texts that `signal` scored, and their columns. `speed` uses them.
    """

    cases: pd.DataFrame | None = None
    attacks: pd.DataFrame | None = None
    signal: dict | None = None
    speed: pd.Series | None = None
    ceilings: dict[str, str] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)
    tolerated: list[tuple[str, str]] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    unsteady: dict[str, tuple[float, float, bool]] = field(default_factory=dict)
    completions: tuple[list[str], dict] = (["<answer>4</answer>"], {})


@dataclass
class RewardsUnderTest:
    """Rewards under test, and what has been found out about them.

    functions, weights: as for GRPOTrainer and GRPOConfig, one weight per function.
    max_steps: steps of the planned training run, for rewards that follow a schedule.
    faults: the completions of your rows that a reward failed to score.
    warned: by reward and line, the last warning of this line, such as a judge's about replies that
        it could not read. The first is shown, too.
    in_process: the rewards that ran a program of `program_attacks` in this process.
    step: the training step at which `signal` calls the rewards. `attacks` sets it to the step with
        the largest gap between correct and wrong answers.

    Each word counts as a token. Raise ValueError if there are not as many weights as functions, or
    if two rewards have the same name, because TRL logs rewards by name.
    """

    functions: list[Callable]
    weights: list[float]
    tags: TagFormat = THINK_ANSWER
    max_steps: int = 100
    results: Results = field(default_factory=Results)
    faults: list[Fault] = field(default_factory=list)
    warned: dict[tuple[str, int], str] = field(default_factory=dict)
    in_process: set[str] = field(default_factory=set)
    step: int = 0

    def __post_init__(self):
        if len(self.functions) != len(self.weights) or not self.functions:
            raise ValueError(
                f"{len(self.functions)} rewards and {len(self.weights)} weights: each reward "
                "needs one weight."
            )
        self.names = [reward_name(function) for function in self.functions]
        for name in self.names:
            if self.names.count(name) > 1 or name in _TABLE_COLUMNS:
                raise ValueError(
                    f"two columns of the tables would be called {name!r}, and TRL logs rewards by "
                    "name: wrap one in a function with another name."
                )

    def reward(self, name: str) -> Callable:
        """Return the reward of this name."""
        return self.functions[self.names.index(name)]

    def scores(self, completions: list[str], step: int = 0, /, **columns: list) -> pd.DataFrame:
        """Return one row per completion: each reward's score (nan for None) and the weighted
        `total`.

        The rewards are called as TRL would call them at this step of the training run. Their
        failures are added to `faults`.

        columns: lists with one entry per completion. (`step` is positional, so that a column may
            have that name.)
        """
        # 1. Collect what TRL passes to a reward. Columns of the data may replace the empty prompts,
        # but not what the trainer adds to them.
        messages = [[{"role": "assistant", "content": text}] for text in completions]
        token_ids = [[hash(word) % 2**31 for word in text.split()] for text in completions]
        trainer_state = SimpleNamespace(
            global_step=step,
            max_steps=self.max_steps,
            epoch=step / self.max_steps,
            num_train_epochs=1,
            log_history=[],
            is_world_process_zero=True,
        )
        arguments = {
            "prompts": [[{"role": "user", "content": ""}] for _ in completions],
            **columns,
            "completion_ids": token_ids,
            "log_extra": lambda column, values: None,
            "log_metric": lambda name, value: None,
            "trainer_state": trainer_state,
        }

        # 2. Call each reward. One that once ran out of time is not called again: it gives None.
        too_slow = self.out_of_time()
        columns_of_scores = {}
        for name, function in zip(self.names, self.functions, strict=True):
            scores = [None] * len(completions)
            if name not in too_slow:
                ran_here.clear()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    scores, faults = checked_scores(function, messages, arguments, is_own(function))
                self.faults += faults
                self._note_warnings(name, caught)
                self.in_process |= {name} if ran_here else set()
            columns_of_scores[name] = np.array(scores, dtype=float)  # None becomes nan

        # 3. Add the total.
        table = pd.DataFrame(columns_of_scores)
        table["total"] = self.total(table)
        return table

    def _note_warnings(self, name: str, caught: list[warnings.WarningMessage]) -> None:
        """Show the first warning of each line of a reward, and keep the last one in `warned`."""
        for each in caught:
            line = (name, each.lineno)
            if line not in self.warned:
                text = on_one_line(shorten(each.message, 500))  # it may quote a completion
                warnings.warn_explicit(text, each.category, each.filename, each.lineno)
            self.warned[line] = str(each.message)

    def total(self, scores: pd.DataFrame) -> pd.Series:
        """Return the weighted sum of each row's scores. As in TRL, None adds nothing, and there is
        no total if all rewards give None.
        """
        return scores[self.names].mul(self.weights).sum(axis=1, min_count=1)

    def scores_of_copies(self, completions: list[str], step: int, /, **columns: list) -> np.ndarray:
        """Return the scores of copies of completions in one call, with the shape (copies,
        completions, rewards): at least two copies of each, and at least 64 in all. See `again` for
        faults.
        """
        copies = max(2, int(np.ceil(JUDGED_AGAIN / len(completions))))
        columns_of_copies = {name: values * copies for name, values in columns.items()}
        with self.again():
            # all completions, then all of them once more, and so on
            table = self.scores(completions * copies, step, **columns_of_copies)
        return table[self.names].to_numpy().reshape(copies, len(completions), -1)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Score completions again that were scored before. Faults then count once: they are kept
        only of rewards that had none, such as a reward that fails in every second call.
        """
        known = len(self.faults)
        faulty = {fault.reward for fault in self.faults}
        yield
        added = self.faults[known:]
        self.faults[known:] = [fault for fault in added if fault.reward not in faulty]

    def note_unsteady(self, before: np.ndarray, after: np.ndarray) -> None:
        """Add to `results.unsteady` the rewards that gave a completion different scores in two
        equal calls. Rewards with faults are left out, because the verdict names these faults.

        before, after: the scores of the two calls, as from `scores_of_copies`.

        Only calls differ if all copies of a completion have one score in each call, as with a
        reward that counts its calls.
        """
        faulty = {fault.reward for fault in self.faults}
        for position, name in enumerate(self.names):
            first = before[..., position]  # the first dimension is that of the copies
            second = after[..., position]
            # a missing score tells nothing: the call has failed, such as a judge's
            both_scored = ~np.isnan(first) & ~np.isnan(second)
            differs = both_scored & ~np.isclose(first, second)
            if name in faulty or not differs.any():
                continue
            only_calls_differ = len(first) > 1 and _copies_agree(first) and _copies_agree(second)
            # the first completion with two scores is the example for all
            score = float(first[differs][0])
            other_score = float(second[differs][0])
            self.results.unsteady.setdefault(name, (score, other_score, only_calls_differ))

    def out_of_time(self) -> set[str]:
        """Return the names of the rewards that once took too long. They are not called again."""
        return {fault.reward for fault in self.faults if fault.cause == OUT_OF_TIME}

    def judges(self) -> list[str]:
        """Return the rewards that tell correct answers from wrong ones: in `attacks`, their means
        for the two differ by more than 0.25. If `attacks` was not run, return the first reward.
        """
        table = self.results.attacks
        if table is None:
            return self.names[:1]
        gap = table.loc[HONEST_CORRECT, self.names] - table.loc[HONEST_WRONG, self.names]
        return [name for name in self.names if gap[name] > 0.25]


def _copies_agree(scores: np.ndarray) -> bool:
    """Return whether the copies of each completion, the first dimension, have the same score."""
    return bool(np.isclose(scores, scores[0], equal_nan=True).all())
