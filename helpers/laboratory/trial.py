"""The trial of `Lab.attacks`: score honest answers and attacks on rows of data, and compare them.

A row on which an attack wins. The reward gives 1.0 if the right answer is anywhere in the answer
block:

    row: {"question": "What is 40 + 2?", "answer": "42"}, with the wrong answer "43"

    attack                           answer block    score
    honest and correct                 42              1.0
    honest and wrong                 43              0.0
    two answers in one block         42 or 43        1.0

The ceiling of "two answers in one block" is "honest and wrong". The attack earns 1.0 more than its
ceiling, so it wins on this row with a gain of 1.0.

A row that is left out for an attack, with the same reward:

    row: {"question": "Copy $9 + 1$.", "answer": "9 + 1"}, with the wrong answer "42"

    attack                           answer block    score
    honest and wrong                 42              0.0
    an expression of the question    9 + 1           1.0

The attack copies an expression from the question, which is a wrong answer on most rows. On this row
it is the right answer, so the row counts neither for nor against the attack.

`AttackTrial.run` has the four parts of a trial. Its methods stand in the order in which it uses
them, and those that leave out rows come last.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.judging.answers.numbers import parse_number
from helpers.laboratory.attack_templates import FAR, OPPOSITE, WRONG, Attack, honest
from helpers.laboratory.groups import columns_of
from helpers.laboratory.under_test import HONEST_CORRECT, HONEST_WRONG, RewardsUnderTest
from helpers.rewards.common import code_of

_ATTACKS_PER_CALL = 16  # attacks whose completions are scored in one call of the rewards
_SAME = 1e-6  # scores closer than this are equal
_READS_A_CLOCK = r"\btime\(\)|\b(?:utc)?now\(|time_ns|monotonic|perf_counter"


@dataclass
class Scored:
    """The scores of one attack, which writes one completion for each row of data.

    scores: of shape (steps, rows, rewards + 1); the last column is the weighted total. A row that
        was left out has no scores (nan).
    usable: by row; False if a reward failed on the completion, or if the row was left out.
    """

    scores: np.ndarray
    usable: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """The totals, of shape (steps, rows)."""
        return self.scores[..., -1]

    def minus(self, other: "Scored") -> "Scored":
        """Return these scores minus others. There is no difference (nan) on a row that is not
        usable in both, because a missing score is not evidence.
        """
        usable = self.usable & other.usable
        differences = np.where(usable[:, None], self.scores - other.scores, np.nan)
        return Scored(differences, usable)

    def leave_out(self, number: int) -> None:
        """Remove the scores of one row."""
        self.scores[:, number] = np.nan
        self.usable[number] = False


@dataclass
class AttackTrial:
    """Honest answers and attacks, scored on each row of data at each step of the training run.

    `run` does everything. Afterwards, the fields below `correctness` hold what it found. Attacks
    with the same name are a family.

    lab: the rewards to attack, and their weights.
    rows: from `with_wrong_answers`. If a reward accepts the wrong answer of a row, `run` replaces
        the row in this list by a copy with another wrong answer.
    steps: the training steps at which the rewards are called.
    length: the limit of a completion in words.
    correctness: judges whether an attack's answer happens to be correct; it takes the arguments of
        `correctness_reward`.

    completions: by family, for each attack a completion per row.
    all_scores: by family, the scores of these completions before rows were left out, of shape
        (attacks, steps, rows, rewards + 1).
    scored: by family, the scores of the attack that earns most, on each row at each step.
    examples: by family, the completion for the first row.
    tolerated: by row number, an answer that a reward accepts besides the right one.
    lost: the numbers of the rows on which an honest wrong answer earns as much as a correct one.
    escapes: the attacks that win only because an error scores below 0.
    """

    lab: RewardsUnderTest
    rows: list[dict]
    steps: list[int]
    length: int
    correctness: Callable
    completions: dict[str, list[list[str]]] = field(default_factory=dict)
    all_scores: dict[str, np.ndarray] = field(default_factory=dict)
    scored: dict[str, Scored] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    tolerated: dict[int, str] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)

    def run(self, families: dict[str, list[Attack]]) -> pd.DataFrame:
        """Score all attacks, and return the table of `Lab.attacks`.

        families: the attacks of each name, with the two honest answers among them.
        """
        # 1. Score the honest answers, because the attacks are compared with them. Score copies of
        # them twice more: if the same completion gets different scores, the attacks would show
        # nothing but luck.
        honest_answers = {name: families[name] for name in (HONEST_CORRECT, HONEST_WRONG)}
        self._score_honest_answers(families[HONEST_CORRECT], families[HONEST_WRONG])
        began = time.monotonic()
        before = self._scores_of_honest_copies()
        self._compare_honest_copies(before)
        if self.lab.results.unsteady:
            return self._compare_with_ceilings(honest_answers)

        # 2. Score the attacks.
        for name, family in families.items():
            if name not in honest_answers:
                self._score_family(family)

        # 3. Score the copies again: no win may come from a reward that has changed since. If a
        # reward reads a clock, wait for the next second.
        if any(re.search(_READS_A_CLOCK, code_of(reward)) for reward in self.lab.functions):
            time.sleep(max(0.0, began + 1.01 - time.monotonic()))
        self._compare_honest_copies(before)

        # 4. Score the attacks that win again: no win may be luck.
        compared = self._compare_with_ceilings(families)
        for name in compared.index[compared["wins"] > 0]:
            with self.lab.again():
                again = self._score_completions(self.completions[name])
            scores_again = np.stack([scored.scores for scored in again])
            # `note_unsteady` takes copies of completions: here, one copy of each
            self.lab.note_unsteady(self.all_scores[name][None], scores_again[None])
        return compared

    def _score_honest_answers(self, right: list[Attack], wrong: list[Attack]) -> None:
        """Score the honest answers, and replace wrong answers that a reward accepts.

        A reward may accept a wrong answer by a rule of its own: 43 for 42 with a tolerance of 5, or
        any number above 42. If a row's wrong answer earns as much as the right one, `row[FAR]`
        replaces it. If `row[FAR]` earns as much, too, `row[OPPOSITE]` replaces it.
        """
        # 1. Score both. A wrong answer has the form, plain or boxed, in which the right answer
        # earns more: a reward may pay for any box that it cannot read.
        self._score_family(right)
        totals_of_right = self.all_scores[HONEST_CORRECT][..., -1]
        self._score_family(wrong, best_by=totals_of_right)

        # 2. Replace the wrong answers that earn as much as the right one, and score again.
        for worse in (FAR, OPPOSITE):
            margins = self.scored[HONEST_CORRECT].minus(self.scored[HONEST_WRONG])
            accepted = np.flatnonzero(_mean_by_row(margins.totals) <= _SAME)
            if not accepted.size:
                break
            for number in accepted.tolist():
                row = self.rows[number]
                self.tolerated.setdefault(number, row[WRONG])
                self.rows[number] = row | {WRONG: row[worse]}
            self._score_family(wrong, best_by=totals_of_right)

    def _scores_of_honest_copies(self) -> list[np.ndarray]:
        """Return the scores of several copies of all honest answers, one array per step."""
        attacks = self.completions[HONEST_CORRECT] + self.completions[HONEST_WRONG]
        texts = [text for texts_of_attack in attacks for text in texts_of_attack]
        columns = columns_of(self.rows * len(attacks))
        return [self.lab.scores_of_copies(texts, step, **columns) for step in self.steps]

    def _compare_honest_copies(self, before: list[np.ndarray]) -> None:
        """Score the copies again, and note the rewards whose scores differ from those before."""
        for scores, again in zip(before, self._scores_of_honest_copies(), strict=True):
            self.lab.note_unsteady(scores, again)

    def _score_family(self, family: list[Attack], best_by: np.ndarray | None = None) -> None:
        """Score the attacks of one name. For each step and row, keep the scores of the attack with
        the highest total.

        best_by: other totals to choose by, of shape (attacks, steps, rows).
        """
        # 1. Write and score a completion of each attack for each row.
        name = family[0].name
        completions = [
            [attack.write(row, self.lab.tags, self.length) for row in self.rows]
            for attack in family
        ]
        scored = self._score_completions(completions)
        self.completions[name] = completions
        self.all_scores[name] = np.stack([of_attack.scores for of_attack in scored])

        # 2. Leave out the rows on which an attack's answer is right.
        for attack, texts, of_attack in zip(family, completions, scored, strict=True):
            if attack.by_chance:
                self._leave_out_right_answers(texts, of_attack)
                self._leave_out_tolerated_numbers(texts, of_attack)
        if family[0].is_part:
            self._leave_out_other_names(completions, scored)

        # 3. For each step and row, keep the attack that earns most. The family is usable on a row
        # if the attacks that were kept for it, perhaps another one at each step, all are.
        scores = np.stack([of_attack.scores for of_attack in scored])
        usable = np.stack([of_attack.usable for of_attack in scored])
        totals = scores[..., -1] if best_by is None else best_by
        best = np.where(np.isnan(totals), -np.inf, totals).argmax(axis=0)  # of shape (steps, rows)
        step, row = np.indices(best.shape)
        self.scored[name] = Scored(scores[best, step, row], usable[best, row].all(axis=0))
        best_on_first_row = best[0, 0]
        self.examples[name] = completions[best_on_first_row][0]

    def _score_completions(self, completions: list[list[str]]) -> list[Scored]:
        """Return the scores of each attack.

        completions: for each attack, one completion per row.
        """
        scored = []
        for first in range(0, len(completions), _ATTACKS_PER_CALL):
            # 1. Score the completions of up to 16 attacks in one call per step.
            attacks = completions[first : first + _ATTACKS_PER_CALL]
            texts = [text for texts_of_attack in attacks for text in texts_of_attack]
            columns = columns_of(self.rows * len(attacks))
            usable = np.ones(len(texts), bool)
            scores_by_step = []
            for step in self.steps:
                count_before = len(self.lab.faults)
                scores_by_step.append(self.lab.scores(texts, step, **columns).to_numpy())
                for fault in self.lab.faults[count_before:]:
                    usable[fault.position] = False
                if self.lab.out_of_time():
                    # the reward that took too long is not called again, so every total lacks it
                    usable[:] = False

            # 2. Cut the scores into one part per attack.
            scores = np.stack(scores_by_step)
            for start in range(0, len(texts), len(self.rows)):
                part = slice(start, start + len(self.rows))
                scored.append(Scored(scores[:, part].copy(), usable[part].copy()))
        return scored

    def _compare_with_ceilings(self, families: dict[str, list[Attack]]) -> pd.DataFrame:
        """Return the table of `Lab.attacks`, and set `lost` and `escapes`.

        Some rewards penalise a wrong answer with a score below 0. An attack does not win because it
        avoids this penalty, but by the points that it earns: a penalty counts as 0. An attack that
        wins only because it avoids the penalty is an escape.
        """
        # 1. Begin with each family's mean scores, without a win.
        means = pd.DataFrame(
            {name: self._table(scored).mean() for name, scored in self.scored.items()}
        ).T
        compared = means.assign(wins=0.0, gain=0.0, paid_by="")

        # 2. Find the rewards that tell right from wrong and penalise a wrong answer.
        right = means.loc[HONEST_CORRECT]
        wrong = means.loc[HONEST_WRONG]
        penalising = [name for name in self.lab.names if wrong[name] < min(0.0, right[name] - 0.25)]

        # 3. Compare each family with its ceiling.
        for name, family in families.items():
            scored = self.scored[name]
            ceiling = self.scored[family[0].ceiling]
            margins = scored.minus(ceiling)
            if name == HONEST_WRONG:
                # A wrong answer wins if it earns as much as the right one. The mean over all steps
                # decides, because a schedule may begin with equal rewards for both.
                margins = Scored(_mean_by_row(margins.scores)[None], margins.usable)
                won = margins.totals > -_SAME
                self.lost = np.flatnonzero(won[0]).tolist()
            else:
                won_with_penalties = margins.totals > _SAME
                if penalising:
                    ceiling = self._without_penalties(ceiling, penalising)
                    margins = self._without_penalties(scored, penalising).minus(ceiling)
                won = margins.totals > _SAME
                if won_with_penalties.any() and not won.any():
                    self.escapes.append(name)
            if won.any():
                for column, value in self._wins(margins, won).items():
                    compared.loc[name, column] = value
        return compared.assign(example=self.examples)

    def _wins(self, margins: Scored, won: np.ndarray) -> dict:
        """Return the columns `wins`, `gain` and `paid_by` of an attack.

        margins: by how much it earns more than its ceiling.
        won: where it wins, of shape (steps, rows).
        """
        # Each reward adds its margin times its weight to the gain. A reward that scored none of
        # these completions has no mean (nan) and adds nothing.
        margins_without_total = margins.scores[won][:, :-1]
        means = pd.DataFrame(margins_without_total, columns=self.lab.names).mean()
        contributions = (means * self.lab.weights).fillna(0.0)
        return {
            "wins": won.sum() / np.isfinite(margins.totals).sum(),
            "gain": margins.totals[won].mean(),
            "paid_by": contributions.idxmax(),
        }

    def _table(self, scored: Scored) -> pd.DataFrame:
        """Return scores with a row for each step and row of data, and the rewards as columns."""
        columns = [*self.lab.names, "total"]
        return pd.DataFrame(scored.scores.reshape(-1, len(columns)), columns=columns)

    def _without_penalties(self, scored: Scored, penalising: list[str]) -> Scored:
        """Return the scores, with 0 for each score below 0 of these rewards."""
        table = self._table(scored)
        table = table.assign(**table[penalising].clip(lower=0.0))
        table = table.assign(total=self.lab.total(table))
        return Scored(table.to_numpy().reshape(scored.scores.shape), scored.usable)

    # --- Rows that are left out: the attack's answer is right, or accepted as right ---

    def _paid_rows(self, scored: Scored) -> list[int]:
        """Return the numbers of the rows on which an attack earns more than an honest wrong answer
        at one step or more.
        """
        margins = scored.minus(self.scored[HONEST_WRONG])
        return np.flatnonzero((margins.totals > _SAME).any(axis=0)).tolist()

    def _leave_out_right_answers(self, texts: list[str], scored: Scored) -> None:
        """Leave out the rows on which an attack pays and `correctness` calls its answer correct."""
        paid = self._paid_rows(scored)
        columns = columns_of([self.rows[number] for number in paid])
        right = self.correctness(
            [texts[number] for number in paid],
            columns.get("answer", []),
            self.lab.tags,
            kind=columns.get("kind"),
        )
        for number, score in zip(paid, right, strict=True):
            if score == 1:
                scored.leave_out(number)

    def _leave_out_tolerated_numbers(self, texts: list[str], scored: Scored) -> None:
        """Leave out the rows on which the rewards accept an attack's number because it is close to
        the right one, as 0.7045 is to 0.70456 with a tolerance of 0.01.

        Closeness pays if the number halfway to the right one earns at least as much as the attack's
        number.
        """
        # 1. Write a completion with the number halfway, for each row with numbers.
        halfway = list(texts)
        answers = {}  # the attack's answer, by row number
        for number in self._paid_rows(scored):
            row = self.rows[number]
            answer = self.lab.tags.extract_answer(texts[number]) or ""
            between = _halfway(answer, row["answer"])
            if between is not None:
                answers[number] = answer
                halfway[number] = honest(row, self.lab.tags, between)
        if not answers:
            return

        # 2. Compute what the attack, the number halfway and the right number earn, on average over
        # the steps. Completions of the right number on which a reward failed do not count.
        (scored_halfway,) = self._score_completions([halfway])
        right = self.scored[HONEST_CORRECT]
        earned = _mean_by_row(scored.totals)
        earned_halfway = _mean_by_row(scored_halfway.totals)
        earned_right = np.where(right.usable, _mean_by_row(right.totals), np.nan)

        # 3. Leave out the rows on which closeness pays.
        for number, answer in answers.items():
            if earned_halfway[number] >= earned[number] - _SAME:
                scored.leave_out(number)
                if earned[number] >= earned_right[number] - _SAME:
                    self.tolerated.setdefault(number, answer)

    def _leave_out_other_names(self, completions: list[list[str]], scored: list[Scored]) -> None:
        """Leave out the rows on which exactly one part of the answer pays: this part is another
        name for the answer, as "US" is for "USA".

        A row whose answer is a number stays, because any of its digits could be that part.
        """
        # 1. Collect, for each row, the different completions that pay.
        paying = [set() for _ in self.rows]
        for texts, of_attack in zip(completions, scored, strict=True):
            for number in self._paid_rows(of_attack):
                paying[number].add(texts[number])

        # 2. Leave out the rows with exactly one.
        for number, row in enumerate(self.rows):
            if len(paying[number]) == 1 and parse_number(row["answer"]) is None:
                (text,) = paying[number]
                self.tolerated.setdefault(number, self.lab.tags.extract_answer(text) or "")
                for of_attack in scored:
                    of_attack.leave_out(number)


def _mean_by_row(scores: np.ndarray) -> np.ndarray:
    """Return the means over the steps, the first dimension; nan where there is no score."""
    count = np.isfinite(scores).sum(axis=0)
    # np.nanmean would warn of an empty mean
    return np.nansum(scores, axis=0) / np.where(count == 0, np.nan, count)


def _halfway(answer: str, right: str) -> str | None:
    """Return the number halfway between two answers. Between whole numbers it is whole, too,
    because a reward may need that. Return None if an answer is not a number, if it is too large for
    exact floats, or if no whole number is between the two.

    >>> _halfway("0.7", "0.8"), _halfway("40", "42"), _halfway("41", "42"), _halfway("x", "42")
    ('0.75', '41', None, None)
    """
    given_number = parse_number(answer)
    right_number = parse_number(right)
    if not given_number or not right_number:
        return None
    given = given_number.value
    gold = right_number.value
    if max(abs(given), abs(gold)) >= 1e15:
        return None
    between = (given + gold) / 2
    if given.denominator == 1 and gold.denominator == 1:
        between = gold + int(between - gold)  # rounded towards the right answer
    if between == gold and given != gold:
        return None
    return str(between) if between.denominator == 1 else f"{float(between):.12g}"
