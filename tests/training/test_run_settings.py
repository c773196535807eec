"""Settings for a lesson's small model. tests/test_presets.py tests what a machine can run."""

import pytest

from helpers.environment import Machine
from helpers.training.run_settings import settings_for

SMALL = {"model": "pocket-functions", "learning_rate": 2e-3, "beta": 0.02}
CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11", "Linux")
T4 = Machine("Tesla T4", 16.1, 7.5, 2, 8.0, "3.11", "Linux")


def settings(**given):
    return settings_for("pocket", CPU, {"source": "tasks.jsonl"} | given, small=SMALL)


@pytest.mark.parametrize("given", [{}, {"model": "pocket-functions"}])
def test_parameters_override_the_small_models_settings(given):
    found = settings(**given, beta=0.5)
    expected = ("pocket-functions", 2e-3, 0.5)
    assert (found.model, found.learning_rate, found.beta) == expected


def test_another_model_needs_its_own_learning_rate():
    with pytest.raises(ValueError, match="would ruin 'org/other': take preset='auto'"):
        settings(model="org/other")
    found = settings(model="org/other", learning_rate=1e-6)
    assert (found.model, found.learning_rate) == ("org/other", 1e-6) and found.beta != 0.02
