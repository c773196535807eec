"""Leave out questions that are too hard or too easy to learn from: notebook 02 measures their pass
rates with `pass_rates=True`, and notebook 03 trains on the rest with `keep_between="0.1,0.9"`.

A group whose completions are all wrong, or all right, has no advantage. Open-R1
(scripts/pass_rate_filtering) and prime-rl filter so before a training.
"""

import pandas as pd

from helpers.runs import Run, atomic_write
from helpers.settings import Preset

_RATES = "pass_rates.parquet"


def keep_pass_rates(
    run: Run, rows: pd.DataFrame, rates: list[float | None], lengths: list[int]
) -> str:
    """Write the pass rates of these training questions into the run, and return them as a sentence.

    lengths: the tokens of all completions that were sampled for it.
    """
    table = pd.DataFrame({"question": list(rows["question"]), "pass_rate": rates}, dtype=object)
    table["pass_rate"] = table["pass_rate"].astype(float)
    with atomic_write(run.path(_RATES)) as temporary:
        table.assign(made_for=_made_for(run)).to_parquet(temporary, index=False)
    never, always = (table["pass_rate"] == 0).sum(), (table["pass_rate"] == 1).sum()
    return (
        f"pass rates of {len(table):,} training questions, from {sum(lengths):,} sampled tokens: "
        f"{never:,} are never answered correctly, {always:,} always; {run.show(_RATES)}"
    )


def _made_for(run: Run) -> str:
    """Return what the rates depend on: the data and the model."""
    data = run.section("data")
    return f"{data['fingerprint']}, {data['settings']['model']}"


def rows_between(
    run: Run, keep_between: str | list | tuple | None, settings: Preset
) -> tuple[list[int] | None, dict]:
    """Return the numbers of the training rows to keep, and what the manifest records: the bounds,
    and how many rows were kept and dropped, and why. (None, {}) keeps all. Print the counts.

    keep_between: the least and the largest pass rate, such as "0.1,0.9"; both are kept.

    ValueError if there are no rates of these data, or if too few rows remain for a round.
    """
    if keep_between is None:
        return None, {}
    try:
        # papermill writes the pair of `-p keep_between=0.1,0.9` as the text "(0.1, 0.9)"
        low, high = map(float, str(keep_between).strip("()[]").split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"keep_between={keep_between!r} is not two pass rates from 0 to 1, such as '0.1,0.9'."
        )
    path = run.folder / _RATES
    measured = pd.read_parquet(path) if path.exists() else pd.DataFrame({"made_for": []})
    if not measured["made_for"].eq(_made_for(run)).any():
        raise ValueError(
            f"keep_between={keep_between!r} needs the pass rates of this model on these training "
            "questions: run notebook 02 with pass_rates=True first."
        )
    rates = measured.set_index("question")["pass_rate"]
    questions = pd.read_parquet(run.require("data/train.parquet"), columns=["question"])["question"]
    rate = questions.map(rates.groupby(level=0).mean())
    kept = [int(number) for number in rate.index[rate.between(low, high)]]
    dropped = {
        "too hard": int((rate < low).sum()),
        "too easy": int((rate > high).sum()),
        "not measured": int(rate.isna().sum()),
    }
    counts = ", ".join(f"{count:,} {why}" for why, count in dropped.items())
    needed = settings.completions_per_round // settings.num_generations
    if len(kept) < needed:
        raise ValueError(
            f"keep_between={keep_between!r} leaves {len(kept)} of {len(rate):,} training questions "
            f"({counts}), and a round of sampling needs {needed}: widen it."
        )
    print(f"training on {len(kept):,} of {len(rate):,} questions; left out: {counts}")
    bounds = f"{low:g},{high:g}"
    return kept, {"keep_between": bounds, "kept": len(kept), "left_out": dropped}
