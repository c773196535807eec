"""What the parts share: the JSON that each writes, random models, a merge that is proven.

Importing it needs torch alone; Transformers comes with a model, for Unsloth must come before it.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from helpers import PROJECT
from helpers.environment import package_versions, quiet, this_machine
from helpers.families import config_of, dense
from helpers.presets import PRESETS
from helpers.runs import runs_folder, write_json

RESULTS = PROJECT / "benchmarks" / "results" / "gpu"
# Qwen/Qwen3-0.6B, its config.json
REAL = dense("qwen3", 1024, 3072, 28, 16, 8, 128, 151_936, True, 40_960)
POCKET = PRESETS["pocket"].model_path
_WHOLE = 3  # tokens of a random model that are whole completions


@dataclass
class Result:
    """What a part has found.

    found: numbers and words by name. problems: what is wrong, a sentence each. left_out: what was
    not measured, and why.
    """

    rehearse: bool
    found: dict[str, float | str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def expect(self, holds: bool, problem: str) -> None:
        """Note the problem unless this holds."""
        if not holds:
            self.problems.append(problem)


def main(measure: Callable[[Result], None]) -> None:
    """The program of a part: measure, write <part>.json, print it; exit code 1 for a problem."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "GRPO_ANY_VERSIONS": "1", "VLLM_NO_USAGE_STATS": "1"}
    os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"
    quiet()
    part = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    add_arguments(parser)
    args = parser.parse_args()
    if args.rehearse:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        torch.set_num_threads(1)  # fastest for so small a model
    result, began = Result(args.rehearse), time.monotonic()
    missing = None if args.rehearse or torch.cuda.is_available() else "an NVIDIA GPU"
    try:
        if missing is None:
            measure(result)
    except Exception as error:
        traceback.print_exc()
        if isinstance(error, ModuleNotFoundError) and "helpers" not in str(error.name):
            missing = error.name.partition(".")[0]
        else:
            result.problems.append(f"{type(error).__name__}: {error}")
    outcome = f"needs {missing}" if missing else "failed" if result.problems else "passed"
    written = {"outcome": outcome, "seconds": time.monotonic() - began, "on": machine()}
    write(folder_of(args), part, written | asdict(result))
    print(json.dumps(written | asdict(result), indent=1))
    sys.exit(outcome == "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a part takes, and so does the command that runs them all."""
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at pocket shapes")
    parser.add_argument("--to", type=Path, help="the folder for the JSON of each part")


def folder_of(args: argparse.Namespace) -> Path:
    """Where the JSON of each part is written."""
    return args.to or (runs_folder() / "gpu-rehearsal" if args.rehearse else RESULTS)


def write(folder: Path, part: str, found: dict) -> None:
    """Keep what came of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{part}.json", found)


def machine() -> str:
    """The machine and the versions, in a line."""
    this, versions = this_machine(), package_versions()
    card = f"{this.gpu}, {this.gpu_memory_gb:.0f} GB" if torch.cuda.is_available() else "a CPU"
    names = ("torch", "transformers", "peft", "trl", "bitsandbytes", "unsloth", "vllm")
    told = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    return f"{card}; Python {platform.python_version()}, {told}"


def work(name: str) -> Path:
    """An empty folder for what a part writes beside its JSON."""
    folder = runs_folder() / "gpu-check" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# --- Models ---------------------------------------------------------------------------------------


def device() -> str:
    """The GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def shape(result: Result) -> dict:
    """Qwen3-0.6B's sizes, as config.json has them; in a rehearsal the pocket model's."""
    return {name: config_of(POCKET)[name] for name in REAL} if result.rehearse else REAL


def random_model(sizes: dict, seed: int = 0, dtype: torch.dtype = torch.bfloat16):
    """A Qwen3 whose layers pass on what they get with the same size, as trained ones do.

    The weights are random with unit gain, the norms from 0.8 to 1.2, the largest logit about 30.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    with torch.device(device()):
        model = Qwen3ForCausalLM._from_config(Qwen3Config(**sizes), dtype=dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(0, 1 if "embed" in name else weight.shape[1] ** -0.5)
            else:
                weight.uniform_(0.8, 1.2)
        head = sizes["hidden_size"] ** -0.5 if sizes["tie_word_embeddings"] else 1
        model.lm_head.weight.mul_(6 * head)
    return model.eval()


def adapted(model, size: float, seed: int = 0):
    """A PEFT model of rank 32 with a random adapter: A as PEFT makes it, B with entries of this
    size.
    """
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    policy = get_peft_model(
        model, LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
    ).eval()
    with torch.no_grad():
        for name, matrix in policy.named_parameters():
            if "lora_B" in name:
                matrix.normal_(0, size)
    return policy


def speaking_model(sizes: dict, folder: Path) -> str:
    """Save a random Qwen3 in 16 bits with the pocket tokenizer, one that a training can teach.

    A few tokens are far likelier than all others: the end, and some that are spelt as a whole
    completion in the format. So some completions earn and others do not, and a training has a
    gradient.
    """
    from transformers import AutoModelForCausalLM, Qwen3Config

    pocket = Path(POCKET)
    known = json.loads((pocket / "config.json").read_text(encoding="utf-8"))
    first = known["vocab_size"]
    sizes = sizes | {"vocab_size": max(sizes["vocab_size"], first + _WHOLE)}
    same = {key: known[key] for key in ("eos_token_id", "pad_token_id", "rms_norm_eps")}
    tokenizer = json.loads((pocket / "tokenizer.json").read_text(encoding="utf-8"))
    whole = {f"<think>{i}</think><answer>{i}</answer>": i for i in range(first, first + _WHOLE)}
    others = {f"w{i}": i for i in range(first + _WHOLE, sizes["vocab_size"])}
    tokenizer["model"]["vocab"] |= whole | others
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    with torch.device(device()):
        config = Qwen3Config(**sizes, **same)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        # One dimension says the same of all tokens, louder than what the layers add, and of the
        # likely ones still more.
        for weight in {model.get_input_embeddings().weight, model.get_output_embeddings().weight}:
            weight.data[:, 0] = 100.0
            weight.data[[known["eos_token_id"], *whole.values()], 0] = 170.0
        model.model.norm.weight.data[0] = 0.01
    model.save_pretrained(folder)
    del model, weight
    torch.cuda.empty_cache()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    for file in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(pocket / file, folder / file)
    return str(folder)


def prompts() -> list[list[dict]]:
    """Four chat prompts of the pocket model's kind."""
    return [[{"role": "user", "content": f"What is {n} + 46?"}] for n in (27, 58, 64, 91)]
