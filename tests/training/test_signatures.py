"""The installed Unsloth and TRL accept every keyword that the GPU path passes to them.

`UNSLOTH_ALLOW_CPU=1` makes Unsloth import its GPU classes on a CPU; only their signatures are read.
test_vllm.py runs vLLM itself, and tests/gpu_contract compares the resulting values.
"""

import ast
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from helpers import PROJECT, settling
from helpers.commands.notebooks import NOTEBOOKS
from helpers.environment import Machine
from helpers.families import FAMILIES
from helpers.presets import PRESETS
from helpers.settings import SETTINGS, unspelt_keywords
from helpers.training import policy, sampling

CALLED = {
    "FastLanguageModel.from_pretrained": "unsloth.FastLanguageModel.from_pretrained",
    "FastLanguageModel.get_peft_model": "unsloth.FastLanguageModel.get_peft_model",
    "FastVisionModel.from_pretrained": "unsloth.FastVisionModel.from_pretrained",
    # FastVisionModel passes all keywords on to it
    "FastVisionModel.get_peft_model": "unsloth.models.vision.FastBaseModel.get_peft_model",
    "GRPOConfig": "trl.GRPOConfig.__init__",
    "GRPOTrainer": "trl.GRPOTrainer.__init__",
    "load_lora": "unsloth_zoo.vllm_utils.load_lora",
}
SIGNATURES = """
import inspect, json, sys
import unsloth, trl, unsloth_zoo.vllm_utils
from unsloth.models import rl

def keywords(name):
    called = {"unsloth": unsloth, "trl": trl, "unsloth_zoo": unsloth_zoo}[name.split(".")[0]]
    for part in name.split(".")[1:]:
        called = getattr(called, part)
    parameters = inspect.signature(called).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]

signatures = {name: keywords(name) for name in sys.argv[1:]}
# replace TRL's classes as on a GPU; the trainer's own __init__ accepts any keyword
rl._patch_trl_rl_trainers("grpo_trainer")
signatures["trl.GRPOConfig.__init__"] = keywords("trl.GRPOConfig.__init__")
classes = (unsloth.FastLanguageModel, unsloth.FastVisionModel, trl.GRPOConfig.__init__)
signatures["gpu classes"] = [one.__module__ for one in classes]
signatures["vllm sees"] = unsloth.models.vision.VLLM_SUPPORTED_VLM
signatures["vllm never"] = unsloth.models.loader.VLLM_UNSUPPORTED_MODEL_TYPES
signatures["vllm from 8.0"] = unsloth.models.loader.VLLM_NEEDS_SM80_MODEL_TYPES

import transformers
signatures["language names"] = unsloth.models._utils._get_text_only_key_mapping(
    transformers.Gemma3Config(), transformers.Gemma3Config().text_config
)
print("\\n" + json.dumps(signatures))
"""


