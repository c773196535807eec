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

import re
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
    results: dict = field(default_factory=dict)
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
        given = columns | {"completion_ids": words} | _from_the_trainer(step, self.max_steps)
        given.setdefault("prompts", [[{"role": "user", "content": ""}] for _ in completions])
        late = {fault.reward for fault in self.faults if fault.advice == LATE}
        table = pd.DataFrame(index=range(len(completions)))
        for name, function in zip(self.names, self.functions, strict=True):
            scored = [None] * len(completions)
            if name not in late:
                scored, faults = checked_scores(function, messages, given, is_own(function))
                self.faults += faults
            table[name] = pd.Series(scored, dtype=float)
        # As in TRL: a reward that abstains adds nothing; where all abstain there is no total.
        table["total"] = table[self.names].mul(self.weights).sum(axis=1, min_count=1)
        return table

    def group(self, row: pd.Series, completions: list[str]) -> pd.DataFrame:
        """Return the scores of several completions of one row."""
        return self.scores(completions, **_columns([row.to_dict()] * len(completions)))

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
            others = rows.head(len(loaded)).to_dict("records")
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
            self.faults[before:] = [fault for fault in self.faults[before:] if fault.advice == LATE]
        for reward in self.names:
            table[f"expected {reward}"] = [case["expected"].get(reward, np.nan) for case in loaded]
        self.results["cases"] = table
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
        # 1. rows from all over the data, and the steps of the training: of each tenth one, each
        # with another last digit, for schedules that pay now and then
        places = np.linspace(0, len(answered) - 1, min(_ROWS_ATTACKED, len(answered))).astype(int)
        chosen = attacks.with_wrong_answers(answered.iloc[places].to_dict("records"))
        steps = {0}
        if any("trainer_state" in source_of(function) for function in self.functions):
            steps |= {self.max_steps // 2, self.max_steps - 1}
            steps |= {tenth * self.max_steps // 10 + tenth for tenth in range(10)}
        steps = sorted(step for step in steps if step < max(1, self.max_steps))
        trial = _Trial(self, chosen, steps, length)

        # 2. the families; a wrong answer that earns as much as the right one may lie in a
        # reward's tolerance, or be right by its rule: take one far off, on either side
        families = {}
        own = attacks.for_own(self.functions, self.tags)
        if attacks.are_programs(chosen):  # of several the last one counts: a list is no attack
            own = [attack for attack in own if attack.name not in attacks.LISTS]
        for attack in [*attacks.HONEST, *battery, *own]:
            families.setdefault(attack.name, []).append(attack)
        near = {}
        for further in (attacks.FAR, attacks.OPPOSITE):
            right, wrong = (
                trial.best_of(families[name])[1]["total"].groupby(level=0).mean()
                for name in (attacks.RIGHT, attacks.WRONG)
            )
            for at in right.index[wrong >= right - _SAME]:
                near.setdefault(at, chosen[at][attacks.WRONG])
                chosen[at][attacks.WRONG] = chosen[at][further]

        # 3. the scores
        tables = {}
        examples = {}
        for name, family in families.items():
            examples[name], tables[name] = trial.best_of(family, tables)
        gaps = (tables[attacks.RIGHT] - tables[attacks.WRONG])["total"].fillna(0.0)
        by_step = gaps.to_numpy().reshape(len(steps), -1).mean(axis=1)
        self.step = steps[by_step.argmax()]

        # 4. who wins; a wrong answer wins by a tie with a right one, and over all steps: a schedule
        # may begin with what tells no right answer from a wrong one
        ceilings = {name: family[0].ceiling for name, family in families.items()}
        found = pd.DataFrame({name: table.mean() for name, table in tables.items()}).T
        found = found.assign(wins=0.0, gain=0.0, paid_by="", example=examples)
        for name, ceiling in ceilings.items():
            extra = tables[name] - tables[ceiling]
            if name == attacks.WRONG:
                extra = extra.groupby(level=0).mean()
                lost = extra.index[extra["total"] > -_SAME]
            won = extra[extra["total"] > (-_SAME if name == attacks.WRONG else _SAME)]
            if len(won):
                paid = won[self.names].mean().mul(self.weights).fillna(0.0)
                found.loc[name, "wins"] = len(won) / extra["total"].count()
                found.loc[name, "gain"] = won["total"].mean()
                found.loc[name, "paid_by"] = paid.idxmax()
        found = found.sort_values("total", ascending=False, kind="stable")
        near = trial.near | {at: text for at, text in near.items() if at not in lost}
        self.results |= {"attacks": found, "ceilings": ceilings}
        self.results["tolerated"] = [(chosen[at]["answer"], text) for at, text in near.items()]
        self.results["lost"] = [(chosen[at]["answer"], chosen[at][attacks.WRONG]) for at in lost]
        return found

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
        group_of = np.repeat(np.arange(len(completions)), sizes)
        records = rows.to_dict("records")
        columns = _columns([records[group] for group in group_of])
        texts = [text for group in completions for text in group]
        scores = self.scores(texts, self.step, **columns)
        spread = scores.groupby(group_of).std(ddof=1)  # as TRL: torch's std, of the group
        flat = spread.fillna(0.0) < _NO_SPREAD
        shares = self._advantage_shares(scores, group_of)
        ranks = scores[self.names].corr(method="spearman")
        rewards = {}
        for name, weight in zip(self.names, self.weights, strict=True):
            given = scores[name].dropna().unique()
            constant = _finite(given[0]) if len(given) == 1 and len(texts) > 1 else None
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
        judges = self.judges()
        # a reward for another task gives a row no score
        spoken = scores[judges].notna().any(axis=1)
        right = ((scores[judges] >= 0.5) | scores[judges].isna()).all(axis=1) & spoken
        passed = right.astype(float).where(spoken | (not judges))
        rates = passed.groupby(group_of).mean()
        dead = [group for group, is_dead in zip(completions, flat["total"], strict=True) if is_dead]
        opening, closing, *_ = self.tags.tags
        self.results["completions"] = texts, columns
        self.results["signal"] = {
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
        return self.results["signal"]

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
        table = self.results.get("attacks")
        if table is None:
            return self.names[:1]
        gap = table.loc[attacks.RIGHT, self.names] - table.loc[attacks.WRONG, self.names]
        return [name for name in self.names if gap[name] > 0.25]

    def speed(self) -> pd.Series:
        """Return milliseconds for 1,000 completions, per reward: those of `signal`, repeated or cut
        to that number.
        """
        texts, columns = self.results.get("completions", (["<answer>4</answer>"], {}))
        repeats = -(-_TIMED // len(texts))
        columns = {key: (values * repeats)[:_TIMED] for key, values in columns.items()}
        texts = (texts * repeats)[:_TIMED]
        taken = {}
        for name, function, weight in zip(self.names, self.functions, self.weights, strict=True):
            began = time.perf_counter()
            # one that took too long is known by its faults
            Lab([function], [weight], faults=[*self.faults]).scores(texts, **columns)
            taken[name] = 1000 * (time.perf_counter() - began)
        self.results["speed"] = pd.Series(taken, name="ms per 1,000 completions")
        return self.results["speed"]

    def verdict(self) -> verdicts.Verdict:
        """Go or no go, in words, from everything that was done so far."""
        return verdicts.verdict_on(self)

    def report(self) -> dict:
        """Return all results as JSON: `rewards` with an entry each, `attacks`, `signal`, and the
        `verdict`. An entry's `source` is the reward's `source_hash`.
        """
        cases, table, signal, taken = (
            self.results.get(step) for step in ("cases", "attacks", "signal", "speed")
        )
        found = {"rewards": {}}
        verdict = self.verdict()
        for name, weight, function in zip(self.names, self.weights, self.functions, strict=True):
            entry = {"weight": weight, "source": source_hash(function)}
            found["rewards"][name] = entry
            if cases is not None:
                entry["cases"] = {case: _finite(score) for case, score in cases[name].items()}
            if signal is not None:
                entry |= signal["rewards"][name]
            if taken is not None:
                entry["ms_per_1000"] = round(float(taken[name]), 3)
            entry["faults"] = sum(fault.reward == name for fault in self.faults)
        if table is not None:
            found["attacks"] = {
                name: {"total": _finite(row["total"]), "wins": float(row["wins"])}
                for name, row in table.iterrows()
            }
        if signal is not None:
            found["signal"] = {key: value for key, value in signal.items() if key != "rewards"}
        found["verdict"] = {"go": verdict.go, "stops": verdict.stops, "notes": verdict.notes}
        return found


@dataclass
class _Trial:
    """Attacks on rows, each at these steps of the training.

    near: what the rewards take for the right answer of a row, by their own measure.
    """

    lab: Lab
    rows: list[dict]
    steps: list[int]
    length: int
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

    def best_of(
        self, family: list[attacks.Attack], tables: dict | None = None
    ) -> tuple[str, pd.DataFrame]:
        """Return the attack that earns most, on each row at each step: the text of the first row,
        and the scores. tables: those of the honest answers, for attacks that may be right.
        """
        tags = self.lab.tags
        written = [[attack.write(row, tags, self.length) for row in self.rows] for attack in family]
        scored = self.scores(written)
        for attack, texts, table in zip(family, written, scored, strict=True):
            if attack.by_chance:
                table[self._are_right(texts, table, tables)] = np.nan
        if family[0].name == attacks.PART:
            self._leave_out_aliases(written, scored, tables)
        best = np.array([table["total"].fillna(-np.inf) for table in scored]).argmax(axis=0)
        picked = np.array(scored)[best, np.arange(len(best))]
        return written[best[0]][0], pd.DataFrame(picked, scored[0].index, scored[0].columns)

    def _paid(self, table: pd.DataFrame, tables: dict) -> list[int]:
        """Return the rows on which an attack earns more than an honest wrong answer."""
        gains = (table["total"] - tables[attacks.WRONG]["total"]).groupby(level=0).max()
        return list(gains.index[gains > _SAME])

    def _are_right(self, texts: list[str], table: pd.DataFrame, tables: dict) -> np.ndarray:
        """Return for each row and step whether what pays there is the right answer: by
        `correctness_reward`, or as a number by the rewards' own measure, where a number between it
        and the right one pays as well, and one as far off on the other side.
        """
        tags = self.lab.tags
        places = self._paid(table, tables)
        rows = [self.rows[at] for at in places]
        kinds = [row.get("kind") for row in rows] if any("kind" in row for row in rows) else None
        paid = [texts[at] for at in places]
        right = correctness_reward(paid, [row["answer"] for row in rows], tags, kind=kinds)
        excused = {at for at, score in zip(places, right, strict=True) if score == 1}

        # numbers: where a tolerance is, what is nearer pays, too
        between = list(texts)
        beyond = list(texts)
        close = {}
        for at in set(places) - excused:
            answer = (tags.answer_blocks(texts[at]) or [""])[-1].strip()
            given, gold = parse_number(answer), parse_number(self.rows[at]["answer"])
            if given and gold and max(abs(given.value), abs(gold.value)) < 1e15:
                off = given.value - gold.value
                whole = given.value.denominator == gold.value.denominator == 1
                halves = (gold.value + (int(off / 2) if whole else off / 2), gold.value - off)
                close[at] = answer, abs(off) <= abs(gold.value) / 20
                for others, number in zip((between, beyond), halves, strict=True):
                    shown = str(number) if whole else f"{float(number):.12g}"
                    others[at] = attacks.honest(self.rows[at], tags, shown)
        if close:
            totals = table["total"].groupby(level=0).mean()
            inside, outside = (
                others["total"].groupby(level=0).mean() >= totals - _SAME
                for others in self.scores([between, beyond])
            )
            full = tables[attacks.RIGHT]["total"].groupby(level=0).mean() - _SAME
            for at, (answer, is_close) in close.items():
                if inside[at] and (outside[at] or is_close):
                    excused.add(at)
                    if totals[at] >= full[at]:
                        self.near[at] = answer
        return table.index.isin(excused)

    def _leave_out_aliases(self, written: list, scored: list[pd.DataFrame], tables: dict) -> None:
        """Make the scores nan of a part that alone pays for a row, which is another name for the
        answer ("US" for "USA"), and of the letter of an option ("A) Paris").
        """
        for at, row in enumerate(self.rows):
            paid = {
                texts[at]
                for texts, table in zip(written, scored, strict=True)
                if at in self._paid(table, tables)
            }
            labelled = re.match(r"\(?[A-Za-z][).:] ", row["answer"])
            if parse_number(row["answer"]) or not (len(paid) == 1 or labelled):
                continue
            for text in paid:
                part = (self.lab.tags.answer_blocks(text) or [""])[-1]
                if not labelled:
                    self.near[at] = part
                for table in scored:
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


def _columns(records: list[dict]) -> dict[str, list]:
    """As TRL passes them: every column but the prompt, which is called `prompts`."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {
        name: [record.get(name) for record in records] for name in names if name not in _NOT_PASSED
    }
    if "prompt" in names:
        prompts = [record.get("prompt") for record in records]
        columns["prompts"] = [
            prompt if isinstance(prompt, str) or prompt is None else list(prompt)
            for prompt in prompts
        ]
    return columns
