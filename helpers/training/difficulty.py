"""Leave out questions that are too hard or too easy to learn from.

A group whose completions are all wrong, or all correct, has no advantage. Notebook 02 therefore
measures the pass rate of each question with `pass_rates=True` (`keep_pass_rates`), and notebook 03
trains on those between two bounds with `keep_between="0.1,0.9"` (`rows_between`). Open-R1
(scripts/pass_rate_filtering) and prime-rl filter in the same way before training.
"""

import pandas as pd

from helpers.runs import Run, atomic_write
from helpers.settings import Preset

_RATES = "pass_rates.parquet"


def keep_pass_rates(
    run: Run, rows: pd.DataFrame, rates: list[float | None], lengths: list[int]
) -> str:
    """Write the pass rates of training questions into the run, and return them as a sentence.

    rows: the training rows whose questions were sampled.
    rates: the pass rate of each row, from 0 to 1; None if no judge scores the row.
    lengths: the tokens of each completion that was sampled for the rates.
    """
    table = pd.DataFrame(
        {
            "question": pd.Series(list(rows["question"]), dtype=object),
            "pass_rate": pd.Series(rates, dtype=float),  # None becomes NaN
            "made_for": _made_for(run),
        }
    )
    with atomic_write(run.path(_RATES)) as temporary:
        table.to_parquet(temporary, index=False)

    never = (table["pass_rate"] == 0).sum()
    always = (table["pass_rate"] == 1).sum()
    return (
        f"pass rates of {len(table):,} training questions, from {sum(lengths):,} sampled tokens: "
        f"{never:,} are never answered correctly, {always:,} always; {run.show(_RATES)}"
    )


def rows_between(
    run: Run, keep_between: str | list | tuple | None, settings: Preset
) -> tuple[list[int] | None, dict]:
    """Return the numbers of the training rows to keep, and an entry for the manifest: the bounds,
    how many rows are kept, and how many are left out for which reason. Print these counts.

    keep_between: the lowest and the highest pass rate to keep, such as "0.1,0.9"; None keeps all
        rows, and (None, {}) is returned.

    Raise ValueError if the rates of this model on these questions were not measured, or if fewer
    rows remain than a round of sampling needs.
    """
    if keep_between is None:
        return None, {}

    # 1. Read the two bounds. papermill passes `-p keep_between=0.1,0.9` as the text "(0.1, 0.9)".
    try:
        low, high = map(float, str(keep_between).strip("()[]").split(","))
        are_rates = 0 <= low <= high <= 1
    except ValueError:  # not two numbers
        are_rates = False
    if not are_rates:
        raise ValueError(
            f"keep_between={keep_between!r} is not two pass rates from 0 to 1, such as '0.1,0.9'."
        )

    # 2. Read the measured rates, which must be of this data and this model.
    path = run.folder / _RATES
    measured = pd.read_parquet(path) if path.exists() else None
    if measured is None or not (measured["made_for"] == _made_for(run)).any():
        raise ValueError(
            f"keep_between={keep_between!r} needs the pass rates of this model on these training "
            "questions: run notebook 02 with pass_rates=True first."
        )

    # 3. Find the rate of each training row; NaN if it was not measured. A question that was
    # measured several times has the mean of its rates.
    rate_of = measured.groupby("question")["pass_rate"].mean()
    train = pd.read_parquet(run.require("data/train.parquet"), columns=["question"])
    rates = train["question"].map(rate_of)

    # 4. Choose the rows, and count the others by reason.
    is_kept = rates.between(low, high)  # False for NaN
    kept = rates.index[is_kept].tolist()
    left_out = {
        "too hard": int((rates < low).sum()),
        "too easy": int((rates > high).sum()),
        "not measured": int(rates.isna().sum()),
    }
    counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    needed = settings.completions_per_round // settings.num_generations
    if len(kept) < needed:
        raise ValueError(
            f"keep_between={keep_between!r} leaves {len(kept)} of {len(rates):,} training "
            f"questions ({counts}), and a round of sampling needs {needed}: widen it."
        )
    print(f"training on {len(kept):,} of {len(rates):,} questions; left out: {counts}")
    return kept, {"keep_between": f"{low:g},{high:g}", "kept": len(kept), "left_out": left_out}


def _made_for(run: Run) -> str:
    """Return what pass rates depend on, as text: the run's data and its model."""
    data = run.section("data")
    return f"{data['fingerprint']}, {data['settings']['model']}"
