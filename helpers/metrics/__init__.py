"""Stage 04, training metrics: the history of a training as a table, the rules that read it, the
figures.

In: `metrics.csv` and `completions.parquet` of one run or several. Out: findings, and
`figures/*.png`. Used by notebook 04; 03 shows the same rules and figures while it trains.
"""
