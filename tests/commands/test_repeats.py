"""The same seed gives the same numbers."""

import pandas as pd
import pytest
from executions import SMALL

from helpers.commands.run import run_notebooks
from helpers.runs import Run


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(executed):
    taken = [given for given in SMALL if not given.startswith("sampled_questions")]
    assert run_notebooks("again", "pocket", "01,03", taken) == 0
    tables = [
        pd.read_csv(Run(name).folder / "metrics.csv", dtype=str) for name in ("suite", "again")
    ]
    assert len(tables[0]) == 12 and tables[0]["reward"].nunique() > 3
    assert (tables[0]["step_time"] != tables[1]["step_time"]).any(), "trained again, not copied"
    pd.testing.assert_frame_equal(*(table.drop(columns="step_time") for table in tables))
