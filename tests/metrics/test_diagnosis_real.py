"""Real training runs: the statements of notebooks 03 and 04 about the stored runs hold, and the
healthy demo run gives no warning.
"""

import tarfile

import pandas as pd
import pytest
from histories import severe

from helpers import PROJECT
from helpers.metrics.diagnosis import diagnose
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
def test_each_sick_run_has_its_finding(name, rule, absent):
    found = severe(stored(f"sick/{name}"))
    assert rule in found and absent not in found


def test_each_sick_run_is_given_one_first_step():
    """The other findings follow from the first: cut-off completions, hacking, the KL."""
    for name, first in {"a": "clipped", "b": "hacking", "c": "zero_spread", "d": "kl"}.items():
        findings = diagnose(stored(f"sick/{name}"))
        assert [one.rule for one in findings if not one.cause] == [first] == [findings[0].rule]


def test_statements_of_notebook_04_about_the_sick_runs():
    a, b, c, d = (stored(f"sick/{name}") for name in "abcd")
    reward, right, dead = "reward", "rewards/correctness_reward/mean", "frac_reward_zero_std"
    assert a["completions/clipped_ratio"].mean() == pytest.approx(0.7, abs=0.05)
    assert a[dead].tail(20).mean() > 0.9 and c[dead].head(5).min() > 0.5
    assert b[reward].tail(5).min() == 1 and b[right].tail(5).max() == 0
    assert c["kl"].max() < 0.01 and c[reward].tail(10).mean() <= c[reward].head(10).mean()
    assert d["step"][d["kl"] > 1].min() == 5
    late = d[d["step"] >= 10]
    assert (late[reward] == 0).all() and (late[dead] == 1).all()
    assert late["completions/clipped_ratio"].min() > 0.5


def test_statements_of_notebook_03_about_beta():
    ends = {name: stored(f"beta/{name}").tail(10).median() for name in "abcd"}  # 1, 10, 0.01, 0
    kl, reward = ({name: end[of] for name, end in ends.items()} for of in ("kl", "reward"))
    assert kl["b"] < kl["a"] < min(kl["c"], kl["d"])
    assert reward["b"] < reward["a"] < min(reward["c"], reward["d"])
    assert reward["c"] == pytest.approx(reward["d"], abs=0.05)
    assert kl["c"] == pytest.approx(kl["d"], rel=0.5)


def test_the_healthy_run_has_no_warning():
    exam = stored("sick/exam")
    assert severe(exam) == {} and not exam.equals(stored("beta/c"))


def test_the_demo_run_learns_and_has_no_warning_at_any_step():
    with tarfile.open(DATA / "demo.tar.xz") as archive:
        demo = pd.read_csv(archive.extractfile("demo/metrics.csv"))
    assert demo["reward"].tail(5).mean() > demo["reward"].head(5).mean() + 0.4
    assert [severe(demo[:n]) for n in range(1, len(demo) + 1)] == [{}] * len(demo)
