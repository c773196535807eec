"""Real trainings: the stored ones that notebooks 03 and 04 show are what the notebooks say, and the
demo run, which goes well, gives no warning.
"""

import tarfile

import pandas as pd
import pytest
from histories import severe

from helpers import PROJECT
from helpers.commands import checkpoint
from helpers.metrics.history import read_metrics

DATA = PROJECT / "notebooks" / "data"


def stored(name: str) -> pd.DataFrame:
    return read_metrics(DATA / f"{name}.csv")


@pytest.mark.parametrize(
    ("name", "rule", "absent"),
    [
        ("a", "clipped", "kl"),
        ("b", "hacking", "clipped"),
        ("c", "zero_spread", "clipped"),
        ("d", "kl", "hacking"),
    ],
)
def test_each_sick_one_has_the_finding_of_its_diagnosis(name, rule, absent):
    found = severe(stored(f"sick/{name}"))
    assert rule in found and absent not in found


def test_the_healthy_one_is_healthy():
    exam = stored("sick/exam")
    assert severe(exam) == {} and exam.equals(stored("beta/c"))


def test_the_demo_learns_and_gives_no_warning_at_any_of_its_steps():
    with tarfile.open(checkpoint.ARCHIVE) as archive:
        demo = pd.read_csv(archive.extractfile("metrics.csv"))
    assert demo["reward"].tail(5).mean() > demo["reward"].head(5).mean() + 0.4
    assert [severe(demo[:n]) for n in range(1, len(demo) + 1)] == [{}] * len(demo)
