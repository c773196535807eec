"""Stage 04, training metrics: the training history as a table, its diagnosis, and its figures.

In: `metrics.csv` and `completions.parquet` of one or more runs. Out: findings, and
`figures/*.png`. Used by notebook 04, and by 00, 03 and 07 to 11 for the runs that they train.
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
