"""Bases to merge into, the proof that a merged model is the adapter on its base, and what a merge needs of the machine.

`python -m helpers.results.merging FOLDER FILE` is the proof's own process: it loads what lies in FOLDER with plain
Transformers.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from helpers import PROJECT
from helpers.environment import Machine
from helpers.presets import Preset
from helpers.runs import Run
from helpers.training.memory import shape_of
from helpers.training.policy import nf4

WAYS = ("original", "dequantised", "4bit", "adapter")  # what notebook 05 can make of an adapter
_QUANTISATION = re.compile(r"[A-Za-z0-9_]{2,32}")
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # as the hub names one: owner/model
_SPARE = 1.05  # of the weights' bytes: the tokenizer, and a little room
# The largest logit difference that rounding explains: measured, 2e-5 in 32 bits on the pocket model; an assumption in 16.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.5}


def load_base(settings: Preset, dtype: torch.dtype, dequantised: bool):
    """The base model in `dtype`, on the GPU if there is one: the original weights, or the 4-bit ones unpacked.

    The adapter was trained on the 4-bit ones, so on the unpacked it does what it did in training; the original ones are the
    better base, which it has not seen.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    options = {"dtype": dtype, "device_map": _device()}
    if not (dequantised and settings.load_in_4bit):
        return AutoModelForCausalLM.from_pretrained(settings.model_path, **options)
    model = AutoModelForCausalLM.from_pretrained(settings.model_path, quantization_config=nf4(dtype), **options)
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns that it does what it is asked to
    try:
        return model.dequantize()
    finally:
        logging.set_verbosity(level)


def prompt_logits(model, tokenizer, prompts: list[list[dict]]) -> list[torch.Tensor]:
    """A model's logits over every token of these chat prompts: a (tokens, vocabulary) tensor a prompt, 32 bits, off the GPU.

    One prompt at a time: no padding to explain away. Kept, they stand for a model that is no longer in memory. ValueError
    without prompts.
    """
    if not prompts:
        raise ValueError("no prompts to compare the two models on: a difference over none would prove nothing.")
    texts = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) for prompt in prompts]
    return _logits(model, tokenizer, texts)


@torch.inference_mode()
def _logits(model, tokenizer, texts: list[str]) -> list[torch.Tensor]:
    ids = [tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"].to(model.device) for text in texts]
    return [model(input_ids=one).logits[0].float().cpu() for one in ids]


def largest_difference(logits: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The largest absolute difference between two models' `prompt_logits`; infinite where a logit is not a number."""
    largest = 0.0
    for mine, theirs in zip(logits, others, strict=True):
        difference = (mine - theirs).abs().max().item()
        if not math.isfinite(difference):
            return math.inf  # a broken model is no model's equal; max() would pass over a nan
        largest = max(largest, difference)
    return largest


def untrained_matrices(model) -> list[str]:
    """The adapter matrices that are still all zero: LoRA's B starts at zero, so such a layer has learned nothing."""
    return [name for name, weight in model.named_parameters() if "lora_" in name and not weight.detach().any()]


def check_disk(run: Run, model: str, dtype: torch.dtype) -> None:
    """ValueError where the run's disk has no room for the merged model in this type; before anything is loaded.

    model: a hub name or a folder. Where its shape is not known (see `memory.shape_of`), nothing is said.
    """
    shape = shape_of(model)
    needed = _SPARE * shape.parameters * dtype.itemsize if shape else 0
    free = shutil.disk_usage(run.folder).free
    if needed > free:
        raise ValueError(
            f"the merged model would take {needed / 1e9:.1f} GB and the disk of {run.show()} has {free / 1e9:.1f} GB free: "
            "delete old runs, or set GRPO_RUNS_DIR to a larger disk. The adapter is whole, and can be used without a merge."
        )


def verify(folder: Path, tokenizer, prompts: list[list[dict]], expected: list[torch.Tensor], dtype: torch.dtype) -> float:
    """Load what was saved in `folder` in a fresh process, with plain Transformers, and compare its logits with those expected.

    Returns the largest difference. ValueError where it cannot be loaded or differs by more than rounding explains.
    """
    texts = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) for prompt in prompts]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "expected.pt"
        torch.save({"texts": texts, "logits": expected, "dtype": str(dtype).removeprefix("torch.")}, file)
        done = subprocess.run(
            [sys.executable, "-m", "helpers.results.merging", str(folder), str(file)],
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
        )
    whole = "The adapter is whole; what was merged is thrown away, and a merged model of before stays."
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"the merged model cannot be loaded by plain Transformers ({said}). {whole}")
    difference = json.loads(done.stdout.splitlines()[-1])["difference"]
    if not difference <= _TOLERANCE[dtype]:  # not >: true for nan too
        raise ValueError(
            f"the merged model is not the adapter on its base: logits differ by {difference:.3g}, more than the "
            f"{_TOLERANCE[dtype]:g} that rounding explains. {whole}"
        )
    return difference


