"""What the tests of the commands share."""

import pytest
from executions import Executions

from helpers.commands import pipeline


@pytest.fixture
def executions(monkeypatch):
    """In place of execution: what each notebook was given, and `outcomes` to say which fail."""
    monkeypatch.setattr(pipeline, "_execute", Executions())
    return pipeline._execute
