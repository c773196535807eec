"""Stage 03, training: the code around `trainer.train()`.

In: the rows of stage 01, the rewards of stage 02, and the settings. Out: `checkpoints/` during the
training run; `adapter/`, `metrics.csv` and `completions.parquet` once it has finished. Notebook 03
and lessons 06 to 11 use it.
"""
