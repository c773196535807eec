"""Stage 03, training: what stands around `trainer.train()`.

In: the rows of stage 01, the rewards of stage 02 and the settings. Out: `checkpoints/` while it
runs; `adapter/`, `metrics.csv` and `completions.parquet` once it has finished. Used by notebook 03,
and by 06 to 10 for trainings of their own.
"""
