"""The trial of `Lab.attacks`: score honest answers and attacks on rows of data, and compare them.

A row on which an attack wins. The reward gives 1.0 if the right answer is anywhere in the answer
block:

    row: {"question": "What is 40 + 2?", "answer": "42"}, with the wrong answer "43"

    attack                           answer block    score
    honest and right                 42              1.0
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
"""

import re
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.common import source_of
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.lab.attacks import FAR, OPPOSITE, PART, WRONG, Attack, honest
from helpers.rewards.lab.verdicts import HONEST_RIGHT, HONEST_WRONG

JUDGED_AGAIN = 64  # the least number of rows that are judged again
_ATTACKS_PER_CALL = 16  # attacks whose completions are scored in one call of the rewards
_SAME = 1e-6  # scores closer than this are equal
_READS_A_CLOCK = r"\btime\(\)|\b(?:utc)?now\(|time_ns|monotonic|perf_counter"


@dataclass
class AttackTrial:
    """Honest answers and attacks, scored on each row of data at each step of the training run.

    `run` does everything. Afterwards, the fields below `length` hold what it found.

    lab: the rewards to attack, and their weights.
    rows: from `with_wrong_answers`. If a reward accepts the wrong answer of a row, `run` replaces
        the row in this list by a copy with another wrong answer.
    steps: the training steps at which the rewards are called.
    length: the limit of a completion in words.

    tables: by attack, a table of scores with one entry per step and row of data. The index has the
        levels `step` and `row`. The columns are the rewards, their weighted `total`, and `usable`,
        which is False if a reward failed on the completion or if the row was left out. A row that
        was left out has no scores (nan).
    examples: by attack, the completion for the first row.
    calls: by attack, the completions of its family, and their scores before rows were left out.
    tolerated: by row number, an answer that a reward accepts besides the right one.
    lost: the numbers of the rows on which an honest wrong answer earns as much as a right one.
    escapes: the attacks that win only because an error scores below 0.
    """

    lab: Any  # a `measures.Lab`; measures.py imports this module
    rows: list[dict]
    steps: list[int]
    length: int
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    tolerated: dict[int, str] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    calls: dict[str, tuple] = field(default_factory=dict)

    def run(self, families: dict[str, list[Attack]]) -> pd.DataFrame:
        """Score all attacks, and return the table of `Lab.attacks`.

        families: the attacks of each name, with the two honest answers among them.
        """
        # 1. the honest answers, because the attacks are compared with them, and several times: if
        # the same completion gets different scores, the attacks would show nothing but luck
        right = families[HONEST_RIGHT]
        wrong = families[HONEST_WRONG]
        self._score_honest_answers(right, wrong)
        if any(re.search(_READS_A_CLOCK, source_of(reward)) for reward in self.lab.functions):
            time.sleep(1.01)  # the next second of the clock
        for _ in range(-(-JUDGED_AGAIN // len(self.rows))):
            self._judge_again(HONEST_RIGHT)
            self._judge_again(HONEST_WRONG)
            if self.lab.results.unsteady:
                return self._compare_with_ceilings({HONEST_RIGHT: right, HONEST_WRONG: wrong})

        # 2. the attacks, and those that win a second time: no win may be luck
        for name, family in families.items():
            if name not in (HONEST_RIGHT, HONEST_WRONG):
                self._score_family(family)
        compared = self._compare_with_ceilings(families)
        for name in compared.index[compared["wins"] > 0]:
            self._judge_again(name)
        return compared

    def _judge_again(self, name: str) -> None:
        """Score the attacks of a name a second time, in the same calls, and compare the scores."""
        completions, before = self.calls[name]
        faults = [*self.lab.faults]
        self.lab.compare(before, pd.concat(self._scores(completions)))
        self.lab.faults[:] = faults  # each fault counts once

    def _score_honest_answers(self, right: list[Attack], wrong: list[Attack]) -> None:
        """Score the honest answers, and replace wrong answers that a reward accepts.

        A reward may accept a wrong answer by a rule of its own: 43 for 42 with a tolerance of 5, or
        any number above 42. If a row's wrong answer earns as much as the right one, `row[FAR]`
        replaces it. If `row[FAR]` earns as much, too, `row[OPPOSITE]` replaces it.
        """
        self._score_family(right)
        self._score_family(wrong)
        for worse in (FAR, OPPOSITE):
            margins = _margins(self.tables[HONEST_RIGHT], self.tables[HONEST_WRONG])
            margin_by_row = margins["total"].groupby(level="row").mean()
            accepted = margin_by_row.index[margin_by_row <= _SAME]
            if accepted.empty:
                break
            for number in accepted:
                row = self.rows[number]
                self.tolerated.setdefault(number, row[WRONG])
                self.rows[number] = row | {WRONG: row[worse]}
            self._score_family(wrong)

    def _score_family(self, family: list[Attack]) -> None:
        """Score the attacks of one name. For each step and row, `tables` keeps the scores of the
        attack with the highest total.
        """
        name = family[0].name
        completions = [
            [attack.write(row, self.lab.tags, self.length) for row in self.rows]
            for attack in family
        ]
        tables = self._scores(completions)
        self.calls[name] = completions, pd.concat(tables)

        # leave out the rows on which an attack's answer is right
        for attack, texts, table in zip(family, completions, tables, strict=True):
            if attack.by_chance:
                self._leave_out_right_answers(texts, table, self._paid_rows(table))
                self._leave_out_tolerated_numbers(texts, table, self._paid_rows(table))
        if name == PART:
            self._leave_out_other_names(completions, tables)

        # for each step and row, keep the entry of the attack that earns most
        totals = np.array([table["total"].fillna(-np.inf) for table in tables])
        best = totals.argmax(axis=0)  # for each entry, the position of this attack in the family
        kept = [table[best == position] for position, table in enumerate(tables)]
        self.tables[name] = pd.concat(kept).sort_index()
        self.examples[name] = completions[best[0]][0]

    def _scores(self, completions: list[list[str]]) -> list[pd.DataFrame]:
        """Return a table of scores for each attack, like those in `tables`.

        completions: for each attack, one completion per row.
        """
        tables = []
        for first in range(0, len(completions), _ATTACKS_PER_CALL):
            # 1. score the completions of up to 16 attacks together, at each step
            attacks = completions[first : first + _ATTACKS_PER_CALL]
            texts = [text for texts_of_attack in attacks for text in texts_of_attack]
            columns = columns_of(self.rows * len(attacks))
            by_step = {}
            for step in self.steps:
                count_before = len(self.lab.faults)
                scores = self.lab.scores(texts, step, **columns)
                failed = {fault.position for fault in self.lab.faults[count_before:]}
                scores["usable"] = ~scores.index.isin(failed)
                if self.lab.out_of_time():
                    # the reward that took too long is not called again, so every total lacks it
                    scores["usable"] = False
                by_step[step] = scores

            # 2. cut them into one table per attack
            for start in range(0, len(texts), len(self.rows)):
                of_attack = {
                    step: scores[start : start + len(self.rows)].reset_index(drop=True)
                    for step, scores in by_step.items()
                }
                tables.append(pd.concat(of_attack, names=["step", "row"]))
        return tables

    def _compare_with_ceilings(self, families: dict[str, list[Attack]]) -> pd.DataFrame:
        """Return the table of `Lab.attacks`, and set `lost` and `escapes`.

        An attack does not win by the points that an error loses, but by those that it earns: below
        0, a score of a reward that tells right from wrong counts as 0. What wins only by an error's
        loss is an escape.
        """
        means = pd.DataFrame({name: table.mean() for name, table in self.tables.items()}).T
        compared = means.drop(columns="usable").assign(wins=0.0, gain=0.0, paid_by="")
        right = means.loc[HONEST_RIGHT, self.lab.names]
        wrong = means.loc[HONEST_WRONG, self.lab.names]
        charged = [name for name in self.lab.names if wrong[name] < min(0.0, right[name] - 0.25)]
        for name, family in families.items():
            ceiling = self.tables[family[0].ceiling]
            margins = _margins(self.tables[name], ceiling)
            if charged and name != HONEST_WRONG:
                wins_by_loss = (margins["total"] > _SAME).any()
                margins = _margins(
                    self._from_zero(self.tables[name], charged), self._from_zero(ceiling, charged)
                )
                if wins_by_loss and not (margins["total"] > _SAME).any():
                    self.escapes.append(name)
            if name == HONEST_WRONG:
                # A wrong answer wins if it earns as much as the right one. The mean over all steps
                # decides, because a schedule may begin with equal rewards for both.
                margins = margins.groupby(level="row").mean()
                won = margins[margins["total"] > -_SAME]
                self.lost = list(won.index)
            else:
                won = margins[margins["total"] > _SAME]
            if len(won):
                compared.loc[name, "wins"] = len(won) / margins["total"].count()
                compared.loc[name, "gain"] = won["total"].mean()
                # Each reward adds its margin times its weight to the gain. A reward that scored
                # none of these completions has no mean (nan) and adds nothing.
                contributions = won[self.lab.names].mean() * self.lab.weights
                compared.loc[name, "paid_by"] = contributions.fillna(0.0).idxmax()
        return compared.assign(example=self.examples)

    def _from_zero(self, table: pd.DataFrame, charged: list[str]) -> pd.DataFrame:
        """Return the scores, with those of the rewards `charged` not below 0."""
        table = table.assign(**table[charged].clip(lower=0.0))
        return table.assign(total=self.lab.total(table))

    # --- Rows that are left out: the attack's answer is right, or accepted as right ---

    def _paid_rows(self, table: pd.DataFrame) -> list[int]:
        """Return the numbers of the rows on which an attack earns more than an honest wrong answer
        at one step or more.
        """
        # as `_margins`, in arrays of steps and rows: this is done for hundreds of attacks
        wrong = self.tables[HONEST_WRONG]
        shape = len(self.steps), len(self.rows)
        usable = (table["usable"] & wrong["usable"]).to_numpy(bool).reshape(shape)
        margins = (table["total"] - wrong["total"]).to_numpy().reshape(shape)
        return np.flatnonzero(usable.all(axis=0) & (margins > _SAME).any(axis=0)).tolist()

    def _leave_out_right_answers(
        self, texts: list[str], table: pd.DataFrame, paid: list[int]
    ) -> None:
        """Leave out those of the rows `paid` on which `correctness_reward` calls an attack's answer
        right.
        """
        if not paid:
            return
        columns = columns_of([self.rows[number] for number in paid])
        right = correctness_reward(
            [texts[number] for number in paid],
            columns.get("answer", []),
            self.lab.tags,
            kind=columns.get("kind"),
        )
        for number, score in zip(paid, right, strict=True):
            if score == 1:
                _leave_out(table, number)

    def _leave_out_tolerated_numbers(
        self, texts: list[str], table: pd.DataFrame, paid: list[int]
    ) -> None:
        """Leave out those of the rows `paid` on which the rewards accept an attack's number because
        it is close to the right one, as 0.7045 is to 0.70456 with a tolerance of 0.01.

        Closeness pays if the number halfway to the right one earns at least as much as the attack's
        number.
        """
        # 1. write a completion with the number halfway, for each row with numbers
        tags = self.lab.tags
        halfway = list(texts)
        answers = {}  # the attack's answer, by row number
        for number in paid:
            row = self.rows[number]
            answer = (tags.answer_blocks(texts[number]) or [""])[-1].strip()
            between = _halfway(answer, row["answer"])
            if between is not None:
                answers[number] = answer
                halfway[number] = honest(row, tags, between)
        if not answers:
            return

        # 2. what the attack, the number halfway and the right number earn, on average over the
        # steps; completions of the right number on which a reward failed do not count
        (halfway_table,) = self._scores([halfway])
        right_table = self.tables[HONEST_RIGHT]
        right_totals = right_table["total"].where(right_table["usable"])
        earned = table["total"].groupby(level="row").mean()
        earned_halfway = halfway_table["total"].groupby(level="row").mean()
        earned_right = right_totals.groupby(level="row").mean()

        # 3. leave out the rows on which closeness pays
        for number, answer in answers.items():
            if earned_halfway[number] >= earned[number] - _SAME:
                _leave_out(table, number)
                if earned[number] >= earned_right[number] - _SAME:
                    self.tolerated.setdefault(number, answer)

    def _leave_out_other_names(
        self, completions: list[list[str]], tables: list[pd.DataFrame]
    ) -> None:
        """Leave out the rows on which exactly one part of the answer pays: this part is another
        name for the answer, as "US" is for "USA".

        A row whose answer is a number stays, because any of its digits could be that part.
        """
        paying = [set() for _ in self.rows]  # for each row, the completions that pay
        for texts, table in zip(completions, tables, strict=True):
            for number in self._paid_rows(table):
                paying[number].add(texts[number])
        for number, row in enumerate(self.rows):
            if len(paying[number]) == 1 and parse_number(row["answer"]) is None:
                (text,) = paying[number]
                self.tolerated.setdefault(number, (self.lab.tags.answer_blocks(text) or [""])[-1])
                for table in tables:
                    _leave_out(table, number)


def _margins(table: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of one table minus the scores of another. A row is compared only if its
    entries are usable in both tables at all steps, because a missing score is not evidence.
    """
    usable = (table["usable"] & other["usable"]).groupby(level="row").transform("all")
    return table[usable].drop(columns="usable") - other[usable].drop(columns="usable")


def _leave_out(table: pd.DataFrame, number: int) -> None:
    """Remove the scores of one row from the table, at all steps."""
    of_row = table.index.get_level_values("row") == number
    table.loc[of_row, table.columns != "usable"] = np.nan
    table.loc[of_row, "usable"] = False


def _halfway(answer: str, right: str) -> str | None:
    """Return the number halfway between two answers. Between whole numbers it is whole, too,
    because a reward may need that. Return None if an answer is not a number, if it is too large for
    exact floats, or if no whole number is between the two.

    >>> _halfway("0.7", "0.8"), _halfway("40", "42"), _halfway("41", "42"), _halfway("x", "42")
    ('0.75', '41', None, None)
    """
    given = parse_number(answer)
    gold = parse_number(right)
    if not given or not gold or max(abs(given.value), abs(gold.value)) >= 1e15:
        return None
    between = (given.value + gold.value) / 2
    if given.value.denominator == gold.value.denominator == 1:
        between = gold.value + int(between - gold.value)
    if between == gold.value and given.value != gold.value:
        return None
    return str(between) if between.denominator == 1 else f"{float(between):.12g}"


def columns_of(rows: list[dict]) -> dict[str, list]:
    """Return rows as the columns that TRL passes to a reward. TRL passes `prompt` as `prompts`."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names if name not in _NOT_PASSED}
    if "prompt" in names:
        columns["prompts"] = [row.get("prompt") for row in rows]
    return columns


# columns that TRL fills itself, and columns of the laboratory's own
_NOT_PASSED = {
    *("prompt", "prompts", "completion", "completions", "completion_ids"),
    *(WRONG, FAR, OPPOSITE),
}
