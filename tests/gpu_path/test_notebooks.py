"""The notebooks from the first cell to the last, through Unsloth's GPU code."""

import pytest

pytestmark = pytest.mark.slow


def test_00(execute):
    print(execute("00", "quickstart", preset="pocket", max_steps=3, holdout_size=16))
