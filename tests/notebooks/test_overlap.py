"""Notebook 01's check that no question is on both sides, in its own cell."""

import re
from types import SimpleNamespace

import pandas as pd
import pytest
from reading import defined

from helpers.data.tasks import load_task


def check(train: list[str], holdout: list[str], source: str) -> None:
    """Run the cell on a task with these questions."""
    task = SimpleNamespace(
        train=pd.DataFrame({"question": train}), holdout=pd.DataFrame({"question": holdout})
    )
    defined("01", "overlap = ", task=task, report={"source": source}, re=re)


@pytest.mark.parametrize(
    ("train", "holdout", "source", "leaks"),
    [
        ("What is 12 + 34?", "What is 34 + 12?", "arithmetic/sums", True),
        ("What is 12 + 34 + 5?", "What is 34 + 12?", "arithmetic/sums", False),
        ("What is 5 + 3 - 1?", "What is 5 + 3 + 1?", "arithmetic/chains", False),
        # in words of one's own, the order of the numbers may matter
        ("From 12 to 34?", "From 34 to 12?", "mine.csv", False),
        ("From 12 to 34?", "From 12 to 34?", "mine.csv", True),
    ],
)
def test_the_same_problem_on_both_sides_stops_notebook_01(train, holdout, source, leaks):
    if leaks:
        with pytest.raises(AssertionError, match="1 questions are on both sides"):
            check([train, "What is 1 + 1?"], [holdout], source)
    else:
        check([train, "What is 1 + 1?"], [holdout], source)


@pytest.mark.parametrize("family", ["sums", "differences", "products", "chains"])
def test_the_built_in_arithmetic_passes_it(family):
    task = load_task(f"arithmetic/{family}", train_size=2000, holdout_size=200, seed=5)
    check(list(task.train["question"]), list(task.holdout["question"]), f"arithmetic/{family}")
