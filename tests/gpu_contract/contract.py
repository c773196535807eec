"""What the notebooks' `GRPOConfig` becomes on a GPU, computed without one from the pinned wheels.

Unsloth's GPU side puts a class of its own in the place of TRL's `GRPOConfig`, which changes
settings that were left out. Here the call of notebook 03 is evaluated with both classes for every
preset and loss, those of 07 to 10 for every preset. `contract.csv` keeps what came out; after a pin was raised,
`python -m tests.gpu_contract.contract` writes it anew, and the diff shows what that changes.
"""

from __future__ import annotations

import ast
import csv
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat

from benchmarks.gpu_objective import OF_THE_LOSS
from helpers import PROJECT, presets
from helpers.environment import installed_version
from helpers.presets import PRESETS, SETTINGS, Preset

# Where a configuration is written: five notebooks, and the program at the end of 07.
PLACES = ("03", "07", "08", "09", "10", "07 mine.py")
TABLE = Path(__file__).with_name("contract.csv")
# Of them, those that no notebook passes: constants, at TRL's defaults with either class.
# generation_batch_size is a product.
LEFT_TO_TRL = [
    *(
        "delta",
        "use_bias_correction_kl",
        "off_policy_mask_threshold",
        "top_entropy_quantile",
        "use_adaptive_entropy",
    ),
    *(
        "entropy_coef",
        "entropy_coef_delta",
        "entropy_coef_max",
        "entropy_coef_min",
        "entropy_target",
    ),
    *("sapo_temperature_neg", "sapo_temperature_pos"),
    *("vespo_k_neg", "vespo_k_pos", "vespo_lambda_neg", "vespo_lambda_pos"),
    *("vllm_importance_sampling_mode", "vllm_importance_sampling_cap"),
    *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
    *("generation_batch_size", "repetition_penalty", "generation_kwargs", "shuffle_dataset"),
]
# The losses that need another setting beside them; presets.py refuses them without.
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
    fields = next(cls for cls in type(config).__mro__ if cls.__module__.startswith("trl.")).__dataclass_fields__
    return json.loads(json.dumps({name: getattr(config, name) for name in fields}, default=str))

classes = {"trl": trl.GRPOConfig}
rl._patch_trl_rl_trainers("grpo_trainer")  # what importing Unsloth does where there is a GPU
classes["unsloth"] = trl.GRPOConfig
assert classes["unsloth"] is not classes["trl"]
built = []
for passed in json.load(open(sys.argv[1])):
    built.append({library: plain(each(use_cpu=True, **passed)) for library, each in classes.items()})
print("\\n" + json.dumps(built))
"""


@functools.cache
def _source(where: str) -> str:
    """The code that makes the configuration of a place."""
    number, _, program = where.partition(" ")
    (path,) = PROJECT.glob(f"notebooks/{number}_*.ipynb")
    kind = "markdown" if program else "code"
    every = (cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind)
    (source,) = (cell.source for cell in every if "config = GRPOConfig(" in cell.source)
    return re.search(r"```python\n(.*?)```", source, re.DOTALL)[1] if program else source


def passed(where: str, settings: Preset) -> dict:
    """The keywords that a place gives to `GRPOConfig` with these settings."""
    names = {"presets": presets, "settings": settings, "seed": 1, "only_fp16": False}
    names |= {"folder": SimpleNamespace(path=str), "tracking": {"report_to": "none"}}
    names |= {"unsloths_vllm": settings.engine == "vllm", "vllm_server": None, "changes": {}}
    names |= {"reward_weights": [1.0, 0.25], "weights": [1.0, 0.25, 0.0]}
    names |= {"steps": settings.max_steps, "turns": 16}
    tree = ast.parse(_source(where))
    for node in tree.body:  # the dictionaries that are written out before it
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
        for loss in SETTINGS["loss_type"].metadata["choices"]:
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


def table(built: dict) -> str:
    """`contract.csv`: a line for each setting that enters the loss or is not TRL's default, with
    its value for every preset.

    All of it is told of notebook 03; of the other places, what is not as in 03. Blank is what does
    not occur.
    """
    usual, unsloths = built["defaults"]["trl"], built["defaults"]["unsloth"]
    configurations = {
        case[:2]: built[case]["unsloth"]
        for case in cases()
        if case[2] == PRESETS[case[1]].loss_type
    }
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    packages = [f"{package} {installed_version(package)}" for package in ("trl", "unsloth")]
    writer.writerow(["where", "setting", *packages, *PRESETS])
    for where in PLACES:
        for name in sorted(set(usual) - _OF_THE_PLACE):
            values = {
                preset: config[name]
                for (place, preset), config in configurations.items()
                if place == where
            }
            if where == "03":
                told = name in OF_THE_LOSS or any(
                    value != usual[name] for value in (*values.values(), unsloths[name])
                )
            else:
                told = any(
                    value != configurations["03", preset][name] for preset, value in values.items()
                )
            if told:
                row = [usual[name], unsloths[name], *(values.get(preset, "") for preset in PRESETS)]
                row = [value if isinstance(value, str) else json.dumps(value) for value in row]
                writer.writerow([where, name, *row])
    return lines.getvalue()


_OF_THE_PLACE = {"output_dir", "logging_dir", "run_name", "use_cpu"}


if __name__ == "__main__":
    TABLE.write_text(table(effective()), encoding="utf-8")
    print(f"{TABLE.relative_to(PROJECT)} is written: git diff shows what has changed")
