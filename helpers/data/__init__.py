"""Stage 01, data preparation: turn a source into checked rows.

In: a built-in generator, a CSV, JSON or Parquet file, or a hub data set.
Out: `data/train.parquet`, `data/holdout.parquet` and `data_report.json` in the run folder.
Used by notebook 01, and by notebook 07 for your own task. Start reading at `tasks.load_task`.
"""
