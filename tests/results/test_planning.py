"""The plan of a comparison agrees with simulated comparisons, by the suite's own tests."""

import numpy as np
import pytest

from helpers.results.evaluation import compare_outcomes
from helpers.results.intervals import student_interval, wilson_interval
from helpers.results.planning import (
    power_of_mcnemar,
    power_of_seeds,
    questions_for,
    seeds_for,
    widths,
)

CASES = [(0.31, 0.10, 0.03), (0.6, 0.05, 0.08), (0.5, 0.3, 0.0), (0.2, 0.4, 0.1)]


def outcomes(draw, questions: int, baseline: float, gain: float, lost: float):
    """Whether the base model and the trained one are correct, question by question."""
    place = draw.random(questions)
    before = place < baseline
    kept = before & (place >= lost)
    won = ~before & (place < baseline + gain + lost)
    return before, kept | won


@pytest.mark.parametrize(("baseline", "gain", "lost"), CASES)
def test_the_planned_questions_have_the_power_in_a_simulation(baseline, gain, lost):
    draw = np.random.default_rng(3)
    questions = questions_for(gain, lost)
    expected = power_of_mcnemar(questions, gain, lost)
    assert 0.8 <= expected < 0.86
    assert power_of_mcnemar(int(0.9 * questions), gain, lost) < 0.8, "fewer are too few"
    found = 0
    for _ in range(2000):
        pair = outcomes(draw, questions, baseline, gain, lost)
        compared = compare_outcomes(*pair, ("before", "after"))
        found += compared["p_value"] < 0.05 and compared["difference"] > 0
    assert found / 2000 == pytest.approx(expected, abs=0.03)  # more than three standard errors


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.05])
def test_the_planned_seeds_have_the_power_in_a_simulation(spread):
    draw = np.random.default_rng(4)
    baseline, gain, lost, questions = 0.31, 0.1, 0.03, 132
    seeds = seeds_for(gain, lost, spread, questions)
    expected = power_of_seeds(seeds, gain, lost, spread, questions)
    assert expected >= 0.8
    assert seeds == 2 or power_of_seeds(seeds - 1, gain, lost, spread, questions) < 0.8
    found = 0
    for _ in range(2000):
        gains = []
        for own in np.clip(draw.normal(gain, spread, seeds), -lost, 1 - baseline - lost):
            before, after = outcomes(draw, questions, baseline, own, lost)
            gains.append(float(np.mean(after) - np.mean(before)))
        found += student_interval(gains)[0] > 0
    assert found / 2000 == pytest.approx(expected, abs=0.03)


def test_the_table_has_the_widths_of_wilson_and_the_least_gain_with_the_power():
    table = widths(0.31, 0.03)
    low, high = wilson_interval(0.31 * 256, 256)
    assert float(table.loc[256, "accuracy"].removeprefix("± ")) == round(50 * (high - low), 1)
    least = float(table.loc[256, "gain shown"]) / 100
    assert power_of_mcnemar(256, least, 0.03) >= 0.8 > power_of_mcnemar(256, least - 0.005, 0.03)
    assert widths(0.98, 0.0).loc[64, "gain shown"] == "none"
