"""Stage 04, training metrics: the training history as a table, its diagnosis, and its figures.

Input: `metrics.csv` and `completions.parquet` of one or more runs. Output: findings, and
`figures/*.png`. Used by notebook 04; notebook 03 uses the same rules and figures while it trains.
"""
