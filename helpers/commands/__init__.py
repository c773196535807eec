"""Runs without a person: the notebooks through papermill, grids and sweeps of settings, a run done
again.

In: the name of a run, notebook numbers and parameters. Out: executed copies under
`runs/<name>/notebooks/`, and `runs/sweeps/<grid>/`. Used by no notebook, but by the commands `run`,
`train`, `sweep` and `reproduce`, which execute them.
"""
