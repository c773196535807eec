"""Notebook 01's check that no question is on both sides, in its own cell."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import pandas as pd
import pytest
from reading import defined


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
    task = SimpleNamespace(
        train=pd.DataFrame({"question": [train, "What is 1 + 1?"]}),
        holdout=pd.DataFrame({"question": [holdout]}),
    )
    refused = pytest.raises(AssertionError, match="1 questions are on both sides")
    with refused if leaks else nullcontext():
        defined("01", "overlap = ", task=task, report={"source": source}, re=re)
