"""The laboratory: try, attack, measure and time a list of weighted rewards before training.

    lab = Lab(reward_functions, reward_weights, tags)
    lab.cases()                       # do completions with a known score earn it?
    lab.attacks(rows)                 # does cheating pay?
    lab.signal(rows, completions)     # what would GRPO learn from this policy's completions?
    lab.speed()
    print(lab.verdict())              # go or no go, and what to change

Each step is optional, and the verdict covers the steps that were run; `examine` runs all of them.
No model is needed: `stored_groups` reads the completions of an earlier run.

The steps are the methods of `Lab`, in this order. `RewardsUnderTest` has the method `scores`, with
which all of them call the rewards. `groups.py` has the numbers of `signal`.
"""

import math
import re
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.laboratory import verdicts
from helpers.laboratory.attack_templates import WRONG, Attack, honest
from helpers.laboratory.attacks import BATTERY, HONEST, with_wrong_answers
from helpers.laboratory.cases import load_cases, suite_cases
from helpers.laboratory.groups import (
    Groups,
    are_right,
    columns_of,
    finite,
    in_groups,
    is_flat,
    records_of,
    reward_statistics,
)
from helpers.laboratory.own_attacks import for_own
from helpers.laboratory.program_attacks import (
    CODE_BATTERY,
    CODE_NAMES,
    FORMS,
    are_programs,
    with_wrong_programs,
)
from helpers.laboratory.trial import AttackTrial
from helpers.laboratory.under_test import (
    HONEST_CORRECT,
    HONEST_WRONG,
    JUDGED_AGAIN,
    RewardsUnderTest,
)
from helpers.rewards import LIBRARY
from helpers.rewards.common import code_of, is_own, source_hash
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.faults import OUT_OF_TIME, checked_scores
from helpers.rewards.own import TextReward

_TIMED = 1000  # completions that `speed` scores
_ROWS_ATTACKED = 16  # the most rows that `attacks` attacks


