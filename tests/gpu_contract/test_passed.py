"""What the notebooks pass to `GRPOConfig`: every setting, with the value that it has."""

import pytest
from contract import PLACES, cases, passed

from helpers import presets


@pytest.mark.parametrize("where", PLACES)
def test_a_notebook_passes_every_setting_on(where):
    for case, settings in cases().items():
        if case[0] == where:
            wanted = presets.grpo(settings)
            given = passed(where, settings)
            assert {name: given[name] for name in wanted} == wanted