def check_plan(run: Run, settings: Preset, machine: Machine, dtype: torch.dtype, *, merge: str, gguf, push_to_hub) -> None:
    """ValueError where notebook 05 could not do what its parameters ask for, before anything is loaded."""
    check_wishes(settings.backend, machine, merge=merge, gguf=gguf, push_to_hub=push_to_hub)
    if merge != "adapter":
        check_disk(run, settings.model_path, dtype)


def check_wishes(backend: str, machine: Machine, *, merge: str = "original", gguf=None, push_to_hub=None) -> None:
    """`check_plan` without a run: what can be told of these parameters before there is anything to merge."""
    if not isinstance(merge, str) or merge not in WAYS:
        raise ValueError(f"merge={merge!r} is not known. Known: {', '.join(WAYS)}.")
    if gguf is not None and (not isinstance(gguf, str) or not _QUANTISATION.fullmatch(gguf)):
        raise ValueError(f"gguf={gguf!r} is no way of quantising. Give llama.cpp's name of one, such as q4_k_m, q8_0 or f16.")
    obstacles = gguf_obstacles(machine, backend) if gguf else []
    if obstacles:
        raise ValueError(
            f"gguf={gguf!r} cannot be written here: {' '.join(obstacles)} Leave gguf out, or convert it elsewhere."
        )
    named = isinstance(push_to_hub, str) and _REPOSITORY.fullmatch(push_to_hub)
    if push_to_hub is not None and not (named and os.environ.get("HF_TOKEN")):
        raise ValueError(
            f"push_to_hub={push_to_hub!r}: name it owner/model, and set HF_TOKEN, a token that may write, in the environment."
        )


def gguf_obstacles(machine: Machine, backend: str) -> list[str]:
    """What keeps a GGUF file from being written here, one sentence each."""
    found = []
    if machine.gpu is None:
        found.append("Unsloth writes GGUF on a machine with an NVIDIA GPU, and none is visible.")
    if backend != "unsloth":
        found.append(f"It is Unsloth that writes GGUF, and this run used backend={backend!r}.")
    missing = [tool for tool in ("cmake", "git", "make") if shutil.which(tool) is None]
    if missing:
        found.append(f"llama.cpp is built for it, which needs {', '.join(missing)}: install them with the system's packages.")
    return found


def merge_with_unsloth(settings: Preset, adapter: Path, folder: Path) -> None:
    """Merge into the original base, 16 bits, through Unsloth, which reads and writes it shard by shard; needs a GPU."""
    model, tokenizer = _adapted_by_unsloth(settings, adapter)
    model.save_pretrained_merged(str(folder), tokenizer, save_method="merged_16bit")


def write_gguf(run: Run, settings: Preset, method: str) -> str:
    """A GGUF file of the adapter on its base for llama.cpp, in the run's folder `gguf/`; method: such as q4_k_m, q8_0, f16."""
    model, tokenizer = _adapted_by_unsloth(settings, run.require("adapter"))
    model.save_pretrained_gguf(str(run.path("gguf")), tokenizer, quantization_method=method)
    return "gguf"


def _adapted_by_unsloth(settings: Preset, adapter: Path):
    from unsloth import FastLanguageModel

    return FastLanguageModel.from_pretrained(str(adapter), max_seq_length=settings.context, load_in_4bit=settings.load_in_4bit)


def store_in_4_bits(folder: Path, dtype: torch.dtype) -> None:
    """Replace the merged model in `folder`, which has been verified, by itself in 4 bits (NF4)."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=nf4(dtype), dtype=dtype, device_map=_device())
    for file in Path(folder).glob("*.safetensors*"):
        file.unlink()
    model.save_pretrained(folder)


def upload(folder: Path, repository: str) -> str:
    """Upload a folder to the hub, private unless the repository is there already; returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, private=True, exist_ok=True)
    return str(api.upload_folder(repo_id=repository, folder_path=str(folder)).repo_url)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _main(folder: str, file: str) -> None:
    """The fresh process of `verify`: print the largest difference as JSON."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    expected = torch.load(file, weights_only=True)
    dtype = getattr(torch, expected["dtype"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map=_device()).eval()
    logits = _logits(model, AutoTokenizer.from_pretrained(folder), expected["texts"])
    print(json.dumps({"difference": largest_difference(logits, expected["logits"])}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