@dataclass
class Lab(RewardsUnderTest):
    """The steps of the laboratory, one method each, which keep what they return in `results`.

    `Lab(functions, weights, tags, max_steps)`: see `RewardsUnderTest`.
    """

    def give_texts(self, rows: pd.DataFrame) -> None:
        """Wrap rewards that read completions as texts in a `TextReward`: your own rewards that fail
        on messages, or score all of them alike, and do neither with texts.
        """
        # 1. Write a few different completions of the first row, as messages.
        (row,) = with_wrong_answers(records_of(rows.head(1)))
        tried = [*HONEST, *BATTERY[:2], *BATTERY[-4:]]
        texts = [attack.write(row, self.tags, 50) for attack in tried]
        messages = [[{"role": "assistant", "content": text}] for text in texts]

        # 2. Keep each of your rewards as it is, if that works, or else wrapped. If neither works,
        # keep it as it is.
        columns = columns_of([row] * len(texts))
        for position, reward in enumerate(self.functions):
            if not is_own(reward):
                continue
            for candidate in (reward, TextReward(reward)):
                scores, faults = checked_scores(candidate, messages, columns)
                if not faults and len(set(scores)) > 1:
                    self.functions[position] = candidate
                    break

    def group(self, row: pd.Series, completions: list[str]) -> pd.DataFrame:
        """Return the `scores` of several completions of one row."""
        (record,) = records_of(row.to_frame().T)
        return self.scores(completions, **columns_of([record] * len(completions)))

    def examine(
        self,
        rows: pd.DataFrame,
        length: int = 200,
        groups: tuple[pd.DataFrame, list[list[str]]] | None = None,
        cases: str | Path | None = None,
    ) -> verdicts.Verdict:
        """Run all steps on rows of data, and return the verdict.

        length: see `attacks`. cases: see `cases`.
        groups: the arguments of `signal`, such as `stored_groups` returns. Without them, neither
            `signal` nor `speed` is run: both need completions with their columns.
        """
        self.cases(cases, rows)
        self.attacks(rows, length)
        if groups is not None:
            self.signal(*groups)
            self.speed()
        return self.verdict()

    def cases(
        self, path: str | Path | None = None, rows: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return the scores of completions whose correct score is known: one row per case, with the
        expected scores as `expected <reward>`.

        path: a file of your own cases, one JSON object per line: `name`, `completion`, `expected`
            (reward name to score), and columns of the row such as `answer`. By default, the suite's
            own cases, which take the columns they lack from your `rows`.

        Raise ValueError if a line is not such an object, or if an expected score is of an unknown
        reward.
        """
        # 1. Read the cases, and refuse an expected score of an unknown reward.
        loaded = suite_cases(self.tags) if path is None else load_cases(path)
        known = {*self.names, *(f"{name}_reward" for name in LIBRARY)}
        for case in loaded:
            unknown = sorted(case["expected"].keys() - known)
            if unknown:
                raise ValueError(
                    f"case {case['name']!r} expects a score of {unknown[0]!r}, which is not a "
                    f"reward. The rewards here: {', '.join(self.names)}."
                )

        # 2. Make a row of data of each case. The suite's cases take the columns that they lack from
        # your rows, but not the question and the kind, which could change which answer is correct.
        your_rows = [{}]
        neutral = {}
        if path is None:
            neutral = {"question": "What is asked?", "kind": None}
            if rows is not None:
                your_rows = records_of(rows.head(len(loaded)))
        records = []
        for number, case in enumerate(loaded):
            your_row = your_rows[number % len(your_rows)]
            columns_of_case = {key: case[key] for key in case if key not in ("name", "expected")}
            # of two values of one column, the last one counts
            records.append(your_row | neutral | columns_of_case)

        # 3. Score them. The suite's cases are not your data, so a reward may fail on them: keep
        # only the faults of rewards that ran out of time.
        faults_before = list(self.faults)
        with warnings.catch_warnings():
            if path is None:  # one of the suite's cases is about a row without an answer
                warnings.filterwarnings("ignore", ".*rows have no answer")
            table = self.scores([case["completion"] for case in loaded], **columns_of(records))
        if path is None:
            added = self.faults[len(faults_before) :]
            too_slow = [fault for fault in added if fault.cause == OUT_OF_TIME]
            self.faults[:] = faults_before + too_slow

        # 4. Put the expected scores beside the scores.
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
        battery: the attacks. If the rows have tests of programs, CODE_BATTERY is added, and attacks
            of BATTERY that do not suit programs are left out. Attacks of your own are all tried.

        Each attack is compared with its ceiling: an honest wrong answer, or an honest correct
        answer if the attack is the correct answer in another form. `wins` is the share of rows on
        which the attack earns more than its ceiling, `gain` the mean difference on these rows, and
        `paid_by` the reward that contributes most to it. A row is left out of the comparison if a
        reward failed on one of the two completions, or if the attack happens to be correct.
        trial.py begins with two worked rows: a win, and a row that is left out.

        If a reward gives the same completion different scores, only the two honest answers are
        tried, and `wins` is nan.

        If a reward reads the `trainer_state`, each row is attacked at a dozen steps spread over the
        training run.
        """
        answered = rows[rows["answer"].notna()] if "answer" in rows else rows.head(0)
        if not len(answered):
            raise ValueError(
                "the attacks need rows with an `answer`: what would an honest correct answer be?"
            )
        # 1. Take rows spread over the data.
        places = np.linspace(0, len(answered) - 1, min(_ROWS_ATTACKED, len(answered))).astype(int)
        attacked = with_wrong_answers(records_of(answered.iloc[places]))

        # 2. On programs, try CODE_BATTERY, in the first form in which right programs earn most. It
        # replaces attacks of BATTERY with the same names, and those with several answers or a part
        # of one: the last program counts.
        if are_programs(attacked):
            attacked = max(
                (with_wrong_programs(attacked, form) for form in FORMS), key=self._margin
            )
            battery = [
                *(attack for attack in CODE_BATTERY if attack not in battery),
                *(
                    attack
                    for attack in battery
                    if attack not in BATTERY
                    or (attack.name not in CODE_NAMES and not attack.by_chance)
                ),
            ]

        # 3. Take steps of the training run. One is enough unless a reward follows a schedule, which
        # may pay only now and then: then take the middle, the end, and a step from each tenth of
        # the run, with ten different last digits.
        steps = {0}
        if any("trainer_state" in code_of(function) for function in self.functions):
            steps |= {self.max_steps // 2, self.max_steps - 1}
            steps |= {tenth * self.max_steps // 10 + tenth for tenth in range(10)}
        steps = sorted(step for step in steps if step < max(1, self.max_steps))

        # 4. Put attacks with the same name into a family.
        families = {}
        for attack in [*HONEST, *battery, *for_own(self.functions, attacked, self.tags)]:
            families.setdefault(attack.name, []).append(attack)

        # 5. Score them, and compare them with the honest answers. If scores are luck, so are wins.
        self.results.unsteady.clear()
        trial = AttackTrial(self, attacked, steps, length, correctness_reward)
        table = trial.run(families).sort_values("total", ascending=False, kind="stable")
        if self.results.unsteady:
            table[["wins", "gain"]] = np.nan

        # 6. Choose the step at which `signal` scores: the one with the largest gap between correct
        # and wrong answers, in the mean over the rows.
        gaps = trial.scored[HONEST_CORRECT].totals - trial.scored[HONEST_WRONG].totals
        gap_by_step = np.nan_to_num(gaps).mean(axis=1)
        self.step = steps[int(gap_by_step.argmax())]

        # 7. Keep what the verdict and the report read.
        self.results.attacks = table
        self.results.columns = [name for name in rows.columns if name != "prompt"]
        self.results.escapes = trial.escapes
        self.results.ceilings = {name: family[0].ceiling for name, family in families.items()}
        lost_rows = [trial.rows[number] for number in trial.lost]
        self.results.lost = [(row["answer"], row[WRONG]) for row in lost_rows]
        kept = [number for number in trial.tolerated if number not in trial.lost]
        self.results.tolerated = [
            (trial.rows[number]["answer"], trial.tolerated[number]) for number in kept
        ]
        return table

    def _margin(self, rows: list[dict]) -> float:
        """Return how much more honest correct answers of rows earn than honest wrong ones."""
        right, wrong = (
            self.scores([honest(row, self.tags, row[key]) for row in rows], **columns_of(rows))
            for key in ("answer", WRONG)
        )
        return (right["total"] - wrong["total"]).sum()

    def signal(
        self, rows: pd.DataFrame, completions: list[list[str]], cut_off: float = 0.0
    ) -> dict:
        """Return what GRPO would learn from groups of completions, as the `signal` of the report.

        completions: one group of at least two per row.
        cut_off: the share of them that ended at the limit of tokens, if it is known.

        Returns a dict:

        - `groups`: their number. `group_size`: the largest.
        - `rewards`: see `reward_statistics`.
        - `total`: `mean` and `zero_spread` of the weighted sum.
        - `judges`: the rewards that `judges()` returns.
        - `pass_rate`: for each group, the share of completions that the judges call correct; None
          if no judge scores the row.
        - `answered`: the share of completions with a complete answer block. `cut_off`: as given.
        - `want_opening`: the rewards that give all completions 0, but not if each begins with the
          tag that opens the reasoning.
        - `run_on`: the share of completions that write on behind their first answer.
        - `first_answer`: the share of completions that would be correct if they ended behind their
          first answer; None if little is behind it.
        - `one_text`: of the groups with equal totals, the share that consist of one text; None
          without such a group.
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
        # 1. Score all completions, and measure the spread of each group's scores.
        groups = in_groups(rows, completions)
        scores = self.scores(groups.texts, self.step, **groups.columns)
        self._note_other_scores(groups)
        spread = scores.groupby(groups.numbers).std(ddof=1)  # as in TRL (torch.std)
        total_is_flat = is_flat(spread["total"])

        # 2. Describe each reward by itself.
        weights = pd.Series(self.weights, self.names)
        rewards = reward_statistics(scores, spread, groups.numbers, weights)

        # 3. Compute the share of correct completions in each group.
        judges = self.judges()
        pass_rate = are_right(scores[judges]).groupby(groups.numbers).mean()

        # 4. Find the groups with equal totals that consist of one text.
        flat_groups = total_is_flat.index[total_is_flat]
        is_one_text = [len(set(completions[number])) == 1 for number in flat_groups]

        # 5. Find the rewards that miss a tag, which only the prompt has.
        always_zero = [name for name in self.names if rewards[name]["constant"] == 0]
        want_opening = self._want_opening(always_zero, groups)

        # 6. Find text behind first answers: it may be what keeps answers from being correct.
        until_answer = [self._until_first_answer(text) for text in groups.texts]
        pairs = zip(groups.texts, until_answer, strict=True)
        runs_on = [text[len(kept) :].strip() != "" for text, kept in pairs]

        # 7. Keep the texts for `speed`, and the numbers for the verdict and the report.
        self.results.completions = groups.texts, groups.columns
        self.results.signal = {
            "groups": len(completions),
            "group_size": max(sizes),
            "rewards": rewards,
            "total": {
                "mean": finite(scores["total"].mean()),
                "zero_spread": float(total_is_flat.mean()),
            },
            "judges": judges,
            "pass_rate": [finite(round(rate, 6)) for rate in pass_rate],
            "answered": float(
                np.mean([bool(self.tags.answer_blocks(text)) for text in groups.texts])
            ),
            "cut_off": cut_off,
            "want_opening": want_opening,
            "run_on": float(np.mean(runs_on)),
            "first_answer": self._first_answer_rate(until_answer, groups),
            "one_text": float(np.mean(is_one_text)) if is_one_text else None,
        }
        return self.results.signal

    def _note_other_scores(self, groups: Groups) -> None:
        """Score at most JUDGED_AGAIN completions twice more, to find rewards that give other scores
        in other calls.
        """
        some = slice(None, None, 1 + len(groups.texts) // JUDGED_AGAIN)
        columns = {name: values[some] for name, values in groups.columns.items()}
        before = self.scores_of_copies(groups.texts[some], self.step, **columns)
        after = self.scores_of_copies(groups.texts[some], self.step, **columns)
        self.note_unsteady(before, after)

    def _want_opening(self, always_zero: list[str], groups: Groups) -> list[str]:
        """Return which of the rewards that give 0 to all completions give one of them more if each
        begins with the tag that opens the reasoning. The prompt may have opened it.
        """
        if not always_zero:
            return []
        opened = [self.tags.tags[0] + text for text in groups.texts]
        with self.again():
            scores = self.scores(opened, self.step, **groups.columns)
        return [name for name in always_zero if scores[name].max() > 0]

    def _first_answer_rate(self, until_answer: list[str], groups: Groups) -> float | None:
        """Return the share of completions that would be correct if they ended behind their first
        answer; None if that would not make them shorter by a tenth.
        """
        if sum(map(len, groups.texts)) <= 1.1 * sum(map(len, until_answer)):
            return None
        with self.again():
            scores = self.scores(until_answer, self.step, **groups.columns)
        return finite(are_right(scores[self.judges()]).mean())

    def _until_first_answer(self, text: str) -> str:
        """Return a completion without what is behind its first answer block. A block inside the
        reasoning is no answer.
        """
        _, reasoning_end, _, answer_end = self.tags.tags
        first = re.match(rf"(?s)(?:.*?{reasoning_end})?.*?{answer_end}", text)
        return first[0] if first else text

    def pass_rates(self, rows: pd.DataFrame, completions: list[list[str]]) -> list[float | None]:
        """Return the share of each row's completions that the judges call correct; None if no judge
        scores the row. Unlike `signal`, it keeps no result.

        completions: one group per row.
        """
        groups = in_groups(rows, completions)
        scores = self.scores(groups.texts, self.step, **groups.columns)
        right = are_right(scores[self.judges()])
        return [finite(rate) for rate in right.groupby(groups.numbers).mean()]

    def speed(self) -> pd.Series:
        """Return each reward's milliseconds for 1,000 completions. The completions of `signal` are
        repeated or cut to that number.
        """
        texts, columns = self.results.completions
        repeats = math.ceil(_TIMED / len(texts))
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
                entry["cases"] = {
                    case: finite(score) for case, score in results.cases[name].items()
                }
            if results.signal is not None:
                entry |= results.signal["rewards"][name]
            if results.speed is not None:
                entry["ms_per_1000"] = round(float(results.speed[name]), 3)
            entry["faults"] = sum(fault.reward == name for fault in self.faults)
            report["rewards"][name] = entry
        if results.attacks is not None:
            report["attacks"] = {
                name: {"total": finite(row["total"]), "wins": finite(row["wins"])}
                for name, row in results.attacks.iterrows()
            }
        if results.signal is not None:
            report["signal"] = {
                key: value for key, value in results.signal.items() if key != "rewards"
            }
        report["verdict"] = {"go": verdict.go, "stops": verdict.stops, "notes": verdict.notes}
        return report


def signal_lines(lab: Lab) -> list[str]:
    """Return what GRPO would learn from the completions of `Lab.signal`, as two lines."""
    signal = lab.results.signal
    rewards = signal["rewards"].items()
    shares = [f"{name} {statistics['advantage_share']:.0%}" for name, statistics in rewards]
    return [
        f"dead groups: {signal['total']['zero_spread']:.0%} of {signal['groups']}",
        f"shares of the advantage: {', '.join(shares)}",
    ]
