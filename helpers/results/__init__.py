"""Stage 05, merge and inference: evaluate the policy, and merge it into its base model.

In: `adapter/`, the holdout and the settings of a run. Out: `evaluation.json`,
`comparison.json`, and `merged/` with its model card. Used by notebook 05 and by the commands
`generate` and `report`.
"""
