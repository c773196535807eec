"""The objective does not depend on the machine: the configurations of the notebooks, through
Unsloth's GPU class and TRL's.
"""

import ast
from importlib import metadata
from pathlib import Path

import pytest
from contract import LEFT_TO_TRL, PLACES, cases, effective, passed

from benchmarks.gpu.grpo_step import OF_THE_LOSS
from helpers.templates import template_options

pytestmark = pytest.mark.slow

# Read beside the loss, and not of it: memory, logging, templates, evaluation.
_BESIDE_THE_LOSS = {
    "gradient_checkpointing_kwargs",
    "pad_to_multiple_of",
    "chat_template_kwargs",
    "log_multimodal",
}
_BESIDE_THE_LOSS |= {"num_generations_eval", "per_device_eval_batch_size"}
_OF_TRL = [
    *(
        "_compute_loss",
        "_generate_and_score_completions",
        "_prepare_inputs",
        "_get_train_sampler",
        "_calculate_rewards",
    ),
    *(
        "_get_per_token_logps_and_entropies",
        "get_high_entropy_mask",
        "get_gamma_weights",
        "get_off_policy_mask",
    ),
]
# handed on to what samples
_OF_SAMPLING = {"temperature", "top_p", "min_p", "repetition_penalty", "generation_kwargs"}


@pytest.fixture(scope="module")
def computed():
    return effective()


def test_the_objective_is_the_same_through_unsloths_gpu_class_and_through_trls(computed):
    for case in cases():
        trls, unsloths = computed[case]["trl"], computed[case]["unsloth"]
        differing = [name for name in OF_THE_LOSS if trls[name] != unsloths[name]]
        assert differing == ["generation_kwargs"], case  # None and {}: nothing more, either way


def test_what_the_configuration_says_is_what_the_preset_says(computed):
    for case, settings in cases().items():
        config = computed[case]["unsloth"]
        asked = {
            name: getattr(settings, name)
            for name in OF_THE_LOSS
            if getattr(settings, name, None) is not None
        }
        assert {name: config[name] for name in asked} == asked, case
        assert config["chat_template_kwargs"] == template_options(settings.thinking), case
        assert config["generation_batch_size"] == settings.completions_per_round
        assert config["top_k"] == (settings.top_k or (-1 if config["use_vllm"] else 0)), (
            "either of the two: no limit"
        )


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


def test_the_list_of_what_enters_the_loss_is_what_the_libraries_read(computed):
    methods = functions("trl/trainer/grpo_trainer.py")
    reading = [methods[name] for name in _OF_TRL]
    reading.append(functions("unsloth_zoo/rl_replacements.py")["grpo_accumulated_loss"])
    on_a_gpu = functions("unsloth/models/rl_replacements.py")
    reading += [
        on_a_gpu[f"grpo_trainer_{name}"]
        for name in ("compute_loss", "_get_per_token_logps_and_entropies")
    ]
    kept = {}  # self.epsilon_low = args.epsilon, and the like
    for node in ast.walk(methods["__init__"]):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            kept[node.targets[0].attr] = of(node.value, "args")
    known, read = set(computed["defaults"]["trl"]), set()
    for node in reading:
        through = of(node, "self", "trainer")
        read |= of(node, "self.args", "trainer.args") | through
        read |= set().union(*(kept.get(name, set()) for name in through))
    assert read >= _BESIDE_THE_LOSS
    assert (read & known) - _BESIDE_THE_LOSS | _OF_SAMPLING == set(OF_THE_LOSS)
