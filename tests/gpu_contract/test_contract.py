"""The objective does not depend on the machine: the configurations of the notebooks, through
Unsloth's GPU class and TRL's.
"""

import pytest
from contract import LEFT_TO_TRL, PLACES, cases, effective, passed

from benchmarks.gpu.grpo_step import OF_THE_LOSS
from helpers.settings import grpo_keywords


@pytest.fixture(scope="module")
def computed():
    return effective()


@pytest.mark.parametrize("where", PLACES)
def test_a_notebook_passes_every_setting_on(where):
    for case, settings in cases().items():
        if case[0] == where:
            wanted = grpo_keywords(settings)
            given = passed(where, settings)
            assert {name: given[name] for name in wanted} == wanted


@pytest.mark.slow
def test_the_objective_is_the_same_through_unsloths_gpu_class_and_through_trls(computed):
    for case in cases():
        trls, unsloths = computed[case]["trl"], computed[case]["unsloth"]
        differing = [name for name in OF_THE_LOSS if trls[name] != unsloths[name]]
        assert differing == ["generation_kwargs"], case  # None and {}: nothing more, either way


@pytest.mark.slow
@pytest.mark.parametrize("where", PLACES)
def test_what_a_call_leaves_out_is_trls_default_with_either_class(computed, where):
    here = {case: settings for case, settings in cases().items() if case[0] == where}
    left = set(OF_THE_LOSS) - passed(where, here[where, "pocket", "dapo"]).keys()
    # a product, and what Unsloth has as {} where TRL has None
    left -= {"generation_batch_size", "generation_kwargs"}
    # One reward needs no weight, and 08 samples through Transformers.
    own = {"00": {}, "03": {}, "08": {"use_vllm": False}}.get(where, {"reward_weights": None})
    wanted = LEFT_TO_TRL | own
    assert left == set(wanted)
    for case in here:
        for config in computed[case].values():
            assert {name: config[name] for name in wanted} == wanted
            assert not config["generation_kwargs"]
