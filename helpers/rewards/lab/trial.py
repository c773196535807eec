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

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.lab.attacks import FAR, OPPOSITE, PART, WRONG, Attack, honest
from helpers.rewards.lab.verdicts import HONEST_RIGHT, HONEST_WRONG

_LISTS_PER_BATCH = 16  # attacks that are scored in one call of the rewards
_SAME = 1e-6  # scores closer than this are equal


@dataclass
class Trial:
    """Honest answers and attacks, scored on each row at each step of the training run.

    Call `answer_honestly` first, then `score_family` for each family of attacks, then `compare`.

    lab: the `Lab` with the rewards.
    rows: from `with_wrong_answers`. `answer_honestly` may replace their wrong answers.
    length: the limit of a completion in words.

    tables: by attack, a table of scores with one line per step and row. The index has the levels
        `step` and `row`. The columns are the rewards, their weighted `total`, and `usable`, which
        is False if a reward failed on the completion or if the row was left out. A row that was
        left out has no scores (nan).
    examples: by attack, the completion for the first row.
    tolerated: by row number, an answer that a reward accepts besides the right one.
    lost: the numbers of the rows on which an honest wrong answer earns as much as a right one.
    """

    lab: object
    rows: list[dict]
    steps: list[int]
    length: int
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    tolerated: dict[int, str] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)

    def answer_honestly(self, right: list[Attack], wrong: list[Attack]) -> None:
        """Score the honest answers.

        A reward may accept a wrong answer by a rule of its own: 43 for 42 with a tolerance of 5, or
        any number above 42. If a row's wrong answer earns as much as the right one, `row[FAR]`
        replaces it, and if that earns as much, too, `row[OPPOSITE]`.
        """
        self.score_family(right)
        self.score_family(wrong)
        for further in (FAR, OPPOSITE):
            margins = _margins(self.tables[HONEST_RIGHT], self.tables[HONEST_WRONG])
            margin = margins["total"].groupby(level="row").mean()
            accepted = list(margin.index[margin <= _SAME])
            if not accepted:
                break
            for number in accepted:
                row = self.rows[number]
                self.tolerated.setdefault(number, row[WRONG])
                row[WRONG] = row[further]
            self.score_family(wrong)

    def score_family(self, family: list[Attack]) -> None:
        """Score the attacks of one name. For each step and row, the table keeps the scores of the
        attack with the highest total.
        """
        name = family[0].name
        written = [
            [attack.write(row, self.lab.tags, self.length) for row in self.rows]
            for attack in family
        ]
        tables = self.scores(written)

        # leave out the rows on which an attack's answer is right
        for attack, texts, table in zip(family, written, tables, strict=True):
            if attack.by_chance:
                self.leave_out_right_answers(texts, table)
                self.leave_out_tolerated_numbers(texts, table)
        if name == PART:
            self.leave_out_other_names(written, tables)

        # for each step and row, keep the attack that earns most
        totals = np.array([table["total"].fillna(-np.inf) for table in tables])
        best = totals.argmax(axis=0)
        lines = [table[best == which] for which, table in enumerate(tables)]
        self.tables[name] = pd.concat(lines).sort_index()
        self.examples[name] = written[best[0]][0]

    def compare(self, ceilings: dict[str, str]) -> pd.DataFrame:
        """Return the table of `Lab.attacks`, and set `lost`.

        ceilings: by attack, the name of the honest answer that it is compared with.
        """
        weights = pd.Series(self.lab.weights, self.lab.names)
        means = pd.DataFrame({name: table.mean() for name, table in self.tables.items()}).T
        compared = means.drop(columns="usable").assign(wins=0.0, gain=0.0, paid_by="")
        for name, ceiling in ceilings.items():
            margins = _margins(self.tables[name], self.tables[ceiling])
            if name == HONEST_WRONG:
                # A wrong answer wins if it earns as much as the right one. The mean over all steps
                # decides, because a schedule may begin with equal rewards for both.
                margins = margins.groupby(level="row").mean()
                won = margins[margins["total"] > -_SAME]
                self.lost = list(won.index)
            else:
                won = margins[margins["total"] > _SAME]
            if len(won):
                paid = won[weights.index].mean().mul(weights).fillna(0.0)
                compared.loc[name, "wins"] = len(won) / margins["total"].count()
                compared.loc[name, "gain"] = won["total"].mean()
                compared.loc[name, "paid_by"] = paid.idxmax()
        return compared.assign(example=self.examples)

    def scores(self, written: list[list[str]]) -> list[pd.DataFrame]:
        """Return a table of scores for each list of completions. A list has one completion per row,
        and its table is like those in `tables`.
        """
        tables = []
        for first in range(0, len(written), _LISTS_PER_BATCH):
            batch = written[first : first + _LISTS_PER_BATCH]
            texts = [text for completions in batch for text in completions]
            columns = columns_of(self.rows * len(batch))
            lines = [range(len(batch)), range(len(self.rows))]
            by_step = []
            for step in self.steps:
                count_before = len(self.lab.faults)
                table = self.lab.scores(texts, step, **columns)
                failed = {fault.position for fault in self.lab.faults[count_before:]}
                if self.lab.out_of_time():
                    # such a reward is not called again, so its score is missing in every total
                    failed = range(len(texts))
                table["usable"] = [position not in failed for position in range(len(texts))]
                by_step.append(table.set_axis(pd.MultiIndex.from_product(lines)))
            # cut the batch into its lists
            whole = pd.concat(by_step, keys=self.steps, names=["step", "list", "row"])
            tables += [whole.xs(which, level="list") for which in lines[0]]
        return tables

    # --- Rows on which an attack is not an attack ---

    def paid_rows(self, table: pd.DataFrame) -> list[int]:
        """Return the numbers of the rows on which an attack earns more than an honest wrong
        answer.
        """
        gains = _margins(table, self.tables[HONEST_WRONG])["total"].groupby(level="row").max()
        return list(gains.index[gains > _SAME])

    def leave_out_right_answers(self, texts: list[str], table: pd.DataFrame) -> None:
        """Leave out the rows on which `correctness_reward` calls an attack's answer right."""
        paid = self.paid_rows(table)
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

    def leave_out_tolerated_numbers(self, texts: list[str], table: pd.DataFrame) -> None:
        """Leave out the rows on which the rewards accept an attack's number because it is close to
        the right one, as 0.7045 is to 0.70456 with a tolerance of 0.01.

        Closeness pays if the number halfway to the right one earns at least as much as the attack's
        number.
        """
        # 1. write a completion with the number halfway, for each row with numbers
        tags = self.lab.tags
        halfway = list(texts)
        answers = {}  # the attack's answer, by row number
        for number in self.paid_rows(table):
            row = self.rows[number]
            answer = (tags.answer_blocks(texts[number]) or [""])[-1].strip()
            between = _halfway(answer, row["answer"])
            if between is not None:
                answers[number] = answer
                halfway[number] = honest(row, tags, between)
        if not answers:
            return

        # 2. compare what the attack, the number halfway and the right number earn, on average over
        # the steps
        (scores,) = self.scores([halfway])
        right = self.tables[HONEST_RIGHT]
        earned = table["total"].groupby(level="row").mean()
        earned_halfway = scores["total"].groupby(level="row").mean()
        earned_right = right["total"].where(right["usable"]).groupby(level="row").mean()
        for number, answer in answers.items():
            if earned_halfway[number] >= earned[number] - _SAME:
                _leave_out(table, number)
                if earned[number] >= earned_right[number] - _SAME:
                    self.tolerated[number] = answer

    def leave_out_other_names(self, written: list[list[str]], tables: list[pd.DataFrame]) -> None:
        """Leave out the rows on which exactly one part of the answer pays: it is another name for
        the answer, as "US" is for "USA".

        A row whose answer is a number stays, because any of its digits could be that part.
        """
        paying = [set() for _ in self.rows]  # for each row, the completions that pay
        for texts, table in zip(written, tables, strict=True):
            for number in self.paid_rows(table):
                paying[number].add(texts[number])
        for number, row in enumerate(self.rows):
            if len(paying[number]) == 1 and parse_number(row["answer"]) is None:
                (text,) = paying[number]
                self.tolerated[number] = (self.lab.tags.answer_blocks(text) or [""])[-1]
                for table in tables:
                    _leave_out(table, number)


def _margins(table: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of one table minus the scores of another. A row is compared only if its
    lines are usable in both tables at all steps, because a missing score is not evidence.
    """
    usable = (table["usable"] & other["usable"]).groupby(level="row").transform("all")
    return table[usable].drop(columns="usable") - other[usable].drop(columns="usable")


def _leave_out(table: pd.DataFrame, number: int) -> None:
    """Remove the scores of a row at all steps."""
    lines = table.index.get_level_values("row") == number
    table.loc[lines, table.columns != "usable"] = np.nan
    table.loc[lines, "usable"] = False


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


def columns_of(records: list[dict]) -> dict[str, list]:
    """Return the columns of records as TRL passes them to a reward. It calls `prompt` `prompts`."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {
        name: [record.get(name) for record in records] for name in names if name not in _NOT_PASSED
    }
    if "prompt" in names:
        columns["prompts"] = [record.get("prompt") for record in records]
    return columns


# columns that TRL fills itself, and columns of the laboratory's own
_NOT_PASSED = {
    *("prompt", "prompts", "completion", "completions", "completion_ids"),
    *(WRONG, FAR, OPPOSITE),
}
