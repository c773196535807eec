"""The commands of `python -m helpers`, one file for each: its arguments and its `main`.

In: what is typed on the command line. Out: executed notebooks and their files under `runs/<name>/`,
tables and logs under `runs/sweeps/<grid>/`, pages, editions and slides. `pipeline.py` executes
the notebooks for `run`, `sweep` and `reproduce`; `arguments.py` reads what a run is asked for.
"""
