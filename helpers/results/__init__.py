"""Stage 05, merge and inference: how good the policy is, and the model that comes out.

In: `adapter/`, the holdout and the settings of a run. Out: `evaluation.json`, `comparison.json`,
and `merged/` with its model card. Used by notebook 05, and by the commands `generate` and `report`.
"""
