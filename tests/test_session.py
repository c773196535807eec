"""How a notebook begins: where its settings start, and what its parameters change."""

from dataclasses import asdict, replace

import pytest

from helpers import open_run
from helpers.presets import PRESETS
from helpers.runs import Run

POCKET = PRESETS["pocket"]


@pytest.fixture
def recorded(machine):
    """A run with data whose completions vLLM samples, and a training."""
    run = Run("mine").made_by("01")
    run.record("data", settings=asdict(replace(POCKET, engine="vllm")), tags="so/thus")
    run.record("training", settings=asdict(replace(POCKET, beta=0.5)))
    return {"run": "mine", "tags": None}


def test_a_preset_is_changed_by_the_parameters_and_these_by_the_call(machine):
    names = {"run": "new", "preset": "pocket", "beta": 0.25, "max_steps": 3, "source": None}
    names |= {"tags": "reasoning/answer"}
    run, _, settings, tags = open_run(names, "00", "pocket", max_steps=4)
    assert settings == replace(POCKET, beta=0.25, max_steps=4)
    assert run.notebook == "00" and tags.spec == "reasoning/answer"


def test_a_run_goes_on_with_what_it_has_recorded(recorded):
    changes = {"beta": 0.125}
    _, _, settings, tags = open_run(recorded | changes, "02", "data", makes=False, loads=False)
    assert settings == replace(POCKET, engine="vllm", beta=0.125)
    assert tags.spec == "so/thus"


@pytest.mark.parametrize(
    ("changes", "engine"), [({}, "vllm"), ({"engine": "transformers"}, "transformers")]
)
def test_a_measurement_samples_with_the_engine_of_the_data(recorded, changes, engine):
    _, _, settings, _ = open_run(recorded | changes, "05", "training", makes=False, loads=False)
    assert settings == replace(POCKET, beta=0.5, engine=engine)


def test_03_takes_its_own_parameters_alone(recorded):
    # after its first cells `model` is a policy
    names = recorded | {"model": object(), "max_steps": 5}
    _, _, settings, _ = open_run(names, "03", "data", loads=False)
    assert settings.model == POCKET.model and settings.max_steps == 5


def test_what_has_to_run_first_is_named(machine):
    with pytest.raises(FileNotFoundError, match="Run notebook 01_"):
        open_run({"run": "empty"}, "02", "data", makes=False)
    with pytest.raises(FileNotFoundError, match="Run notebook 03_"):
        open_run({"run": "empty"}, "05", "training", makes=False)
