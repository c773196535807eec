"""The commands of `python -m helpers`, one file for each: its arguments and its `main`.

In: what is typed on the command line. Out: executed notebooks and their files under `runs/<name>/`,
tables and logs under `runs/sweeps/<grid>/`, and pages. `pipeline.py` executes the notebooks for
`run` and `sweep`; `arguments.py` reads what a run is asked for.
"""
