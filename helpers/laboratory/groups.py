"""Groups of completions, and what their scores would teach GRPO: the numbers of
`measures.Lab.signal`.

GRPO learns only from differences inside a group, the completions of one row. `reward_statistics`
describes how much each reward contributes to them.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from helpers.laboratory.attack_templates import ADDED, GIVEN

NO_SPREAD = 1e-8  # standard deviations below this are rounding (TRL's isclose)
# Columns that TRL fills itself, and columns of the laboratory's own.
_NOT_PASSED = {"prompt", "prompts", "completion", "completions", "completion_ids"} | ADDED


class Groups(NamedTuple):
    """Completions of several rows, one group per row.

    texts: all completions, group after group.
    columns: what TRL passes with them, one entry per completion.
    numbers: of each completion, the number of its group.
    """

    texts: list[str]
    columns: dict[str, list]
    numbers: np.ndarray


def in_groups(rows: pd.DataFrame, completions: list[list[str]]) -> Groups:
    """Return completions, one group per row, with the columns of their rows."""
    pairs = list(zip(records_of(rows), completions, strict=True))
    texts = [text for _, group in pairs for text in group]
    rows_of_texts = [row for row, group in pairs for _ in group]
    numbers = np.repeat(np.arange(len(pairs)), [len(group) for _, group in pairs])
    return Groups(texts, columns_of(rows_of_texts), numbers)


def records_of(rows: pd.DataFrame) -> list[dict]:
    """Return rows as TRL passes them. Pandas reads a list from a Parquet file as an array; here it
    is a list again, though not inside another list.
    """
    records = rows.to_dict("records")
    for record in records:
        for name, value in record.items():
            if isinstance(value, np.ndarray):
                record[name] = value.tolist()
    return records


def columns_of(rows: list[dict]) -> dict[str, list]:
    """Return rows as the columns that TRL passes to a reward. TRL passes `prompt` as `prompts`."""
    names = dict.fromkeys(name for row in rows for name in row)  # each once, in order
    columns = {}
    for name in names:
        if name not in _NOT_PASSED:
            columns[name] = [row.get(name) for row in rows]
    if GIVEN in names:
        columns["answer"] = [row[GIVEN] for row in rows]
    if "prompt" in names:
        columns["prompts"] = [row.get("prompt") for row in rows]
    return columns


def reward_statistics(
    scores: pd.DataFrame, spread: pd.DataFrame, numbers: np.ndarray, weights: pd.Series
) -> dict[str, dict]:
    """Return what describes each reward by itself, by its name, a dict:

    - `weight`, and the `mean` of the scores.
    - `within_group_std`: the mean of the groups' standard deviations.
    - `zero_spread`: the share of groups with equal scores.
    - `scored`: the share of completions with a score.
    - `unscored`: the share without one, in groups where another completion has one; None if no
      completion has one.
    - `constant`: the score if all completions got the same one, else None.
    - `advantage_share`: the share in the variance of TRL's group-scaled advantage. The shares of
      all rewards sum to 1.
    - `rank_correlation`: Spearman's, with each other reward.

    scores: one row per completion; a column per reward, and the `total`.
    spread: the standard deviations in each group, with the same columns.
    numbers: of each completion, the number of its group.
    weights: by reward.
    """
    shares = advantage_shares(scores, numbers, weights)
    ranks = scores[weights.index].corr(method="spearman")
    statistics = {}
    for name, weight in weights.items():
        has_score = scores[name].notna()
        group_has_scores = has_score.groupby(numbers).transform("any")
        different_scores = scores[name].dropna().unique()
        correlations = ranks.loc[name].drop(name)
        statistics[name] = {
            "weight": weight,
            "mean": finite(scores[name].mean()),
            "within_group_std": finite(spread[name].mean()),
            "zero_spread": float(is_flat(spread[name]).mean()),
            "scored": float(has_score.mean()),
            "unscored": finite((~has_score)[group_has_scores].mean()),
            "constant": finite(different_scores[0]) if len(different_scores) == 1 else None,
            "advantage_share": shares[name],
            "rank_correlation": {other: finite(rho) for other, rho in correlations.items()},
        }
    return statistics


def is_flat(spread: pd.Series) -> pd.Series:
    """Return whether each group has equal scores, or fewer than two, so that it teaches nothing.

    spread: the standard deviation in each group.
    """
    return spread.fillna(0.0) < NO_SPREAD


def advantage_shares(
    scores: pd.DataFrame, numbers: np.ndarray, weights: pd.Series
) -> dict[str, float]:
    """Return each reward's share in the variance of the advantage that TRL computes: the mean
    product of its part with the whole, over the variance. The shares sum to 1; that of a reward
    that works against the others is negative.
    """
    names = list(weights.index)
    # 1. Weight the scores. A missing one adds nothing to a total; without a total it stays missing.
    weighted = scores[names].mul(weights).fillna(0.0).where(scores["total"].notna())

    # 2. Subtract each group's mean, and divide by the deviation of its totals, plus 1e-4 as in TRL.
    centred = (weighted - weighted.groupby(numbers).transform("mean")).fillna(0.0)
    deviation = scores["total"].groupby(numbers).transform("std", ddof=1).fillna(0.0)
    scaled = centred.div(deviation + 1e-4, axis=0)

    # 3. The parts of all rewards sum to the advantage, whose mean is 0.
    advantage = scaled.sum(axis=1)
    variance = float((advantage**2).mean())
    if variance <= NO_SPREAD:
        return dict.fromkeys(names, 0.0)
    return {name: float((scaled[name] * advantage).mean() / variance) for name in names}


def are_right(scores: pd.DataFrame) -> pd.Series:
    """Return whether all judges that scored a completion gave it at least 0.5, as 1.0 or 0.0; nan
    if none scored it. Without judges, all are wrong.
    """
    lowest = scores.min(axis=1)
    right = (lowest >= 0.5).astype(float)
    if not len(scores.columns):  # without judges, every lowest score is nan
        return right
    return right.mask(lowest.isna())


def finite(value: float) -> float | None:
    """Return the number for JSON, which has no nan: None instead."""
    return float(value) if np.isfinite(value) else None
