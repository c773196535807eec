"""The laboratory: a list of rewards with weights is tried, attacked, measured and timed before it
trains anything.

    lab = Lab(reward_functions, reward_weights, tags)
    lab.cases()                       # completions with a known score
    lab.attacks(rows)                 # does cheating pay?
    lab.signal(rows, completions)     # what would GRPO learn from what this policy writes?
    lab.speed()
    print(lab.verdict())              # go or no go, and what to change

Each step can be left out; the verdict speaks of what was done. No model is needed: `stored_groups`
reads the completions of a run.
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
from helpers.rewards.lab import attacks, verdicts
from helpers.rewards.lab.cases import load_cases
from helpers.tags import THINK_ANSWER, TagFormat

_TIMED = 1000  # completions
_ROWS_ATTACKED = 16
# columns of a record that are ours, or that TRL gives another content
_NOT_PASSED = {
    "prompt",
    "prompts",
    "completion",
    "completions",
    "completion_ids",
    attacks.WRONG,
    attacks.FAR,
    attacks.OPPOSITE,
}
_SAME = 1e-6  # scores closer than this are equal
_NO_SPREAD = 1e-8  # TRL's isclose: rounding is no spread


@dataclass
class Results:
    """What a lab has found out: what its steps return, None for those that were not run.

    ceilings: what each attack was compared with. lost: right answers, each with a wrong one that
    earns as much. tolerated: right answers, each with one that a reward takes for the same by its
    own measure. completions: the texts of `signal`, and the columns that the rewards get for them.
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
    """Rewards on the bench, and what was found out about them so far.

    functions, weights: as for GRPOTrainer and GRPOConfig, one weight a function. max_steps: of the
    training, for rewards that follow a schedule. For rewards that count tokens a word is a token
    here. ValueError where the numbers of both differ, or two rewards have one name (TRL logs them
    by name).

    faults: what the rewards got wrong on your rows.
    """

    functions: list[Callable]
    weights: list[float]
    tags: TagFormat = THINK_ANSWER
    max_steps: int = 100
    results: Results = field(default_factory=Results)
    faults: list[Fault] = field(default_factory=list)
    step: int = 0  # at which the attacks found right and wrong answers furthest apart

    def __post_init__(self):
        if len(self.functions) != len(self.weights) or not self.functions:
            raise ValueError(
                f"{len(self.functions)} rewards and {len(self.weights)} weights: each reward "
                "needs one weight."
            )
        self.names = [reward_name(function) for function in self.functions]
        for name in self.names:
            if self.names.count(name) > 1 or name in ("total", "wins", "gain", "paid_by"):
                raise ValueError(
                    f"two columns of the tables would be called {name!r}, and TRL logs rewards by "
                    "name: wrap one in a function of its own."
                )

    def scores(self, completions: list[str], step: int = 0, /, **columns: list) -> pd.DataFrame:
        """Return a row per completion: each reward's score (nan for None) and the weighted `total`,
        called as TRL would call them at this step. A column may be called `step`, too.

        columns: lists with one entry per completion. What a reward gets wrong is added to `faults`.
        A reward that has once taken too long is not called again.
        """
        messages = [[{"role": "assistant", "content": text}] for text in completions]
        words = [[hash(word) % 2**31 for word in text.split()] for text in completions]
        columns = {"prompts": [[{"role": "user", "content": ""}] for _ in completions]} | columns
        columns |= {"completion_ids": words} | _from_the_trainer(step, self.max_steps)
        late = {fault.reward for fault in self.faults if fault.advice == LATE}
        table = pd.DataFrame(index=range(len(completions)))
        for name, function in zip(self.names, self.functions, strict=True):
            scored = [None] * len(completions)
            if name not in late:
                scored, faults = checked_scores(function, messages, columns, is_own(function))
                self.faults += faults
            table[name] = pd.Series(scored, dtype=float)
        # As in TRL: a reward that abstains adds nothing; where all abstain there is no total.
        table["total"] = table[self.names].mul(self.weights).sum(axis=1, min_count=1)
        return table

    def group(self, row: pd.Series, completions: list[str]) -> pd.DataFrame:
        """Return the scores of several completions of one row."""
        return self.scores(completions, **_columns(_records(row.to_frame().T) * len(completions)))

    def cases(
        self, path: str | Path | None = None, rows: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return completions with a known score, a row each: the scores, the `total`, and the
        expected scores as `expected <reward>`.

        path: a file of your own, a JSON object a line: `name`, `completion`, `expected` (reward
        name to score), and the row's columns such as `answer`. Without one, the suite's own, which
        take columns that they lack from your `rows`. ValueError names the line that is not such an
        object.
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
        others = [{}]
        if path is None and rows is not None:
            others = _records(rows.head(len(loaded)))
        # a question or a kind of the data would change what is right
        neutral = {"question": "What is asked?", "kind": None} if path is None else {}
        columns = _columns(
            [
                # a column of the data may have these two names
                others[at % len(others)]
                | neutral
                | {key: case[key] for key in case if key not in ("name", "expected")}
                for at, case in enumerate(loaded)
            ]
        )
        before = len(self.faults)
        table = self.scores([case["completion"] for case in loaded], **columns)
        table = table.set_axis([case["name"] for case in loaded])
        if path is None:
            # the suite's cases are not the user's data: what fails on them alone does not count
            late = [fault for fault in self.faults[before:] if fault.advice == LATE]
            self.faults[before:] = late
        for reward in self.names:
            table[f"expected {reward}"] = [case["expected"].get(reward, np.nan) for case in loaded]
        self.results.cases = table
        return table

    def attacks(
        self, rows: pd.DataFrame, length: int = 200, battery: list[attacks.Attack] = attacks.BATTERY
    ) -> pd.DataFrame:
        """Return what cheating earns on real rows: a row per attack, best first, with the mean
        scores and an `example`.

        rows: data with an `answer`; 16 from all over it are used. length: the bound of a completion
        in words. `wins` is the share of rows where the attack earns more than its ceiling: an
        honest wrong answer, or an honest right one where it holds the right answer. `gain`: by how
        much there, on average; `paid_by`: the reward that gives most of it. Rows where an attack is
        the right answer do not count, nor those where a reward takes it for right by a tolerance or
        as another name. If a reward reads the `trainer_state`, a dozen steps from all over the
        training count as rows of their own.
        """
        answered = rows[rows["answer"].notna()] if "answer" in rows else rows.head(0)
        if not len(answered):
            raise ValueError(
                "the attacks need rows with an `answer`: what would an honest right answer be?"
            )
        # 1. rows from all over the data, and steps of the training: a schedule may pay now and
        # then, so of each tenth one, each with another last digit
        places = np.linspace(0, len(answered) - 1, min(_ROWS_ATTACKED, len(answered))).astype(int)
        attacked = attacks.with_wrong_answers(_records(answered.iloc[places]))
        steps = {0}
        if any("trainer_state" in source_of(function) for function in self.functions):
            steps |= {self.max_steps // 2, self.max_steps - 1}
            steps |= {tenth * self.max_steps // 10 + tenth for tenth in range(10)}
        steps = sorted(step for step in steps if step < max(1, self.max_steps))

        # 2. the attacks, in families of one name
        families = {}
        own = attacks.for_own(self.functions, attacked, self.tags)
        for attack in [*attacks.HONEST, *battery, *own]:
            families.setdefault(attack.name, []).append(attack)

        # 3. honest answers first: the others are compared with them
        trial = _Trial(self, attacked, steps, length)
        trial.answer_honestly(families[attacks.RIGHT], families[attacks.WRONG])
        tables = {}
        examples = {}
        for name, family in families.items():
            examples[name], tables[name] = trial.best_of(family)

        # 4. who wins
        ceilings = {name: family[0].ceiling for name, family in families.items()}
        table = _winners(tables, ceilings, pd.Series(self.weights, self.names))
        table = table.assign(example=examples).sort_values("total", ascending=False, kind="stable")

        # 5. where right and wrong answers are furthest apart, and where they are not apart at all
        gaps = (tables[attacks.RIGHT] - tables[attacks.WRONG])["total"].fillna(0.0)
        self.step = steps[gaps.to_numpy().reshape(len(steps), -1).mean(axis=1).argmax()]
        lost = [at for at, gap in gaps.groupby(level=0).mean().items() if gap < _SAME]
        near = {at: text for at, text in trial.near.items() if at not in lost}
        self.results.attacks = table
        self.results.ceilings = ceilings
        self.results.lost = [(attacked[at]["answer"], attacked[at][attacks.WRONG]) for at in lost]
        self.results.tolerated = [(attacked[at]["answer"], text) for at, text in near.items()]
        return table

    def signal(self, rows: pd.DataFrame, completions: list[list[str]]) -> dict:
        """Return what GRPO would learn from: statistics of the rewards on groups of completions,
        one group per row.

        Returns a dict: `groups`, `group_size`; per reward its `mean`, `within_group_std`,
        `zero_spread` (share of groups that all score the same), `scored` (share of completions with
        a score), `constant` (the one number that all completions got, or None), `advantage_share`
        (of the variance of TRL's group-scaled advantage; the shares sum to 1), `rank_correlation`
        with the others (Spearman); for the weighted total `mean` and `zero_spread`; `pass_rate`,
        one per row, by those of the rewards that tell a right answer from a wrong one (`judges`,
        known once `attacks` was run) that judge the row, and None if none does. Of the texts:
        `answered`, the share with a complete answer block; `unopened`, whether all close the
        reasoning and none opens it; `one_text`, the share of dead groups with a single text.
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
        # 1. the scores, and which groups differ
        group_of = np.repeat(np.arange(len(completions)), sizes)
        records = _records(rows)
        columns = _columns([records[group] for group in group_of])
        texts = [text for group in completions for text in group]
        scores = self.scores(texts, self.step, **columns)
        spread = scores.groupby(group_of).std(ddof=1)  # as TRL: torch's std, of the group
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

        # 3. how often the policy is right
        judges = self.judges()
        # a reward for another task gives a row no score
        spoken = scores[judges].notna().any(axis=1)
        right = ((scores[judges] >= 0.5) | scores[judges].isna()).all(axis=1) & spoken
        passed = right.astype(float).where(spoken | (not judges))
        rates = passed.groupby(group_of).mean()

        # 4. all of it, with what the texts look like
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
        """Return the share of each reward in the variance of the advantage that TRL computes."""
        judged = scores["total"].notna()
        weighted = scores[self.names].mul(self.weights).fillna(0.0).where(judged)
        centred = (weighted - weighted.groupby(group_of).transform("mean")).fillna(0.0)
        deviation = scores["total"].groupby(group_of).transform("std", ddof=1).fillna(0.0)
        scaled = centred.div(deviation + 1e-4, axis=0)  # the 1e-4 is TRL's
        advantage = scaled.sum(axis=1)
        variance = float((advantage**2).mean())
        if variance <= _NO_SPREAD:
            return dict.fromkeys(self.names, 0.0)
        return {name: float((scaled[name] * advantage).mean() / variance) for name in self.names}

    def judges(self) -> list[str]:
        """Return the rewards that tell a right answer from a wrong one, by what the attacks found;
        before them, the first reward.
        """
        table = self.results.attacks
        if table is None:
            return self.names[:1]
        gap = table.loc[attacks.RIGHT, self.names] - table.loc[attacks.WRONG, self.names]
        return [name for name in self.names if gap[name] > 0.25]

    def speed(self) -> pd.Series:
        """Return milliseconds for 1,000 completions, per reward: those of `signal`, repeated or cut
        to that number.
        """
        texts, columns = self.results.completions
        repeats = -(-_TIMED // len(texts))
        columns = {key: (values * repeats)[:_TIMED] for key, values in columns.items()}
        texts = (texts * repeats)[:_TIMED]
        milliseconds = {}
        for name, function, weight in zip(self.names, self.functions, self.weights, strict=True):
            began = time.perf_counter()
            # one that took too long is known by its faults
            Lab([function], [weight], faults=[*self.faults]).scores(texts, **columns)
            milliseconds[name] = 1000 * (time.perf_counter() - began)
        self.results.speed = pd.Series(milliseconds, name="ms per 1,000 completions")
        return self.results.speed

    def verdict(self) -> verdicts.Verdict:
        """Go or no go, in words, from everything that was done so far."""
        return verdicts.verdict_on(self)

    def report(self) -> dict:
        """Return all results as JSON: `rewards` with an entry each, `attacks`, `signal`, and the
        `verdict`. An entry's `source` is the reward's `source_hash`.
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


def _winners(
    tables: dict[str, pd.DataFrame], ceilings: dict[str, str], weights: pd.Series
) -> pd.DataFrame:
    """Return the mean scores of each attack, with the share of rows where it `wins`, its `gain`
    there, and the reward that `paid_by` names.

    tables: the scores of each attack and of the honest answers, by row and step.
    """
    winners = pd.DataFrame({name: table.mean() for name, table in tables.items()}).T
    winners = winners.assign(wins=0.0, gain=0.0, paid_by="")
    for name, ceiling in ceilings.items():
        margin = tables[name] - tables[ceiling]
        least = _SAME
        if name == attacks.WRONG:
            # it wins by a tie with the right answer, and over all steps: a schedule may begin with
            # what tells no right answer from a wrong one
            margin = margin.groupby(level=0).mean()
            least = -_SAME
        won = margin[margin["total"] > least]
        if len(won):
            paid = won[weights.index].mean().mul(weights).fillna(0.0)
            winners.loc[name, "wins"] = len(won) / margin["total"].count()
            winners.loc[name, "gain"] = won["total"].mean()
            winners.loc[name, "paid_by"] = paid.idxmax()
    return winners


@dataclass
class _Trial:
    """Attacks on rows, each at these steps of the training.

    right, wrong: the scores of honest answers, by row and step. near: for rows where a reward takes
    another answer for right, too, by its own measure, that answer.
    """

    lab: Lab
    rows: list[dict]
    steps: list[int]
    length: int
    right: pd.DataFrame | None = None
    wrong: pd.DataFrame | None = None
    near: dict[int, str] = field(default_factory=dict)

    def scores(self, written: list[list[str]]) -> list[pd.DataFrame]:
        """Return the scores of each list of completions, which has one per row, at one step after
        another; the index is the row. Up to 16 lists are a batch.
        """
        count = len(self.rows)
        tables = []
        for first in range(0, len(written), 16):
            several = written[first : first + 16]
            columns = _columns(self.rows * len(several))
            texts = [text for texts in several for text in texts]
            of_steps = [self.lab.scores(texts, step, **columns) for step in self.steps]
            for begin in range(0, len(texts), count):
                of_list = [table.iloc[begin : begin + count] for table in of_steps]
                table = pd.concat(of_list, ignore_index=True)
                tables.append(table.set_axis(list(range(count)) * len(self.steps)))
        return tables

    def answer_honestly(self, right: list[attacks.Attack], wrong: list[attacks.Attack]) -> None:
        """Score honest answers. A wrong one that earns as much as the right one may lie in a
        reward's tolerance, or be right by its rule: then take one far off, on either side.
        """
        _, self.right = self.best_of(right)
        for further in (attacks.FAR, attacks.OPPOSITE, None):
            _, self.wrong = self.best_of(wrong)
            gaps = (self.right["total"] - self.wrong["total"]).groupby(level=0).mean()
            for at in gaps.index[gaps <= _SAME] if further else ():
                self.near.setdefault(at, self.rows[at][attacks.WRONG])
                self.rows[at][attacks.WRONG] = self.rows[at][further]

    def best_of(self, family: list[attacks.Attack]) -> tuple[str, pd.DataFrame]:
        """Return the attack that earns most, on each row at each step: the text of the first row,
        and the scores; nan where it is the right answer.
        """
        written = [
            [attack.write(row, self.lab.tags, self.length) for row in self.rows]
            for attack in family
        ]
        tables = self.scores(written)
        # an attack that is right is none; honest answers stay as they are
        for attack, texts, table in zip(family, written, tables, strict=True):
            if attack.by_chance and attack.name not in (attacks.RIGHT, attacks.WRONG):
                self._leave_out_right_ones(texts, table)
        if family[0].name == attacks.PART:
            self._leave_out_aliases(written, tables)
        # of the family the best on each row
        totals = np.array([table["total"].fillna(-np.inf) for table in tables])
        best = totals.argmax(axis=0)
        scores = np.array(tables)[best, np.arange(len(best))]
        return written[best[0]][0], pd.DataFrame(scores, tables[0].index, tables[0].columns)

    def _paid(self, table: pd.DataFrame) -> list[int]:
        """Return the rows on which an attack earns more than an honest wrong answer."""
        gains = (table["total"] - self.wrong["total"]).groupby(level=0).max()
        return list(gains.index[gains > _SAME])

    def _leave_out_right_ones(self, texts: list[str], table: pd.DataFrame) -> None:
        """Make the scores nan of an attack on rows where what it answers is right, by
        `correctness_reward` or by the rewards' own measure of numbers.
        """
        paid = self._paid(table)
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
        self._leave_out_near_numbers(texts, table)

    def _leave_out_near_numbers(self, texts: list[str], table: pd.DataFrame) -> None:
        """Make the scores nan of an attack on rows where it answers with a number, and one halfway
        to the right number pays as well: the rewards have a tolerance, or a slope.
        """
        tags = self.lab.tags
        halfway = list(texts)
        answers = {}
        for at in self._paid(table):
            answer = (tags.answer_blocks(texts[at]) or [""])[-1].strip()
            number = parse_number(answer)
            gold = parse_number(self.rows[at]["answer"])
            if number and gold and max(abs(number.value), abs(gold.value)) < 1e15:
                between = (number.value + gold.value) / 2
                if number.value.denominator == gold.value.denominator == 1:
                    between = gold.value + int(between - gold.value)  # rewards may ask for integers
                shown = str(between) if between.denominator == 1 else f"{float(between):.12g}"
                if between != gold.value or number.value == gold.value:
                    answers[at] = answer
                    halfway[at] = attacks.honest(self.rows[at], tags, shown)
        if not answers:
            return
        (scores,) = self.scores([halfway])
        at_most, earned, between = (
            scored["total"].groupby(level=0).mean() for scored in (self.right, table, scores)
        )
        for at, answer in answers.items():
            if between[at] >= earned[at] - _SAME:
                table.loc[at] = np.nan
                if earned[at] >= at_most[at] - _SAME:
                    self.near[at] = answer

    def _leave_out_aliases(self, written: list[list[str]], tables: list[pd.DataFrame]) -> None:
        """Make the scores nan of a part that alone pays for a row: it is another name for the
        answer, such as "US" for "USA". Of numbers any digit may be such a part.
        """
        paid = [set(self._paid(table)) for table in tables]
        for at, row in enumerate(self.rows):
            texts = {texts[at] for texts, rows in zip(written, paid, strict=True) if at in rows}
            if len(texts) == 1 and parse_number(row["answer"]) is None:
                (text,) = texts
                self.near[at] = (self.lab.tags.answer_blocks(text) or [""])[-1]
                for table in tables:
                    table.loc[at] = np.nan


def _from_the_trainer(step: int, max_steps: int) -> dict:
    """Return what TRL passes beside the data; rewards may use it, the laboratory has nothing to log
    to.
    """
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


def _finite(value: float) -> float | None:
    """Return the number for JSON, which has no nan."""
    return float(value) if np.isfinite(value) else None


def _records(rows: pd.DataFrame) -> list[dict]:
    """Return rows as TRL passes them: a list is a list, which pandas reads as an array."""
    return [
        {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in row.items()
        }
        for row in rows.to_dict("records")
    ]


def _columns(records: list[dict]) -> dict[str, list]:
    """As TRL passes them: every column but the prompt, which is called `prompts`."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {
        name: [record.get(name) for record in records] for name in names if name not in _NOT_PASSED
    }
    if "prompt" in names:
        columns["prompts"] = [record.get("prompt") for record in records]
    return columns
