"""The same seed gives the same numbers, and the page's lines find one that is not the same."""

import re
import subprocess

import pandas as pd
import pytest
from executions import SMALL

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.runs import Run

BLOCK = re.compile(r"^## The same run again.*?^python -c '\n(.*?)'\n```", re.MULTILINE | re.DOTALL)


def told(python: str, folder) -> str:
    """What the lines of docs/batches.md print of the runs `demo` and `again` in a folder."""
    (program,) = BLOCK.findall((PROJECT / "docs" / "batches.md").read_text(encoding="utf-8"))
    done = subprocess.run([python, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_digit_that_differs_is_named_and_a_time_is_none(python, tmp_path):
    rows = "step,loss,reward,step_time\n1,0.1,0.5,9\n2,0.0,0.625,9\n"
    for run in ("demo", "again"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "metrics.csv").write_text(rows)
    other = tmp_path / "runs" / "again" / "metrics.csv"
    other.write_text(rows.replace(",9", ",8"))
    assert told(python, tmp_path).startswith("Empty DataFrame")
    other.write_text(rows.replace("0.625", "0.6250000000000001"))
    said = told(python, tmp_path)
    assert "reward" in said and "0.6250000000000001" in said and "loss" not in said


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
