"""The model of more GPUs: what must hold of it whatever its assumptions are."""

import numpy as np
import pytest

from benchmarks import scaling


@pytest.mark.parametrize("name", scaling.CARDS)
def test_more_gpus_are_faster_but_never_by_more_than_their_number(name):
    found = scaling.curve(name)
    assert (np.diff(found["seconds"]) < 0).all() and (found["speedup"] <= found["gpus"]).all()
    assert (np.diff(found["sync"]) > 0).all() and found["sync"][0] == 0, (
        "a network between machines is not faster than a link"
    )
    assert (found["grown_tokens_a_second"] >= found["tokens_a_second"]).all()
