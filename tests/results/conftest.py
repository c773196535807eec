import pytest
from finished import finished_run


@pytest.fixture
def run(machine):
    """A run folder with everything in it, named `told`."""
    return finished_run()
