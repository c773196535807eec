"""The stored trainings that notebooks 03 and 04 show are what the notebooks say they are."""

import pytest

from helpers import PROJECT
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.history import read_metrics

DATA = PROJECT / "notebooks" / "data"
FILES = sorted([*DATA.glob("sick/*.csv"), *DATA.glob("beta/*.csv")])


def stored(name: str):
    return read_metrics(DATA / f"{name}.csv")


def severe(name: str) -> dict[str, str]:
    return {
        finding.rule: finding.severity
        for finding in diagnose(stored(name))
        if finding.severity != "info"
    }


def test_they_are_small_and_have_what_is_drawn():
    assert [f"{path.parent.name}/{path.stem}" for path in FILES] == [
        *("beta/a", "beta/b", "beta/c", "sick/a", "sick/b", "sick/c", "sick/d", "sick/exam")
    ]
    assert sum(path.stat().st_size for path in FILES) < 200_000
    drawn = {
        "reward",
        "rewards/correctness_reward/mean",
        "frac_reward_zero_std",
        "completions/clipped_ratio",
        "kl",
    }
    for path in FILES:
        history = read_metrics(path)
        assert drawn | {"completions/mean_length"} <= set(history.columns) and len(history) >= 25


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
    found = severe(f"sick/{name}")
    assert rule in found and absent not in found


def test_what_is_said_of_the_sick_ones_holds():
    a, b, c, d = (stored(f"sick/{name}") for name in "abcd")
    assert (
        0.6 < a["completions/clipped_ratio"].mean() < 0.8
        and a["completions/mean_length"].max() <= 20
    )
    assert (
        b["reward"].tail(5).mean() > 0.95
        and b["rewards/correctness_reward/mean"].tail(5).mean() == 0
    )
    assert c["frac_reward_zero_std"].head(5).mean() > 0.5 and c["kl"].max() < 0.01
    assert d["kl"].head(5).max() > 1 and d["completions/clipped_ratio"].head(8).max() == 0, (
        "the KL comes first"
    )
    assert d["completions/clipped_ratio"].tail(5).min() == 1


def test_the_healthy_one_is_healthy_and_a_larger_beta_holds_back():
    assert severe("sick/exam") == {} and stored("sick/exam").equals(stored("beta/c"))
    # from the largest beta
    ends = [stored(f"beta/{name}").tail(10).median(numeric_only=True) for name in "bac"]
    assert (
        ends[0]["kl"] < ends[1]["kl"] < ends[2]["kl"]
        and ends[0]["reward"] < ends[1]["reward"] < ends[2]["reward"]
    )
