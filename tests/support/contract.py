"""What the notebooks' `GRPOConfig` becomes on a GPU, computed without one from the pinned wheels.

Unsloth's GPU side puts a class of its own in the place of TRL's `GRPOConfig`, which changes
settings that were left out. Here the call of notebook 03 is evaluated with both classes for every
preset and loss, the others for every preset.
"""

import ast
import functools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat

from helpers import PROJECT, training
from helpers.presets import PRESETS
from helpers.settings import SETTINGS, Preset, grpo_keywords, unspelt_keywords

# Where a configuration is written.
PLACES = ("00", "03", "08", "lessons")  # the last serves 07, 09 and 10
# What enters the loss and no notebook passes: constants, at TRL's defaults with either class.
LEFT_TO_TRL = {
    "delta": None,
    "use_bias_correction_kl": True,
    "off_policy_mask_threshold": None,
    "top_entropy_quantile": 1.0,
    "use_adaptive_entropy": False,
    "entropy_target": 0.2,
    "entropy_coef_delta": 0.005,
    "entropy_coef_max": 1.0,
    "entropy_coef_min": 0.0,
    "sapo_temperature_neg": 1.05,
    "sapo_temperature_pos": 1.0,
    "vespo_k_neg": 3.0,
    "vespo_k_pos": 2.0,
    "vespo_lambda_neg": 2.0,
    "vespo_lambda_pos": 3.0,
    "vllm_importance_sampling_cap": None,
    "vllm_importance_sampling_clip_min": None,
    "repetition_penalty": 1.0,
    "shuffle_dataset": True,
}
# The losses that need another setting beside them; settling.py refuses them without.
WITH = {
    "dr_grpo": {"scale_rewards": "none"},
    "cispo": {"epsilon_high": 5.0},
    "luspo": {"importance_sampling_level": "sequence"},
}
# Every setting of the objective and of sampling off its default; two, because GDPO leaves nothing
# to scale_rewards.
_BOTH = {
    **{"num_generations": 4, "num_iterations": 2, "max_completion_length": 70, "beta": 0.03},
    **{
        "epsilon": 0.1,
        "epsilon_high": 0.3,
        "mask_truncated_completions": True,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "token_mask",
        "vllm_importance_sampling_clip_max": 4.0,
    },
    **{"temperature": 0.9, "top_p": 0.95, "top_k": 20, "min_p": 0.05},
}
UNUSUAL = {
    "GSPO": _BOTH
    | {"loss_type": "grpo", "importance_sampling_level": "sequence", "scale_rewards": "batch"},
    "GDPO": _BOTH | {"loss_type": "bnpo", "multi_objective_aggregation": "normalize_then_sum"},
}
# Both classes, and what each of them makes of every call. `use_cpu`: bf16 asks for a GPU,
# otherwise.
BOTH = """
import json, sys
import unsloth, trl
from unsloth.models import rl

def plain(config):
    trls = next(cls for cls in type(config).__mro__ if cls.__module__.startswith("trl."))
    found = {name: getattr(config, name) for name in trls.__dataclass_fields__}
    return json.loads(json.dumps(found, default=str))

classes = {"trl": trl.GRPOConfig}
rl._patch_trl_rl_trainers("grpo_trainer")  # what importing Unsloth does where there is a GPU
classes["unsloth"] = trl.GRPOConfig
assert classes["unsloth"] is not classes["trl"]
built = []
for passed in json.load(open(sys.argv[1])):
    made = {library: each(use_cpu=True, **passed) for library, each in classes.items()}
    built.append({library: plain(config) for library, config in made.items()})
print("\\n" + json.dumps(built))
"""


@functools.cache
def _source(where: str) -> str:
    """The code that makes the configuration of a place."""
    (path,) = PROJECT.glob(f"notebooks/{where}_*.ipynb")
    cells = (cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    (source,) = (cell.source for cell in cells if "config = GRPOConfig(" in cell.source)
    return source


def passed(where: str, settings: Preset) -> dict:
    """The keywords that a place gives to `GRPOConfig` with these settings."""
    run = SimpleNamespace(path=str, name="a")
    machine = SimpleNamespace(gpu="a GPU", only_fp16=False)
    if where == "lessons":
        return training.lesson_keywords(run, settings, machine, 1)
    names = {
        "grpo_keywords": grpo_keywords,
        "unspelt_keywords": unspelt_keywords,
        "training": training,  # the notebooks call the two functions through this door
        "settings": settings,
        "chosen": settings,
        "steps": settings.max_steps,
        "fast": settings.engine == "vllm",
        "machine": machine,
        "run": run,
        "folder": run,
        "seed": 1,
        "only_fp16": False,
        "report_to": "none",
        "changes": {},
        "reward_weights": [1.0, 0.25],
        "weights": [1.0, 0.25, 0.0],
        "held_out": None,
        "looks": {},
    }
    tree = ast.parse(_source(where))
    for node in ast.walk(tree):  # the dictionaries that are written out before it
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            exec(ast.unparse(node), names)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    (call,) = (node for node in calls if ast.unparse(node.func) == "GRPOConfig")
    return eval(ast.unparse(call), names | {"GRPOConfig": dict})


def cases() -> dict[tuple[str, str, str], Preset]:
    """The settings for each (where, preset, loss), on a GPU that vLLM serves: every loss in 03, and
    for the pocket model also those of UNUSUAL in the place of a loss.

    Notebook 08 takes the pocket model only.
    """
    found = {}
    for name, preset in PRESETS.items():
        preset = replace(preset, engine="vllm" if preset.engine == "auto" else preset.engine)
        for where in PLACES:
            if where != "08" or name == "pocket":
                found[where, name, preset.loss_type] = preset
        for loss in SETTINGS["loss_type"].metadata["may_be"]:
            found["03", name, loss] = replace(preset, loss_type=loss, **WITH.get(loss, {}))
    for unusual, settings in UNUSUAL.items():
        found["03", "pocket", unusual] = replace(PRESETS["pocket"], engine="vllm", **settings)
    return found


def effective() -> dict[tuple[str, str, str] | str, dict]:
    """What both classes make of each case, {"trl": {field: value}, "unsloth": …}, and of
    "defaults", where nothing is passed.
    """
    given = {"defaults": {"output_dir": "a"}}
    given |= {case: passed(case[0], settings) for case, settings in cases().items()}
    # Unsloth writes the trainer that it generates where it is imported
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "given.json").write_text(json.dumps([*given.values()]), encoding="utf-8")
        places = {
            "PYTHONPATH": str(PROJECT),
            "GRPO_RUNS_DIR": folder,
            "CUDA_VISIBLE_DEVICES": "",
            "UNSLOTH_ALLOW_CPU": "1",
        }
        command = [sys.executable, "-c", BOTH, "given.json"]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | places, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(zip(given, json.loads(done.stdout.splitlines()[-1]), strict=True))
