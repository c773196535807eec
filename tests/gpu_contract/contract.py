"""What the notebooks' `GRPOConfig` becomes on a GPU, computed without one from the pinned wheels.

Unsloth's GPU side puts a class of its own in the place of TRL's `GRPOConfig`, which changes
settings that were left out. Here the calls of notebooks 03 and 07 to 10 are evaluated with both
classes, for every preset and loss. `contract.csv` keeps what came out; after a pin was raised,
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

LOSSES = SETTINGS["loss_type"].metadata["choices"]
_FOLDER = SimpleNamespace(path=str)  # of a run; no call is to make one
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
import functools, json, sys
import unsloth, trl
from unsloth.models import rl
classes = {"trl": trl.GRPOConfig}
rl._patch_trl_rl_trainers("grpo_trainer")  # what importing Unsloth does where there is a GPU
classes["unsloth"] = trl.GRPOConfig
assert classes["unsloth"] is not classes["trl"] and issubclass(classes["unsloth"], classes["trl"])

def plain(config):
    fields = next(cls for cls in type(config).__mro__ if cls.__module__.startswith("trl.")).__dataclass_fields__
    return json.loads(json.dumps({name: getattr(config, name) for name in fields}, default=str))

supervised = {"trl": trl.SFTConfig}
rl._patch_trl_rl_trainers("sft_trainer")
supervised["unsloth"] = trl.SFTConfig
assert supervised["unsloth"] is not supervised["trl"]
built = {"defaults": {name: plain(each(output_dir="a", use_cpu=True)) for name, each in classes.items()}, "calls": []}
warm_start, given = json.load(open(sys.argv[1]))
made = {name: functools.partial(each, use_cpu=True) for name, each in supervised.items()}
built["warm_start"] = {name: plain(each(**warm_start)) for name, each in made.items()}
for passed in given:
    made = {name: functools.partial(each, use_cpu=True) for name, each in classes.items()}
    built["calls"].append({name: plain(each(**passed)) for name, each in made.items()})
print("\\n" + json.dumps(built))
"""


def cells(number: str, kind: str) -> list[str]:
    (path,) = PROJECT.glob(f"notebooks/{number}_*.ipynb")
    return [
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind
    ]


def call_of(source: str, configuration: str = "GRPOConfig") -> tuple[str, str]:
    """The call of a configuration in a source, and the dictionaries written out before it."""
    tree = ast.parse(source)
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == configuration
    )
    written = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    ]
    return "\n".join(map(ast.unparse, written)), ast.unparse(call)


@functools.cache
def calls() -> dict[str, tuple[str, str]]:
    """Where a configuration is written, and how: notebooks 03 and 07 to 10, and the program at the
    end of 07.
    """
    found = {}
    for number in ("03", "07", "08", "09", "10"):
        (source,) = (cell for cell in cells(number, "code") if "config = GRPOConfig(" in cell)
        found[number] = call_of(source)
    (program,) = (cell for cell in cells("07", "markdown") if "config = GRPOConfig(" in cell)
    found["07 mine.py"] = call_of(re.search(r"```python\n(.*?)```", program, re.DOTALL)[1])
    return found


def passed(where: str, settings: Preset) -> dict:
    """The keywords that a call gives to `GRPOConfig` with these settings."""
    before, call = calls()[where]
    names = {"presets": presets, "settings": settings, "folder": _FOLDER, "seed": 1}
    names |= {"only_fp16": False, "tracking": {"report_to": "none"}, "vllm_server": None}
    names |= {"unsloths_vllm": settings.engine == "vllm", "reward_weights": [1.0, 0.25]}
    names |= {"weights": [1.0, 0.25, 0.0], "steps": settings.max_steps, "changes": {}, "turns": 16}
    exec(before, names)
    return eval(call, names | {"GRPOConfig": dict})


def warm_start() -> dict:
    """The keywords that notebook 08 gives to `SFTConfig`."""
    (source,) = (cell for cell in cells("08", "code") if "config = SFTConfig(" in cell)
    names = {"settings": PRESETS["pocket"], "folder": _FOLDER, "seed": 1, "epochs": 3}
    exec(calls()["08"][0], names)
    return eval(call_of(source, "SFTConfig")[1], names | {"SFTConfig": dict})


def smaller_batch() -> dict:
    """What notebook 08 puts in place of its run's batch."""
    (source,) = (cell for cell in cells("08", "code") if "\nsmaller = " in cell)
    (batch,) = (
        node.value for node in ast.parse(source).body if ast.unparse(node).startswith("smaller = ")
    )
    return ast.literal_eval(batch)


def cases() -> dict[tuple[str, str, str], Preset]:
    """The settings for each (where, preset, loss), on a GPU that vLLM serves.

    Notebook 08 takes the pocket model only.

    For the pocket model also those of UNUSUAL, in the place of a loss.
    """
    found = {}
    for where in calls():
        for name in ["pocket"] if where == "08" else PRESETS:
            preset = PRESETS[name]
            preset = replace(preset, engine="vllm" if preset.engine == "auto" else preset.engine)
            if where == "08":
                preset = replace(preset, **smaller_batch())
            for loss in LOSSES:
                found[where, name, loss] = replace(preset, loss_type=loss, **WITH.get(loss, {}))
            for unusual, settings in UNUSUAL.items() if name == "pocket" else ():
                found[where, name, unusual] = replace(preset, engine="vllm", **settings)
    return found


def effective() -> tuple[dict, dict, dict]:
    """The defaults of both classes, for each case what both make of the call, {"trl": {field:
    value}, "unsloth": …}, and the same of 08's `SFTConfig`.
    """
    given = [passed(where, preset) for (where, _, _), preset in cases().items()]
    # Unsloth writes the trainer that it generates where it is imported
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "given.json").write_text(json.dumps([warm_start(), given]), encoding="utf-8")
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
    built = json.loads(done.stdout.splitlines()[-1])
    return built["defaults"], dict(zip(cases(), built["calls"], strict=True)), built["warm_start"]


def table(defaults: dict, built: dict) -> str:
    """`contract.csv`: a line for each setting that enters the loss or is not TRL's default, with
    its value for every preset.

    All of it is told of notebook 03; of the other places, what is not as in 03. Blank is what does
    not occur.
    """
    usual, unsloths = defaults["trl"], defaults["unsloth"]
    configurations = {
        (where, preset): both["unsloth"]
        for (where, preset, loss), both in built.items()
        if loss == PRESETS[preset].loss_type
    }
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    packages = [f"{package} {installed_version(package)}" for package in ("trl", "unsloth")]
    writer.writerow(["where", "setting", *packages, *PRESETS])
    for where in calls():
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
    TABLE.write_text(table(*effective()[:2]), encoding="utf-8")
    print(f"{TABLE.relative_to(PROJECT)} is written: git diff shows what has changed")
