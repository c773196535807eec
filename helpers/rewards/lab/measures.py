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
from helpers.rewards.faults import Fault, checked_scores, constant
from helpers.rewards.lab import attacks, verdicts
from helpers.rewards.lab.cases import load_cases
from helpers.rewards.shaping import reward_name, source_hash
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
    "name",
    "expected",
    attacks.WRONG,
}
_SAME = 1e-6  # scores closer than this are equal
_NO_SPREAD = 1e-8  # TRL's isclose: rounding is no spread

# What TRL passes beside the data; rewards may use it, the laboratory has nothing to log to.
_FROM_THE_TRAINER = {
    "trainer_state": SimpleNamespace(global_step=0, max_steps=1, epoch=0.0),
    "log_extra": lambda column, values: None,
    "log_metric": lambda name, value: None,
}


@dataclass
class Lab:
    """Rewards on the bench, and what was found out about them so far.

    functions, weights: as for GRPOTrainer and GRPOConfig, one weight a function. For rewards that
    count tokens a word is a token here. ValueError where the numbers of both differ, or two rewards
    have one name (TRL logs them by name).
    """

    functions: list[Callable]
    weights: list[float]
    tags: TagFormat = THINK_ANSWER
    results: dict = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

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

    def scores(self, completions: list[str], **columns: list) -> pd.DataFrame:
        """A row per completion: each reward's score (nan for None) and the weighted `total`, called
        as TRL would call them.

        columns: lists with one entry per completion. What a reward gets wrong is added to `faults`.
        """
        messages = [[{"role": "assistant", "content": text}] for text in completions]
        words = [[hash(word) % 2**31 for word in text.split()] for text in completions]
        given = columns | {"completion_ids": words} | _FROM_THE_TRAINER
        given.setdefault("prompts", [[{"role": "user", "content": ""}] for _ in completions])
        table = pd.DataFrame(index=range(len(completions)))
        for name, function in zip(self.names, self.functions, strict=True):
            scored, faults = checked_scores(function, messages, given)
            table[name] = pd.Series(scored, dtype=float)
            self.faults += faults
        # As in TRL: a reward that abstains adds nothing; where all abstain there is no total.
        table["total"] = table[self.names].mul(self.weights).sum(axis=1, min_count=1)
        return table

    def cases(self, path: str | Path | None = None) -> pd.DataFrame:
        """Completions with a known score, a row each: the scores, the `total`, and the expected
        scores as `expected <reward>`.

        path: a file of your own, a JSON object a line: `name`, `completion`, `expected` (reward
        name to score), and the row's columns such as `answer`. Without one, the suite's own.
        ValueError names the line that is not such an object.
        """
        loaded = load_cases(path, self.tags)
        known = {*self.names, *(f"{name}_reward" for name in LIBRARY)}
        for case in loaded:
            if unknown := sorted(case["expected"].keys() - known):
                raise ValueError(
                    f"case {case['name']!r} expects a score of {unknown[0]!r}, which is no reward. "
                    f"The rewards here: {', '.join(self.names)}."
                )
        table = self.scores([case["completion"] for case in loaded], **_columns(loaded)).set_axis(
            [case["name"] for case in loaded]
        )
        for reward in self.names:
            table[f"expected {reward}"] = [case["expected"].get(reward, np.nan) for case in loaded]
        self.results["cases"] = table
        return table

    def attacks(
        self, rows: pd.DataFrame, length: int = 200, battery: list[attacks.Attack] = attacks.BATTERY
    ) -> pd.DataFrame:
        """What cheating earns on real rows: a row per attack, best first, with the mean scores and
        an `example`.

        rows: data with an `answer`, the first 16 are used. length: the bound of a completion in
        words. `wins` is the share of rows where the attack earns more than its ceiling: an honest
        wrong answer, or an honest right one where it holds the right answer. `gain`: by how much
        there, on average; `paid_by`: the reward that gives most of it.
        """
        answered = rows[rows["answer"].notna()] if "answer" in rows else rows.head(0)
        if not len(answered):
            raise ValueError(
                "the attacks need rows with an `answer`: what would an honest right answer be?"
            )
        chosen = attacks.with_wrong_answers(answered.head(_ROWS_ATTACKED).to_dict("records"))
        every = [*attacks.HONEST, *battery]
        written = {
            attack.name: [attack.write(row, self.tags, length) for row in chosen]
            for attack in every
        }
        columns = _columns(chosen)
        scored = {name: self.scores(texts, **columns) for name, texts in written.items()}
        table = pd.DataFrame({name: scores.mean() for name, scores in scored.items()}).T
        table = table.assign(wins=0.0, gain=0.0, paid_by="")
        ceilings = {attack.name: attack.ceiling for attack in every}
        for name, ceiling in ceilings.items():
            extra = scored[name] - scored[ceiling]
            # a wrong answer wins by a tie with a right one
            won = extra["total"] > (-_SAME if name == attacks.WRONG else _SAME)
            if won.any():
                mean = extra[won].mean()
                paid = mean[self.names].mul(self.weights).fillna(0.0)
                table.loc[name, "wins"] = won.mean()
                table.loc[name, "gain"] = mean["total"]
                table.loc[name, "paid_by"] = paid.idxmax()
        table["example"] = {name: texts[0] for name, texts in written.items()}
        table = table.sort_values("total", ascending=False, kind="stable")
        self.results["attacks"], self.results["ceilings"] = table, ceilings
        return table

    def signal(self, rows: pd.DataFrame, completions: list[list[str]]) -> dict:
        """What GRPO would learn from: statistics of the rewards on groups of completions, one group
        per row.

        Returns a dict: `groups`, `group_size`; per reward its `mean`, `within_group_std`,
        `zero_spread` (share of groups that all score the same), `constant` (what to say of a reward
        that gave all completions one number, or None), `advantage_share` (of the variance
        of TRL's group-scaled advantage; the shares sum to 1), `rank_correlation` with the others
        (Spearman); for the weighted total `mean` and `zero_spread`; `pass_rate`, one per row, by
        the rewards that tell a right answer from a wrong one (`judges`, known once `attacks` was
        run), and None for a row they cannot judge.
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
        scores = self.scores(texts, **columns)
        spread = scores.groupby(group_of).std(ddof=1)  # as TRL: torch's std, of the group
        flat = spread.fillna(0.0) < _NO_SPREAD
        shares = self._advantage_shares(scores, group_of)
        ranks = scores[self.names].corr(method="spearman")
        rewards = {
            name: {
                "weight": weight,
                "mean": _finite(scores[name].mean()),
                "within_group_std": _finite(spread[name].mean()),
                "zero_spread": float(flat[name].mean()),
                "constant": constant(name, list(scores[name])),
                "advantage_share": shares[name],
                "rank_correlation": {
                    other: _finite(ranks.loc[name, other]) for other in self.names if other != name
                },
            }
            for name, weight in zip(self.names, self.weights, strict=True)
        }
        judges = self.judges()
        passed = (scores[judges] >= 0.5).all(axis=1) & bool(judges)
        passed = passed.where(scores[judges].notna().all(axis=1))
        rates = passed.astype(float).groupby(group_of).mean()
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
        }
        return self.results["signal"]

    def _advantage_shares(self, scores: pd.DataFrame, group_of: np.ndarray) -> dict[str, float]:
        """The share of each reward in the variance of the advantage that TRL would compute."""
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
        """The rewards that tell a right answer from a wrong one, by what the attacks found; before
        them, the first reward.
        """
        table = self.results.get("attacks")
        if table is None:
            return self.names[:1]
        gap = table.loc[attacks.RIGHT, self.names] - table.loc[attacks.WRONG, self.names]
        return [name for name in self.names if gap[name] > 0.25]

    def speed(self) -> pd.Series:
        """Milliseconds for 1,000 completions, per reward: those of `signal`, repeated or cut to
        that number.
        """
        texts, columns = self.results.get("completions", (["<answer>4</answer>"], {}))
        repeats = -(-_TIMED // len(texts))
        columns = {key: (values * repeats)[:_TIMED] for key, values in columns.items()}
        texts = (texts * repeats)[:_TIMED]
        taken = {}
        for name, function, weight in zip(self.names, self.functions, self.weights, strict=True):
            began = time.perf_counter()
            Lab([function], [weight]).scores(texts, **columns)
            taken[name] = 1000 * (time.perf_counter() - began)
        self.results["speed"] = pd.Series(taken, name="ms per 1,000 completions")
        return self.results["speed"]

    def verdict(self) -> verdicts.Verdict:
        """Go or no go, in words, from everything that was done so far."""
        return verdicts.verdict_on(self.results, self.faults)

    def report(self) -> dict:
        """All results as JSON: `rewards` with an entry each, `attacks`, `signal`, and the
        `verdict`. An entry's `source` is the reward's `source_hash`.
        """
        cases, table, signal, taken = (
            self.results.get(step) for step in ("cases", "attacks", "signal", "speed")
        )
        found, verdict = {"rewards": {}}, self.verdict()
        for name, weight, function in zip(self.names, self.weights, self.functions, strict=True):
            entry = found["rewards"][name] = {"weight": weight, "source": source_hash(function)}
            if cases is not None:
                entry["cases"] = {case: _finite(score) for case, score in cases[name].items()}
            if signal is not None:
                entry |= signal["rewards"][name]
            if taken is not None:
                entry["ms_per_1000"] = round(float(taken[name]), 3)
            entry["faults"] = sum(fault.reward == name for fault in self.faults)
        if table is not None:
            found["attacks"] = {
                name: {"total": float(row["total"]), "wins": float(row["wins"])}
                for name, row in table.iterrows()
            }
        if signal is not None:
            found["signal"] = {key: value for key, value in signal.items() if key != "rewards"}
        found["verdict"] = {"go": verdict.go, "stops": verdict.stops, "notes": verdict.notes}
        return found


def _finite(value: float) -> float | None:
    """The number for JSON, which has no nan."""
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
