"""What the text of a notebook says beside a number holds in the outputs that are committed.

A row a number: the notebook, a line of the cell that shows it (all cells if there is none), how its
row begins, its place among the row's numbers or two places whose ratio it is, and its bounds.
"""

import re
from functools import cache

import pytest
from reading import notebook, said

OURS, OTHER = 'workings(name, "sampled"', 'workings(name, "other"'
SAMPLES, LEVELS = "ev.samples_summary", "ev.difficulty_summary"
SHOWN = [
    # of 02: longer completions are right more often, so correctness alone pays for care
    ("02", 'groupby("length")', "longer than its group", -1, 0.8, 1),
    ("02", 'groupby("length")', "not longer", -1, 0.2, 0.45),
    # of 05: one in four worked carefully and most of these were right; afterwards all do
    ("05", OURS, "baseline", 1, 15, 35),
    ("05", OURS, "baseline", (2, 3), 0.5, 1),
    ("05", OURS, "baseline", (5, 3), 2.2, 3.8),
    ("05", OURS, "baseline", (4, 5), 0.14, 0.26),
    ("05", OURS, "baseline", 0, 20, 30),
    ("05", OURS, "baseline", -1, 38, 47),
    ("05", OURS, "trained", 0, 41, 60),
    ("05", OURS, "trained", 1, 95, 100),
    ("05", OURS, "trained", -1, 83, 100),
    # the untrained model could do it already: once in 16
    ("05", SAMPLES, "pass@16", 0, 95, 100),
    ("05", SAMPLES, "pass@1 ", 3, 94, 98),
    ("05", SAMPLES, "pass@1 ", 0, 28, 34),
    ("05", SAMPLES, "pass@8 ", 0, 60, 92),  # less than 1 - (1 - 0.31)**8
    ("05", SAMPLES, "majority", 0, 26, 40),
    ("05", SAMPLES, "untrained: ", 0, 19, 31),
    # the gain is largest where there is a carry, at levels 3 and 4
    *(("05", LEVELS, f"{level} ", 4, 90, 100) for level in (1, 2, 3, 4)),
    ("05", LEVELS, "1 ", 1, 65, 80),
    ("05", LEVELS, "3 ", 1, 5, 25),
    ("05", LEVELS, "4 ", 1, 15, 30),
    # the habit carried over to differences and the skill did not
    ("05", OTHER, "baseline", 1, 0, 27),
    ("05", OTHER, "trained", 1, 75, 100),
    ("05", OTHER, "trained", (2, 3), 0.25, 0.41),
    ("05", OTHER, "baseline", -1, 42, 48),
    ("05", OTHER, "trained", -1, 32, 37),
    ("05", OTHER, "arithmetic/differences, baseline", 0, 31, 37),
    ("05", OTHER, "arithmetic/differences, trained", 1, 20, 30),
    ("05", OTHER, "arithmetic/differences, trained", 2, 38, 50),
    # the dequantised base is several times nearer to the policy, and the merge cost nothing
    ("05", "gaps, chosen = ", "original", -1, 1.5, 4),
    ("05", "gaps, chosen = ", "dequantised", -1, 0.05, 0.5),
    ("05", "plots.accuracy(evaluation)", "trained", 1, 88, 94),
    ("05", "plots.accuracy(evaluation)", "merged", 0, 94, 96.7),
    # of 07: examples in the prompt do harm, greedily the untrained model was never right, and one
    # prompt is six times as long as the rest
    ("07", "", "0-shot", 0, 25, 40),
    ("07", "", "1-shot", 0, 8.5, 9.5),
    ("07", "", "3-shot", 0, 0, 0),
    ("07", "", "baseline", 3, 0, 0),
    ("07", "", "prompt tokens", 2, 46, 46),
    ("07", "", "prompt tokens", -1, 312, 312),
    # of 09: rewarding the visible tests alone makes the hidden ones worse
    ("09", "", "untrained, visible tests: pass@1", 0, 50, 70),
    ("09", "", "untrained,  hidden tests: pass@1", 0, 30, 45),
    ("09", "", "visible tests, visible tests: pass@1", 0, 90, 100),
    ("09", "", "visible tests,  hidden tests: pass@1", 0, 0, 20),
    ("09", "", "hidden tests,  hidden tests: pass@1", 0, 75, 100),
    # of 10: untrained and trained, in one row
    ("10", "", "success", 0, 0, 40),
    ("10", "", "success", 3, 85, 100),
    ("10", "", "calls until found", (1, 0), 0.5, 0.99),
    ("10", "", "guesses given away", (1, 0), 0, 0.5),
    ("10", "", "calls that failed", (1, 0), 0, 0.5),
]


@pytest.fixture(scope="module")
def committed():
    """What a notebook shows, or one of its cells."""
    return cache(lambda number, line: said(notebook(number), line))


@pytest.mark.parametrize(("number", "line", "label", "place", "low", "high"), SHOWN)
def test_what_is_said_beside_a_number_holds(committed, number, line, label, place, low, high):
    rows = [row for row in committed(number, line).splitlines() if row.startswith(label)]
    last = rows[-1].removeprefix(label)
    found = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", last)]
    value = found[place[0]] / found[place[1]] if isinstance(place, tuple) else found[place]
    assert low <= value <= high
