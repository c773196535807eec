import pytest
from finished import finished_run


@pytest.fixture
def run(machine):
    """Return a complete run, named `told`."""
    return finished_run()
