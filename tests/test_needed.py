"""What the tests need beyond `make setup` is named in their marks, and nowhere else: shown in processes
to which every optional package is hidden.
"""

import os
import subprocess
import sys

import pytest
from needed import BOOK, OPTIONAL, missing
from test_environment import listed

from helpers import PROJECT

BARE = str(PROJECT / "tests" / "bare")
# Files with marked tests, whose unmarked ones are the likeliest to need the same.
NEIGHBOURS = (
    "tests/data/test_sources.py",
    "tests/rewards/test_correctness.py",
    "tests/rewards/test_rewards.py",
)


def bare(*arguments: str, **more) -> subprocess.CompletedProcess:
    """Run this Python with these arguments, without the optional packages."""
    own = os.environ | {"PYTHONPATH": BARE, "PYTEST_ADDOPTS": ""}
    own = {name: value for name, value in own.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=PROJECT, env=own, capture_output=True, text=True, **more)


def test_every_optional_package_has_a_name_that_a_test_can_be_marked_with():
    assert sorted(OPTIONAL.values()) == sorted(listed("requirements-optional.txt"))
    assert sorted(BOOK.values()) == sorted(listed("requirements-book.txt"))
    with pytest.raises(KeyError):
        missing("a_module_that_no_list_has")


@pytest.mark.slow
def test_every_test_module_is_imported_without_any_optional_package():
    """And so are the conftests; `make test` with nothing optional is the first step of .ci/run."""
    done = bare("-m", "pytest", "--collect-only", "-q", "-m", "")
    assert done.returncode == 0 and "SKIPPED" not in done.stdout, done.stdout[-3000:]


@pytest.mark.slow
def test_what_is_not_marked_runs_without_any_optional_package():
    done = bare("-m", "pytest", "-q", "-m", "not slow and not needs", *NEIGHBOURS)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-3000:]
