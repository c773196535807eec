"""Stage 04, training metrics: the training history as a table, its diagnosis, and its figures.

In: `metrics.csv` and `completions.parquet` of one or more runs. Out: findings, and
`figures/*.png`. Used by notebook 04; notebook 03 uses the same rules and figures while it trains.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "plots": "",
        "diagnosis": "diagnose",
        "history": "first_and_last join_stages read_metrics reward_names smooth",
        "signals": "Signals",
    },
)
