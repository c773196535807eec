"""What the tests of a training share: an empty run in a folder of its own."""

import pytest

from helpers.runs import Run


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A run without anything in it."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    return Run("a")
