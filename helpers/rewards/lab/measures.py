"""The laboratory: try, attack, measure and time a list of weighted rewards before training.

    lab = Lab(reward_functions, reward_weights, tags)
    lab.cases()                       # do completions with a known score earn it?
    lab.attacks(rows)                 # does cheating pay?
    lab.signal(rows, completions)     # what would GRPO learn from this policy's completions?
    lab.speed()
    print(lab.verdict())              # go or no go, and what to change

Each step is optional, and the verdict covers the steps that were run. No model is needed:
`stored_groups` reads the completions of an earlier run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from helpers.rewards import LIBRARY
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.common import is_own, reward_name, source_hash, source_of
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.faults import LATE, Fault, checked_scores
from helpers.rewards.lab import verdicts
from helpers.rewards.lab.attacks import (
    BATTERY,
    FAR,
    HONEST,
    OPPOSITE,
    PART,
    RIGHT,
    WRONG,
    Attack,
    for_own,
    honest,
    with_wrong_answers,
)
from helpers.rewards.lab.cases import load_cases
from helpers.tags import THINK_ANSWER, TagFormat

_TIMED = 1000  # completions
_ROWS_ATTACKED = 16
_LISTS_PER_BATCH = 16  # attacks that are scored in one call of the rewards
_SAME = 1e-6  # scores closer than this are equal
_NO_SPREAD = 1e-8  # standard deviations below this are rounding (TRL's isclose)
_TABLE_COLUMNS = ("total", "wins", "gain", "paid_by", "failed")  # names a reward cannot have


@dataclass
class Results:
    """What the steps of a lab returned; None for a step that was not run.

    cases, attacks, signal, speed: the result of the method of that name.
    ceilings: by attack, the honest answer it was compared with.
    lost: (right answer, wrong answer) for each row on which both earn the same.
    tolerated: (right answer, other answer) for each row on which a reward accepts the other answer,
        too, such as 43 for 42 with a tolerance of 5, or "US" for "USA".
    completions: the texts that `signal` scored, and their columns. `speed` uses them.
    """

    cases: pd.DataFrame | None = None
    attacks: pd.DataFrame | None = None
    signal: dict | None = None
    speed: pd.Series | None = None
    ceilings: dict[str, str] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)
    tolerated: list[tuple[str, str]] = field(default_factory=list)
    completions: tuple[list[str], dict] = (["<answer>4</answer>"], {})


@dataclass
class Lab:
    """Rewards under test, and what has been found out about them.

    functions, weights: as for GRPOTrainer and GRPOConfig, one weight per function.
    max_steps: steps of the planned training run, for rewards that follow a schedule.
    faults: the completions of your rows that a reward failed to score.
    step: the training step at which `signal` calls the rewards. `attacks` sets it to the step with
        the largest gap between right and wrong answers.

    Each word counts as a token. ValueError if there are not as many weights as functions, or if two
    rewards have the same name, because TRL logs rewards by name.
    """

    functions: list[Callable]
    weights: list[float]
    tags: TagFormat = THINK_ANSWER
    max_steps: int = 100
    results: Results = field(default_factory=Results)
    faults: list[Fault] = field(default_factory=list)
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
                    "name: wrap one in a function of its own."
                )

    def scores(self, completions: list[str], step: int = 0, /, **columns: list) -> pd.DataFrame:
        """Return one row per completion: each reward's score (nan for None) and the weighted
        `total`.

        The rewards are called as TRL would call them at this step of the training run. Their
        failures are added to `faults`. A reward that once took too long is not called again.

        columns: lists with one entry per completion. (`step` is positional, so that a column may
            have that name.)
        """
        messages = [[{"role": "assistant", "content": text}] for text in completions]
        columns = {"prompts": [[{"role": "user", "content": ""}] for _ in completions]} | columns
        columns["completion_ids"] = [
            [hash(word) % 2**31 for word in text.split()] for text in completions
        ]
        columns |= _from_the_trainer(step, self.max_steps)
        late = {fault.reward for fault in self.faults if fault.advice == LATE}
        table = pd.DataFrame(index=range(len(completions)))
        for name, function in zip(self.names, self.functions, strict=True):
            scored = [None] * len(completions)
            if name not in late:
                scored, faults = checked_scores(function, messages, columns, is_own(function))
                self.faults += faults
            table[name] = pd.Series(scored, dtype=float)
        # as in TRL, None adds nothing, and there is no total if all rewards give None
        table["total"] = table[self.names].mul(self.weights).sum(axis=1, min_count=1)
        return table

    def group(self, row: pd.Series, completions: list[str]) -> pd.DataFrame:
        """Return the `scores` of several completions of one row."""
        return self.scores(completions, **_columns(_records(row.to_frame().T) * len(completions)))

    def cases(
        self, path: str | Path | None = None, rows: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return the scores of completions whose right score is known: one row per case, with the
        expected scores as `expected <reward>`.

        path: a file of your own cases, one JSON object per line: `name`, `completion`, `expected`
            (reward name to score), and columns of the row such as `answer`. By default, the suite's
            own cases, which take the columns they lack from your `rows`.

        ValueError for a line that is not such an object, and for an expected score of an unknown
        reward.
        """
        loaded = load_cases(path, self.tags)
        known = {*self.names, *(f"{name}_reward" for name in LIBRARY)}
        for case in loaded:
            unknown = sorted(case["expected"].keys() - known)
            if unknown:
                raise ValueError(
                    f"case {case['name']!r} expects a score of {unknown[0]!r}, which is no reward. "
                    f"The rewards here: {', '.join(self.names)}."
                )

        # each case as a row of data
        yours = [{}]
        neutral = {}
        if path is None:
            # a question or a kind of your data could change which answer is right
            neutral = {"question": "What is asked?", "kind": None}
            if rows is not None:
                yours = _records(rows.head(len(loaded)))
        records = []
        for at, case in enumerate(loaded):
            own = {key: case[key] for key in case if key not in ("name", "expected")}
            records.append(yours[at % len(yours)] | neutral | own)

        count_before = len(self.faults)
        table = self.scores([case["completion"] for case in loaded], **_columns(records))
        if path is None:
            # the suite's cases are not your data, so a reward may fail on them
            late = [fault for fault in self.faults[count_before:] if fault.advice == LATE]
            self.faults[count_before:] = late
        table = table.set_axis([case["name"] for case in loaded])
        for reward in self.names:
            table[f"expected {reward}"] = [case["expected"].get(reward, np.nan) for case in loaded]
        self.results.cases = table
        return table

    def attacks(
        self, rows: pd.DataFrame, length: int = 200, battery: list[Attack] = BATTERY
    ) -> pd.DataFrame:
        """Return what cheating earns on real rows: one row per attack, best first, with its mean
        scores and an `example`.

        rows: data with an `answer`. 16 rows spread over the data are attacked.
        length: the longest completion, in words.

        Each attack is compared with its ceiling: an honest wrong answer, or an honest right answer
        if the attack is the right answer in another form. `wins` is the share of rows on which the
        attack earns more than its ceiling, `gain` the mean difference on these rows, and `paid_by`
        the reward that contributes most to it. A row is left out of the comparison if a reward
        failed on one of the two completions, or if the attack happens to be right (see `_Trial`).

        If a reward reads the `trainer_state`, each row is attacked at a dozen steps spread over the
        training run.
        """
        answered = rows[rows["answer"].notna()] if "answer" in rows else rows.head(0)
        if not len(answered):
            raise ValueError(
                "the attacks need rows with an `answer`: what would an honest right answer be?"
            )
        # 1. rows spread over the data
        places = np.linspace(0, len(answered) - 1, min(_ROWS_ATTACKED, len(answered))).astype(int)
        attacked = with_wrong_answers(_records(answered.iloc[places]))

        # 2. steps of the training run. A schedule may pay only now and then: take a step from each
        # tenth of the run, with ten different last digits.
        steps = {0}
        if any("trainer_state" in source_of(function) for function in self.functions):
            steps |= {self.max_steps // 2, self.max_steps - 1}
            steps |= {tenth * self.max_steps // 10 + tenth for tenth in range(10)}
        steps = sorted(step for step in steps if step < max(1, self.max_steps))

        # 3. attacks with the same name are a family
        families = {}
        for attack in [*HONEST, *battery, *for_own(self.functions, attacked, self.tags)]:
            families.setdefault(attack.name, []).append(attack)

        # 4. scores: honest answers first, because the attacks are compared with them
        trial = _Trial(self, attacked, steps, length)
        trial.answer_honestly(families[RIGHT], families[WRONG])
        for name, family in families.items():
            if name not in (RIGHT, WRONG):
                trial.score_family(family)

        # 5. comparisons
        ceilings = {name: family[0].ceiling for name, family in families.items()}
        table, lost = _compared(trial.tables, ceilings, pd.Series(self.weights, self.names))
        table = table.assign(example=trial.examples)
        table = table.sort_values("total", ascending=False, kind="stable")

        # 6. the step with the largest gap between right and wrong answers
        gaps = (trial.tables[RIGHT] - trial.tables[WRONG])["total"].fillna(0.0)
        self.step = steps[gaps.to_numpy().reshape(len(steps), -1).mean(axis=1).argmax()]

        self.results.attacks = table
        self.results.ceilings = ceilings
        self.results.lost = [(attacked[at]["answer"], attacked[at][WRONG]) for at in lost]
        self.results.tolerated = [
            (attacked[at]["answer"], other)
            for at, other in trial.tolerated.items()
            if at not in lost
        ]
        return table

    def signal(self, rows: pd.DataFrame, completions: list[list[str]]) -> dict:
        """Return what GRPO would learn from groups of completions: statistics of their rewards.

        completions: one group of at least two per row.

        Returns a dict:

        - `groups`, `group_size`.
        - `rewards`, by name: the `weight`; the `mean`; `within_group_std`; `zero_spread`, the share
          of groups with equal scores; `scored`, the share of completions with a score; `constant`,
          the score if all completions got the same one, else None; `advantage_share`, the share in
          the variance of TRL's group-scaled advantage (the shares sum to 1); `rank_correlation`
          (Spearman) with each other reward.
        - `total`: `mean` and `zero_spread` of the weighted sum.
        - `judges`: see the method of that name.
        - `pass_rate`, one per row: the share of completions that the judges call right; None if no
          judge scores the row.
        - `answered`: the share of completions with a complete answer block.
        - `unopened`: whether all completions close the reasoning and none opens it.
        - `one_text`: of the groups whose totals are equal, the share that consist of one text.
        """
        if len(rows) != len(completions) or not completions:
            raise ValueError(
                f"{len(rows)} rows and {len(completions)} groups: there must be one group per row."
            )
        sizes = [len(group) for group in completions]
        if min(sizes) < 2:
            raise ValueError(
                "a group of fewer than two completions has no spread; sample at least two per row."
            )
        # 1. scores, and the groups in which they differ
        group_of = np.repeat(np.arange(len(completions)), sizes)
        records = _records(rows)
        columns = _columns([records[group] for group in group_of])
        texts = [text for group in completions for text in group]
        scores = self.scores(texts, self.step, **columns)
        spread = scores.groupby(group_of).std(ddof=1)  # as in TRL (torch.std)
        flat = spread.fillna(0.0) < _NO_SPREAD
        dead = [group for group, is_flat in zip(completions, flat["total"], strict=True) if is_flat]

        # 2. each reward by itself
        shares = self._advantage_shares(scores, group_of)
        ranks = scores[self.names].corr(method="spearman")
        rewards = {}
        for name, weight in zip(self.names, self.weights, strict=True):
            values = scores[name].dropna().unique()
            constant = _finite(values[0]) if len(values) == 1 and len(texts) > 1 else None
            rewards[name] = {
                "weight": weight,
                "mean": _finite(scores[name].mean()),
                "within_group_std": _finite(spread[name].mean()),
                "zero_spread": float(flat[name].mean()),
                "scored": float(scores[name].notna().mean()),
                "constant": constant,
                "advantage_share": shares[name],
                "rank_correlation": {
                    other: _finite(ranks.loc[name, other]) for other in self.names if other != name
                },
            }

        # 3. how often the policy is right: every judge that scores the row must say so
        judges = self.judges()
        judged = scores[judges].notna().any(axis=1)
        right = ((scores[judges] >= 0.5) | scores[judges].isna()).all(axis=1) & judged
        passed = right.astype(float).where(judged | (not judges))
        rates = passed.groupby(group_of).mean()

        # 4. the whole, and what the texts look like
        opening, closing, *_ = self.tags.tags
        self.results.completions = texts, columns
        self.results.signal = {
            "groups": len(completions),
            "group_size": max(sizes),
            "rewards": rewards,
            "total": {
                "mean": _finite(scores["total"].mean()),
                "zero_spread": float(flat["total"].mean()),
            },
            "judges": judges,
            "pass_rate": [_finite(round(rate, 6)) for rate in rates],
            "answered": float(np.mean([bool(self.tags.answer_blocks(text)) for text in texts])),
            "unopened": not self.tags.opened
            and all(closing in text and opening not in text for text in texts),
            "one_text": float(np.mean([len(set(group)) == 1 for group in dead])) if dead else None,
        }
        return self.results.signal

    def _advantage_shares(self, scores: pd.DataFrame, group_of: np.ndarray) -> dict[str, float]:
        """Return each reward's share in the variance of the advantage that TRL computes."""
        judged = scores["total"].notna()
        weighted = scores[self.names].mul(self.weights).fillna(0.0).where(judged)
        centred = (weighted - weighted.groupby(group_of).transform("mean")).fillna(0.0)
        deviation = scores["total"].groupby(group_of).transform("std", ddof=1).fillna(0.0)
        scaled = centred.div(deviation + 1e-4, axis=0)  # TRL adds 1e-4, too
        advantage = scaled.sum(axis=1)
        variance = float((advantage**2).mean())
        if variance <= _NO_SPREAD:
            return dict.fromkeys(self.names, 0.0)
        return {name: float((scaled[name] * advantage).mean() / variance) for name in self.names}

    def judges(self) -> list[str]:
        """Return the rewards that tell right answers from wrong ones: in `attacks`, their means for
        the two differ by more than 0.25. If `attacks` was not run, return the first reward.
        """
        table = self.results.attacks
        if table is None:
            return self.names[:1]
        gap = table.loc[RIGHT, self.names] - table.loc[WRONG, self.names]
        return [name for name in self.names if gap[name] > 0.25]

    def speed(self) -> pd.Series:
        """Return each reward's milliseconds for 1,000 completions. The completions of `signal` are
        repeated or cut to that number.
        """
        texts, columns = self.results.completions
        repeats = -(-_TIMED // len(texts))
        columns = {key: (values * repeats)[:_TIMED] for key, values in columns.items()}
        texts = (texts * repeats)[:_TIMED]
        milliseconds = {}
        for name, function, weight in zip(self.names, self.functions, self.weights, strict=True):
            # the copied faults tell this lab which reward took too long before
            alone = Lab([function], [weight], faults=[*self.faults])
            began = time.perf_counter()
            alone.scores(texts, **columns)
            milliseconds[name] = 1000 * (time.perf_counter() - began)
        self.results.speed = pd.Series(milliseconds, name="ms per 1,000 completions")
        return self.results.speed

    def verdict(self) -> verdicts.Verdict:
        """Return go or no go, in words, from the steps that were run so far."""
        return verdicts.verdict_on(self)

    def report(self) -> dict:
        """Return all results for a JSON file: `rewards`, `attacks`, `signal` and the `verdict`.

        The entry of a reward has its `source_hash` as `source`.
        """
        results = self.results
        verdict = self.verdict()
        report = {"rewards": {}}
        for name, weight, function in zip(self.names, self.weights, self.functions, strict=True):
            entry = {"weight": weight, "source": source_hash(function)}
            if results.cases is not None:
                scores = results.cases[name].items()
                entry["cases"] = {case: _finite(score) for case, score in scores}
            if results.signal is not None:
                entry |= results.signal["rewards"][name]
            if results.speed is not None:
                entry["ms_per_1000"] = round(float(results.speed[name]), 3)
            entry["faults"] = sum(fault.reward == name for fault in self.faults)
            report["rewards"][name] = entry
        if results.attacks is not None:
            report["attacks"] = {
                name: {"total": _finite(row["total"]), "wins": float(row["wins"])}
                for name, row in results.attacks.iterrows()
            }
        if results.signal is not None:
            of_all = {key: value for key, value in results.signal.items() if key != "rewards"}
            report["signal"] = of_all
        report["verdict"] = {"go": verdict.go, "stops": verdict.stops, "notes": verdict.notes}
        return report


# --- Attacks, scored and compared -----------------------------------------------------------------


@dataclass
class _Trial:
    """Scores of honest answers and of attacks, for each row at each step of the training run.

    1. `answer_honestly` scores a right and a wrong answer to each row.
    2. `score_family` scores the attacks of one name, and keeps the one that earns most on each row
       and step. Before, it leaves out the rows on which an attack is not an attack:

       - Its answer is right. "9 + 1", copied from the question, is right if the row's answer is
         "9 + 1".
       - Its answer lies within a reward's tolerance. With a tolerance of 0.01, "0.7045" is right
         for 0.70456.
       - Its answer is another name for the right one. "US" is right for "USA" if a reward knows
         both.

    tables: by attack, the scores (nan where left out), with the row's number as the index. The
        column `failed` is 1.0 if a reward failed on the completion.
    examples: by attack, the completion for the first row.
    tolerated: by row, an answer that a reward accepts besides the right one.
    """

    lab: Lab
    rows: list[dict]
    steps: list[int]
    length: int
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    tolerated: dict[int, str] = field(default_factory=dict)

    def answer_honestly(self, right: list[Attack], wrong: list[Attack]) -> None:
        """Score the honest answers.

        A reward may accept the wrong answer by a rule of its own: 43 for 42 with a tolerance of 5,
        or any number above 42. Where a wrong answer earns as much as the right one, a number far
        above the right one replaces it, and then a number far below.
        """
        self.score_family(right)
        self.score_family(wrong)
        for further in (FAR, OPPOSITE):
            margins = _margins(self.tables[RIGHT], self.tables[WRONG])
            gaps = margins["total"].groupby(level=0).mean()
            accepted = list(gaps.index[gaps <= _SAME])
            if not accepted:
                break
            for at in accepted:
                self.tolerated.setdefault(at, self.rows[at][WRONG])
                self.rows[at][WRONG] = self.rows[at][further]
            self.score_family(wrong)

    def score_family(self, family: list[Attack]) -> None:
        """Score attacks of one name, and keep the one that earns most on each row and step."""
        name = family[0].name
        written = [
            [attack.write(row, self.lab.tags, self.length) for row in self.rows]
            for attack in family
        ]
        tables = self.scores(written)

        # leave out rows on which an attack is not an attack
        if name not in (RIGHT, WRONG):
            for attack, texts, table in zip(family, written, tables, strict=True):
                if attack.by_chance:
                    self.leave_out_right_answers(texts, table)
                    self.leave_out_tolerated_numbers(texts, table)
        if name == PART:
            self.leave_out_other_names(written, tables)

        # keep the one that earns most
        totals = np.array([table["total"].fillna(-np.inf) for table in tables])
        best = totals.argmax(axis=0)
        self.tables[name] = pd.DataFrame([tables[of].iloc[at] for at, of in enumerate(best)])
        self.examples[name] = written[best[0]][0]

    def scores(self, written: list[list[str]]) -> list[pd.DataFrame]:
        """Return a table of scores for each list of completions, which has one per row: all rows at
        the first step, then all rows at the next.
        """
        count = len(self.rows)
        tables = []
        for first in range(0, len(written), _LISTS_PER_BATCH):
            batch = written[first : first + _LISTS_PER_BATCH]
            texts = [text for completions in batch for text in completions]
            columns = _columns(self.rows * len(batch))
            by_step = []
            for step in self.steps:
                count_before = len(self.lab.faults)
                table = self.lab.scores(texts, step, **columns)
                failed = {fault.position for fault in self.lab.faults[count_before:]}
                if any(fault.advice == LATE for fault in self.lab.faults):
                    failed = range(len(texts))  # a reward is no longer called
                table["failed"] = [float(at in failed) for at in range(len(texts))]
                by_step.append(table)
            # cut the batch into its lists
            for begin in range(0, len(texts), count):
                parts = [table.iloc[begin : begin + count] for table in by_step]
                table = pd.concat(parts, ignore_index=True)
                tables.append(table.set_axis(list(range(count)) * len(self.steps)))
        return tables

    def paid_rows(self, table: pd.DataFrame) -> list[int]:
        """Return the rows on which an attack earns more than an honest wrong answer."""
        wrong = self.tables[WRONG]
        gains = (table["total"] - wrong["total"])[_comparable(table, wrong)]
        gains = gains.groupby(level=0).max()
        return list(gains.index[gains > _SAME])

    def leave_out_right_answers(self, texts: list[str], table: pd.DataFrame) -> None:
        """Leave out rows on which `correctness_reward` calls an attack's answer right."""
        paid = self.paid_rows(table)
        columns = _columns([self.rows[at] for at in paid])
        right = correctness_reward(
            [texts[at] for at in paid],
            columns.get("answer", []),
            self.lab.tags,
            kind=columns.get("kind"),
        )
        for at, score in zip(paid, right, strict=True):
            if score == 1:
                table.loc[at] = np.nan

    def leave_out_tolerated_numbers(self, texts: list[str], table: pd.DataFrame) -> None:
        """Leave out rows on which an attack answers with a number that the rewards accept by a
        tolerance or a slope: the number halfway to the right one earns as much, or more.
        """
        # 1. where both answers are numbers, write the number halfway between
        tags = self.lab.tags
        halfway = list(texts)
        answers = {}  # by row
        for at in self.paid_rows(table):
            answer = (tags.answer_blocks(texts[at]) or [""])[-1].strip()
            number = parse_number(answer)
            gold = parse_number(self.rows[at]["answer"])
            if not number or not gold or max(abs(number.value), abs(gold.value)) >= 1e15:
                continue
            between = (number.value + gold.value) / 2
            if number.value.denominator == gold.value.denominator == 1:
                between = gold.value + int(between - gold.value)  # a reward may need an integer
            if between == gold.value and number.value != gold.value:
                continue  # two neighbouring integers have no number between them
            shown = str(between) if between.denominator == 1 else f"{float(between):.12g}"
            answers[at] = answer
            halfway[at] = honest(self.rows[at], tags, shown)
        if not answers:
            return

        # 2. compare what the three earn, on average over the steps
        (scores,) = self.scores([halfway])
        right = self.tables[RIGHT]
        earned = table["total"].groupby(level=0).mean()
        earned_halfway = scores["total"].groupby(level=0).mean()
        earned_right = right["total"].where(right["failed"] == 0).groupby(level=0).mean()
        for at, answer in answers.items():
            if earned_halfway[at] >= earned[at] - _SAME:
                table.loc[at] = np.nan
                if earned[at] >= earned_right[at] - _SAME:
                    self.tolerated[at] = answer

    def leave_out_other_names(self, written: list[list[str]], tables: list[pd.DataFrame]) -> None:
        """Leave out rows on which exactly one part of the answer pays: it is another name for the
        answer, such as "US" for "USA". For a number, any single digit could be such a part, so rows
        with a number stay.
        """
        paying = [set() for _ in self.rows]  # for each row, the completions that pay
        for texts, table in zip(written, tables, strict=True):
            for at in self.paid_rows(table):
                paying[at].add(texts[at])
        for at, row in enumerate(self.rows):
            if len(paying[at]) == 1 and parse_number(row["answer"]) is None:
                (text,) = paying[at]
                self.tolerated[at] = (self.lab.tags.answer_blocks(text) or [""])[-1]
                for table in tables:
                    table.loc[at] = np.nan


def _margins(table: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the differences of two tables of a `_Trial`, on the rows that can be compared."""
    return (table - other)[_comparable(table, other)]


def _comparable(table: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Return a mask of two tables' rows: False where a row was left out of one of them, or a reward
    failed on it at any step. A missing score is not evidence.
    """
    failed = table["failed"] + other["failed"]  # nan if left out
    return ~table.index.isin(failed.index[failed != 0])


def _compared(
    tables: dict[str, pd.DataFrame], ceilings: dict[str, str], weights: pd.Series
) -> tuple[pd.DataFrame, list[int]]:
    """Return the table of `Lab.attacks` without its examples, and the rows on which an honest wrong
    answer earns as much as a right one.
    """
    winners = pd.DataFrame({name: table.mean() for name, table in tables.items()}).T
    winners = winners.drop(columns="failed").assign(wins=0.0, gain=0.0, paid_by="")
    lost = []
    for name, ceiling in ceilings.items():
        margins = _margins(tables[name], tables[ceiling])
        if name == WRONG:
            # A tie with the right answer is enough. The mean over all steps decides, because a
            # schedule may begin with a reward that is the same for right and wrong answers.
            margins = margins.groupby(level=0).mean()
            won = margins[margins["total"] > -_SAME]
            lost = list(won.index)
        else:
            won = margins[margins["total"] > _SAME]
        if len(won):
            paid = won[weights.index].mean().mul(weights).fillna(0.0)
            winners.loc[name, "wins"] = len(won) / margins["total"].count()
            winners.loc[name, "gain"] = won["total"].mean()
            winners.loc[name, "paid_by"] = paid.idxmax()
    return winners, lost


# --- What the rewards are called with -------------------------------------------------------------


def _from_the_trainer(step: int, max_steps: int) -> dict:
    """Return the arguments that TRL passes besides the data. Nothing is logged."""
    state = SimpleNamespace(
        global_step=step,
        max_steps=max_steps,
        epoch=step / max_steps,
        num_train_epochs=1,
        log_history=[],
        is_world_process_zero=True,
    )
    return {
        "trainer_state": state,
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }


def _records(rows: pd.DataFrame) -> list[dict]:
    """Return rows as TRL passes them. Pandas reads a list from a Parquet file as an array; here it
    is a list again.
    """
    as_lists = rows.map(lambda value: value.tolist() if isinstance(value, np.ndarray) else value)
    return as_lists.to_dict("records")


def _columns(records: list[dict]) -> dict[str, list]:
    """Return the columns of records as TRL passes them; `prompt` is called `prompts`."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {
        name: [record.get(name) for record in records] for name in names if name not in _NOT_PASSED
    }
    if "prompt" in names:
        columns["prompts"] = [record.get("prompt") for record in records]
    return columns


# columns of the laboratory's own, and columns that TRL fills itself
_NOT_PASSED = {
    *("prompt", "prompts", "completion", "completions", "completion_ids"),
    *(WRONG, FAR, OPPOSITE),
}


def _finite(value: float) -> float | None:
    """Return the number for JSON, which has no nan: None instead."""
    return float(value) if np.isfinite(value) else None
