"""The objective does not depend on the machine: the configurations of the notebooks, through
Unsloth's GPU class and TRL's.
"""

import ast
from importlib import metadata
from pathlib import Path

import pytest
from contract import LEFT_TO_TRL, PLACES, cases, effective, passed

from benchmarks.gpu.grpo_step import OF_THE_LOSS
from helpers import presets


@pytest.fixture(scope="module")
def computed():
    return effective()


@pytest.mark.parametrize("where", PLACES)
def test_a_notebook_passes_every_setting_on(where):
    for case, settings in cases().items():
        if case[0] == where:
            wanted = presets.grpo(settings)
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


def of(node: ast.AST, *holders: str) -> set[str]:
    """The attributes that are read of any of these names, with a dot or with getattr."""
    found = {
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and ast.unparse(n.value) in holders
    }
    got = [
        n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == "getattr"
    ]
    return found | {
        n.args[1].value
        for n in got
        if ast.unparse(n.args[0]) in holders and isinstance(n.args[1], ast.Constant)
    }


def functions(path: str) -> dict[str, ast.FunctionDef]:
    """The functions and methods in a source of an installed package, by name.

    It is not imported.
    """
    source = Path(metadata.distribution(path.partition("/")[0]).locate_file(path))
    nodes = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def test_an_engine_can_sleep_once_per_generation_however_many_turns_it_has():
    """What `policy.sleep_once` relies on: the flag alone decides in TRL, and Unsloth wakes."""
    trls = functions("trl/trainer/grpo_trainer.py")
    assert "self._generate(" in ast.unparse(trls["_generate_and_score_completions"])
    assert {"_generate_single_turn", "_tool_call_loop"} <= of(trls["_generate"], "self")
    assert "self._generate_single_turn(" in ast.unparse(trls["_tool_call_loop"])
    generate = functions("trl/generation/vllm_generation.py")["generate"]
    guarded = [
        ast.unparse(node)
        for node in ast.walk(generate)
        if isinstance(node, ast.If) and "enable_sleep_mode" in of(node.test, "self")
    ]
    for call in ("self.llm.wake_up(", "self.llm.sleep("):
        assert ast.unparse(generate).count(call) == "".join(guarded).count(call) == 1
    unsloths = ast.unparse(functions("unsloth_zoo/vllm_utils.py")["new_generate"])
    assert unsloths.index("self.wake_up()") < unsloths.index("original_generate(")
