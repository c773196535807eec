"""Stage 01, data preparation: from a source to checked rows.

In: a built-in family, a CSV, JSON or Parquet file, or a hub data set. Out: `data/train.parquet`,
`data/holdout.parquet` and `data_report.json` in the run folder. Used by notebook 01, and by 07 for
a task of one's own.
"""