def notebook_03() -> str:
    (path,) = NOTEBOOKS.glob("03_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def policy_py(loader: str = "FastLanguageModel") -> str:
    """Return the source of policy.py, whose one call of `loader` stands for either class."""
    return Path(policy.__file__).read_text(encoding="utf-8").replace("loader.", f"{loader}.")


def policy_py_that_sees() -> str:
    return policy_py("FastVisionModel")


def sampling_py() -> str:
    return Path(sampling.__file__).read_text(encoding="utf-8")


def passed(source: str) -> dict[str, set[str]]:
    """Return every keyword that a source can pass to each function of CALLED."""
    tree = ast.parse(source)
    keywords: dict[str, set[str]] = {}
    # the dictionaries that `**` unpacks: those assigned to a name, and added with `|=`
    keywords_of_trl = set(unspelt_keywords(PRESETS["pocket"]))
    dictionaries = {"unspelt_keywords": keywords_of_trl, "grpo_keywords": keywords_of_trl}
    dictionaries |= {"text_only": {"text_only"}}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            name = ast.unparse(node.targets[0])
            dictionaries[name] = {key.value for key in node.value.keys if key}
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) in dictionaries:
            added = node.value
            if isinstance(added, ast.Dict):
                dictionaries[ast.unparse(node.target)].update(key.value for key in added.keys)
            elif isinstance(added, ast.Call) and ast.unparse(added.func) in dictionaries:
                dictionaries[ast.unparse(node.target)] |= dictionaries[ast.unparse(added.func)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLED:
            found = keywords.setdefault(ast.unparse(node.func), set())
            for keyword in node.keywords:
                # `**options`, or `**(options if … else {})`
                nodes = ast.walk(keyword.value)
                names = [getattr(n, "id", getattr(n, "attr", None)) for n in nodes]
                unpacked = [dictionaries[name] for name in names if name in dictionaries]
                assert keyword.arg or unpacked, ast.unparse(node)
                found.update([keyword.arg] if keyword.arg else set().union(*unpacked))
    return keywords


@pytest.fixture(scope="module")
def signatures(python, tmp_path_factory) -> dict[str, list[str]]:
    done = subprocess.run(
        [python, "-c", SIGNATURES, *CALLED.values()],
        cwd=tmp_path_factory.mktemp("unsloth"),  # Unsloth's GPU side leaves a cache there
        env=os.environ
        | {"PYTHONPATH": str(PROJECT), "CUDA_VISIBLE_DEVICES": "", "UNSLOTH_ALLOW_CPU": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("source", "among"),
    [
        (
            notebook_03,
            {
                "FastLanguageModel.from_pretrained": {
                    "load_in_4bit",
                    "fast_inference",
                    "text_only",
                },
                "FastLanguageModel.get_peft_model": {"r"},
                "GRPOConfig": {"num_generations", "top_k", "use_vllm", "report_to", "run_name"},
                "GRPOTrainer": {"args"},
            },
        ),
        (
            policy_py,
            {
                "FastLanguageModel.from_pretrained": {"gpu_memory_utilization", "text_only"},
                "FastLanguageModel.get_peft_model": {"r", "target_modules"},
                "FastVisionModel.get_peft_model": {"r", "finetune_vision_layers"},
            },
        ),
        (
            policy_py_that_sees,
            {
                "FastVisionModel.from_pretrained": {"max_lora_rank", "max_seq_length"},
                "FastLanguageModel.get_peft_model": {"r", "target_modules"},
                "FastVisionModel.get_peft_model": {"r", "finetune_vision_layers"},
            },
        ),
        (sampling_py, {"load_lora": set()}),
    ],
)
def test_the_gpu_classes_accept_every_keyword(signatures, source, among):
    loader = "unsloth.models.loader"
    assert signatures["gpu classes"] == [loader, loader, "UnslothGRPOTrainer"]
    calls = passed(source())
    assert calls.keys() == among.keys()
    for name, keywords in calls.items():
        assert among[name] <= keywords <= set(signatures[CALLED[name]]), name


def test_the_gpu_classes_accept_every_setting(signatures):
    for name, setting in SETTINGS.items():
        call, _, keyword = setting.metadata["to"].partition(".")
        if call:
            for known in (signatures[CALLED[one]] for one in CALLED if one.endswith(call)):
                assert (keyword or name) in known


def test_families_without_vllm_sample_through_transformers(
    signatures, tmp_path, capsys, monkeypatch
):
    for kind, family in FAMILIES.items():
        assert family.sees_through_vllm == (kind in signatures["vllm sees"]), kind
        assert (family.vllm_from is None) == (kind in signatures["vllm never"]), kind
        assert (family.vllm_from == 8.0) == (kind in signatures["vllm from 8.0"]), kind
    assert signatures["language names"] == policy._LANGUAGE_NAMES
    monkeypatch.setattr(settling, "vllm_obstacle", lambda machine, load_in_4bit: None)
    settings = replace(PRESETS["l4"], engine="vllm", model=str(tmp_path), max_steps=50)
    card = Machine("NVIDIA Card", 24.2, 8.0, 8, 64.0, "3.11.7", "Linux x86_64")
    t4 = replace(card, compute_capability=7.5)
    gemma4 = {"model_type": "gemma4", "vision_config": {}, "text_config": {}}
    for config, machine, sees, left_out in (
        ({"model_type": "qwen3_vl", "vision_config": {}}, card, True, None),
        ({"model_type": "llava", "vision_config": {}}, card, True, "for llava and images"),
        ({"model_type": "qwen3"}, t4, False, None),
        ({"model_type": "gpt_oss"}, card, False, "for gpt_oss"),
        (gemma4, card, False, None),
        (gemma4, t4, False, r"for gemma4 on NVIDIA Card \(compute capability 7.5\)"),
        (gemma4, t4, True, "for gemma4 and images on"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        engine, thinking = "transformers" if left_out else "vllm", None if sees else False
        expected = replace(settings, engine=engine, thinking=thinking)
        assert settling.settle(settings, machine, sees=sees) == expected
        printed = capsys.readouterr().out
        assert bool(printed) == bool(left_out)
        assert not left_out or re.search(left_out, printed)
    # a preset's own model needs neither config.json nor a network
    assert settling.settle("l4", card).engine == "vllm"
