"""What the tests of a training share: an empty run and a policy."""

import pytest

from helpers.runs import Run


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A run without anything in it."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    return Run("a")


@pytest.fixture(scope="session")
def policy(fresh):
    """One for all tests that may train it, or that leave no trace in it."""
    return fresh()
