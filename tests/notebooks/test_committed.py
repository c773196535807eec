"""What the text of a notebook says beside a number holds in the outputs that are committed.

A row a number: the notebook, a line of the cell that shows it (all cells if there is none), how its
row begins, its place among the row's numbers or two places whose ratio it is, and its bounds.
"""

import re
from functools import cache

import pytest
from reading import notebook, said

OURS, OTHER = 'workings(name, "sampled"', 'workings(name, "other"'
SAMPLES, LEVELS = "results.samples_summary", "results.difficulty_summary"
SHOWN = [
    # of 02: longer completions are correct more often, so correctness alone pays for care
    ("02", 'groupby("length")', "longer than its group", -1, 0.8, 1),
    ("02", 'groupby("length")', "not longer", -1, 0.2, 0.45),
    # of 03: most of a step is sampling
    ("03", "training.trial_step(", "sampling is", 0, 50, 100),
    # of 04: what is said beside the curves
    ("04", "first_and_last(history", "reward ", 0, 0.5, 0.65),
    ("04", "first_and_last(history", "reward ", 1, 1.15, 1.25),
    ("04", "first_and_last(history", "frac_reward_zero_std", 0, 0, 0.1),
    ("04", "first_and_last(history", "frac_reward_zero_std", 1, 0.68, 0.82),
    ("04", "first_and_last(history", "kl", 1, 0.02, 0.04),
    ("04", "first_and_last(history", "completions/mean_length", (1, 0), 1.5, 1.8),
    ("04", "first_and_last(history", "rewards/correctness_reward/mean", 0, 0.3, 0.45),
    ("04", "first_and_last(history", "rewards/substantial_format_reward/mean", 0, 0.65, 0.8),
    ("04", "is_careful", "correct, in the whole training", 0, 85, 100),
    ("04", "plots.kl(history)", "beta times the KL", 0, 0, 0.001),
    ("04", "plots.loss(history)", "largest clip_ratio", 0, 0, 0),
    # of 05: one in four worked carefully and most of these were correct; afterwards all do
    ("05", OURS, "baseline", 0, 15, 35),
    ("05", OURS, "baseline", (1, 2), 0.5, 1),
    ("05", OURS, "baseline", (3, 4), 0.14, 0.26),
    ("05", OURS, "baseline", -1, 38, 47),
    ("05", OURS, "trained", 0, 95, 100),
    ("05", OURS, "trained", -1, 83, 100),
    ("05", "plots.accuracy(evaluation)", "baseline", -1, 20, 30),  # tokens
    ("05", "plots.accuracy(evaluation)", "trained", -1, 45, 60),
    # the base model could do it already: once in 16
    ("05", SAMPLES, "pass@16", 0, 93, 100),
    ("05", SAMPLES, "pass@1 ", 3, 90, 98),
    ("05", SAMPLES, "pass@8 ", 0, 60, 92),  # less than 1 - (1 - 0.31)**8
    ("05", SAMPLES, "majority", 0, 25, 38),
    ("05", SAMPLES, "base model: ", 0, 19, 31),
    # a gain at every level, twice as large at level 3 as at level 1, their intervals far apart
    ("05", LEVELS, "1  ", 1, 60, 80),
    ("05", LEVELS, "1  ", -3, 90, 100),
    ("05", LEVELS, "3  ", 3, 10, 40),
    ("05", LEVELS, "3  ", -2, 75, 100),
    # of differences: more carefully, no more accurate, fewer correct numbers
    ("05", OTHER, "baseline", 0, 0, 27),
    ("05", OTHER, "trained", 0, 75, 100),
    ("05", OTHER, "  trained against baseline", 3, 0.05, 1),
    ("05", OTHER, "  won ", (1, 0), 1.3, 9),
    # 4 bits cost about two points of sampled accuracy, none greedily; all that differ went one way
    ("05", 'exam.measure("unquantised"', "float32", 3, 27.7, 27.7),
    ("05", 'exam.measure("unquantised"', "4 bits ", 3, 27.7, 27.7),
    ("05", 'exam.measure("unquantised"', "float32", 0, 32, 35),
    ("05", 'exam.measure("unquantised"', "4 bits ", 0, 29, 32),
    ("05", 'exam.measure("unquantised"', "  4 bits against float32", 0, 0, 0),
    # what survives of a change, stored in 4, 16 and 32 bits
    ("05", "through_nf4(matrix)", "change of 5.", 1, 0, 5),
    ("05", "through_nf4(matrix)", "change of 5.", -2, 90, 99.9),
    ("05", "through_nf4(matrix)", "change of 0.05", -2, 5, 30),
    ("05", "through_nf4(matrix)", "weights that keep their 4-bit number", -1, 75, 95),
    ("05", "gaps, chosen = ", "original", -1, 1.5, 4),
    ("05", "gaps, chosen = ", "dequantised", -1, 0.05, 0.5),
    # the merge cost nothing: won 3, lost 1
    ("05", "exam.measure(name, final", "merged against trained", 1, 1, 1),
    # of 06: an almost dead group gets a full-sized push; without the clip one batch settles the
    # question; from groups of 4 to 16 the noise of the mean halves; a temperature of 2 spoils answers
    ("06", "almost_dead", "reward 0.99 among seven rewards of 1", 0, 1.47, 2.5),
    ("06", "reuse(10)", "with the clip", 1, 0.34, 0.38),
    ("06", "reuse(10)", "with the clip", 3, 0.24, 0.3),
    ("06", "reuse(10)", "without ", 3, 0.98, 1),
    ("06", "reuse(10)", "without, misled", 3, 0, 0.02),
    ("06", "shortness(texts", "wanted: correct answers", 0, 0, 0.05),
    ("06", "shortness(texts", "wanted: correct answers", 1, 0.2, 0.3),
    ("06", "asked = train_rows.sample", "groups of 4 ", 1, 5, 20),
    ("06", "asked = train_rows.sample", "groups of 4 ", 2, 0.2, 0.26),
    ("06", "asked = train_rows.sample", "groups of 16 ", 1, 0, 1),
    ("06", "asked = train_rows.sample", "groups of 16 ", 2, 0.1, 0.13),
    ("06", "asked = train_rows.head(64)", "temperature 1: ", 0, 30, 40),
    ("06", "asked = train_rows.head(64)", "temperature 2: ", 0, 2, 8),
    # of 07: examples in the prompt do harm, greedily the base model was never correct, and one
    # prompt is six times as long as the rest
    ("07", "", "0-shot", 0, 25, 40),
    ("07", "", "1-shot", 0, 1, 15),
    ("07", "", "3-shot", 0, 0, 0),
    ("07", "", "baseline", 3, 0, 0),
    ("07", "", "prompt tokens", (-1, 2), 6, 8),
    ("07", "", "extra keys", 0, 0.1, 0.1),
    ("07", "", "each key twice", 0, 0, 0),
    # of 08: with a carry every correct answer is careful; a warm start is sooner, a filter later,
    # easy to hard loses, and no other interval is clear of 0
    ("08", "by_carries = ", "0 ", 1, 0, 0.49),
    ("08", "by_carries = ", "1 ", 1, 1, 1),
    ("08", "by_carries = ", "2 ", 1, 1, 1),
    ("08", "verdicts = []", "14 intervals, ", 0, 3, 3),
    ("08", "", "  0.0003: shown: -", 2, 0.01, 1),
    # of 09: the base model solves nearly every task sometimes, and greedily; with the
    # visible tests as its reward it looks answers up, with the hidden ones it becomes reliable
    ("09", 'passing("base model")', "pass@1", 0, 50, 70),
    ("09", 'passing("base model")', "pass@1", 3, 30, 45),
    ("09", 'passing("base model")', "pass@8", 3, 95, 100),
    ("09", 'passing("base model")', "greedy", 3, 95, 100),
    ("09", 'passing("visible tests")', "pass@1", 0, 90, 100),
    ("09", 'passing("visible tests")', "pass@1", 3, 0, 20),
    ("09", 'passing("visible tests")', "greedy", 3, 0, 10),
    ("09", 'passing("hidden tests")', "pass@1", 3, 75, 100),
    ("09", 'passing("hidden tests")', "greedy", 3, 90, 100),
    # of 10: base model and trained, in one row
    ("10", 'measured("trained")', "success", 0, 20, 40),
    ("10", 'measured("trained")', "success", 3, 85, 95),
    ("10", 'measured("trained")', "guesses wasted", (3, 0), 0, 0.5),
    ("10", 'measured("trained")', "calls per episode", (3, 0), 0.9, 1.1),
    ("10", 'measured("trained")', "calls that failed", (1, 0), 0, 0.5),
    ("10", "def ending(", "no call that could be read", 0, 40, 55),
    ("10", "def ending(", "no call that could be read", 1, 0, 8),
    ("10", "def ending(", "of the games played to the end, all guesses used up", 0, 40, 55),
    ("10", "def ending(", "of the games played to the end, all guesses used up", 1, 0, 15),
    ("10", '"found")', "The share of games found by each number of guesses", 0, 10, 16),
    ("10", '"found")', "The share of games found by each number of guesses", 1, 40, 55),
    # a stored training on a served game, beside the same at home
    ("10", '"openenv.csv"', "the mean reward is the same number in", (0, 1), 1, 1),
    # of 11: it learns to look, and blind it stays near the floor; counts alone teach not to
    ("11", 'measure("baseline")', "baseline, sighted", 0, 30, 45),
    ("11", 'measure("trained")', "trained, sighted", 0, 80, 100),
    ("11", 'measure("trained")', "trained, blind", 0, 15, 40),
    ("11", "by_kind(", "count", (4, 0), 0, 1),
    ("11", "def shortcut_history(", "all questions: reward", (3, 2), 2, 20),
    ("11", "def shortcut_history(", "count alone: reward", (3, 2), 0, 0.5),
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
