"""Bases to merge into, and the proof that a merged model is the adapter on its base.

`python -m helpers.results.merging` is the proof's own process, which imports no Unsloth.
"""

import json
import logging
import math
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import huggingface_hub
import torch

from helpers import PROJECT
from helpers.environment import Machine
from helpers.presets import Preset
from helpers.results import llama_cpp
from helpers.templates import encode, set_thinking
from helpers.training.base import Base
from helpers.training.policy import dtype_without_bf16, load_text, load_whole, nf4, release

MERGES = ("original", "dequantised", "adapter")  # what notebook 05 can make of an adapter
# How far a merge read from disk may be from the same merge in memory, as a share of what that does
# to a matrix, and of what the adapter does to the logits: see
# benchmarks/results/merge_tolerance.md.
UNEXPLAINED = 0.25


# --- What can be done here ------------------------------------------------------------------------


def check_merge(
    backend: str,
    machine: Machine,
    base: Base | None = None,
    *,
    merge: str = "original",
    gguf=None,
    push_to_hub=None,
) -> None:
    """Raise ValueError if notebook 05 could not do what its parameters ask for, before anything is
    loaded.

    base: what the adapter was trained on; None before there is one.
    """
    if merge not in MERGES:
        raise ValueError(f"merge={merge!r} is not known. Known: {', '.join(MERGES)}.")
    if base is not None and base.original is None and merge != "dequantised":
        raise ValueError(
            f"merge={merge!r} needs the original weights, and which 16-bit model {base.name} was "
            'made from is not known: use merge="dequantised".'
        )
    if gguf in llama_cpp.CONVERTED:
        if merge == "adapter":
            raise ValueError(
                f"gguf={gguf!r} is made of the merged model, and merge='adapter' makes none. Leave "
                "one of them out."
            )
        llama_cpp.check_installed()
    elif gguf is not None and base is not None and base.text_only:
        raise ValueError(
            f"gguf={gguf!r}: Unsloth would write the whole of {base.name}, which reads pictures; "
            "only its language part was trained. Take gguf='f16' or 'q8_0'."
        )
    elif gguf is not None and (machine.gpu is None or backend != "unsloth"):
        raise ValueError(
            f"gguf={gguf!r} cannot be written here: it is Unsloth that quantises so, with "
            f"backend='unsloth' (this run: {backend!r}) on a machine with an NVIDIA GPU. "
            "gguf='f16' and 'q8_0' can be written anywhere."
        )
    if push_to_hub is not None:
        is_address = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(push_to_hub))
        if not is_address or not huggingface_hub.get_token():
            raise ValueError(
                f"push_to_hub={push_to_hub!r}: name it owner/model, and set HF_TOKEN, a token that "
                "may write, in the environment (or log in with `hf auth login`)."
            )


# --- The bases ------------------------------------------------------------------------------------


def precision(machine: Machine, base: Base) -> torch.dtype:
    """Return the type in which a base is merged and measured: bfloat16; float16 on a card without
    it; 32 bits on a CPU, and on such a card also for families that overflow in float16.
    """
    if machine.gpu and machine.bf16:
        return torch.bfloat16
    return torch.float32 if machine.gpu is None else dtype_without_bf16(base.name)


def load_base(base: Base, dtype: torch.dtype, dequantised: bool):
    """Load the base of an adapter in `dtype`, on the GPU if there is one: the original weights, or
    the 4-bit ones unpacked.

    The adapter was trained on the 4-bit ones, so on the unpacked it does what it did in training;
    the original ones are the better base, which it has not seen. ValueError if the 4 bits are
    not those of the training.
    """
    options = {"dtype": dtype, "device_map": "cuda" if torch.cuda.is_available() else "cpu"}
    load = load_text if base.text_only else load_whole
    if not (dequantised and base.quantised):
        return load(base.original, **options)
    if base.quantised == "here":
        options["quantization_config"] = nf4(dtype)
    model = load(base.name, **options)
    base.check(model)
    # it warns that it does what it is asked to
    logging.getLogger("transformers.integrations.bitsandbytes").setLevel(logging.ERROR)
    return model.dequantize()


def merge_with_unsloth(settings: Preset, adapter: Path, folder: Path) -> None:
    """Merge into the original base, 16 bits, through Unsloth, which reads and writes it shard by
    shard; needs a GPU.
    """
    from unsloth import FastLanguageModel

    model, tokenizer = FastLanguageModel.from_pretrained(
        str(adapter), max_seq_length=settings.context, load_in_4bit=settings.load_in_4bit
    )
    model.save_pretrained_merged(str(folder), tokenizer, save_method="merged_16bit")


# --- The proof ------------------------------------------------------------------------------------


@contextmanager
def in_32_bits(model):
    """Let a model compute in 32 bits, whatever its weights are in: each layer's are widened while
    it is called, no others.

    In bfloat16 the computing alone moves logits by as much as a small adapter does, and would hide
    what a merge did.
    """
    stored = {}

    def widen(layer, _):
        for weight in layer.parameters(recurse=False):
            stored[weight] = weight.data
            weight.data = weight.data.float()

    def restore(layer, *_):
        for weight in layer.parameters(recurse=False):
            weight.data = stored.pop(weight)

    hooks = []
    for layer in model.modules():
        if any(weight.dtype.itemsize == 2 for weight in layer.parameters(recurse=False)):
            hooks.append(layer.register_forward_pre_hook(widen))
            hooks.append(layer.register_forward_hook(restore))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def prompt_logits(model, tokenizer, prompts: list[list[dict]]) -> list[torch.Tensor]:
    """Return a model's logits over every token of these chat prompts: a (tokens, vocabulary) tensor
    per prompt, 32 bits, off the GPU.

    One prompt at a time: no padding to explain away. Kept, they stand for a model that is no longer
    in memory.
    """
    logits = []
    for prompt in prompts:
        ids = torch.tensor([encode(tokenizer, prompt)], device=model.device)
        output = model(input_ids=ids)
        logits.append(output.logits[0].float().cpu())
    return logits


def largest_difference(logits: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """Return the largest absolute difference between two models' `prompt_logits`; nan if a logit is
    not a number.
    """
    pairs = zip(logits, others, strict=True)
    return torch.stack([(one - other).abs().max() for one, other in pairs]).max().item()


def merge_in_memory(unmerged, tokenizer, prompts: list[list[dict]]) -> dict:
    """Return what `verify` compares a merge with: {"base", "adapter", "merged", "matrices"}.

    The first three are the `prompt_logits`, computed in 32 bits, of the base, of the adapter on it,
    and of both merged in memory. matrices: see `merge_by_matrix`.

    unmerged: a PEFT model. Its adapter is merged afterwards. ValueError if the adapter does
    nothing to the logits.
    """
    expected = {}
    with in_32_bits(unmerged):
        with unmerged.disable_adapter():
            expected["base"] = prompt_logits(unmerged, tokenizer, prompts)
        expected["adapter"] = prompt_logits(unmerged, tokenizer, prompts)
        expected["matrices"] = merge_by_matrix(unmerged)
        expected["merged"] = prompt_logits(unmerged, tokenizer, prompts)
    compare_logits(expected["merged"], expected)  # refuses an adapter that does nothing
    return expected


def merge_by_matrix(unmerged) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Merge a PEFT model's adapter in place; return the `sketch` of each adapted matrix before and
    after, by its name.

    One matrix at a time, and 128 bytes are kept of each row: about 270 MB for a model of 14 billion
    weights.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    sketches = {}
    for name, layer in unmerged.named_modules():
        if isinstance(layer, BaseTunerLayer):
            before = sketch(layer.get_base_layer().weight)
            layer.merge()
            after = sketch(layer.get_base_layer().weight)
            sketches[name.removeprefix("base_model.model.") + ".weight"] = (before, after)
    return sketches


@torch.inference_mode()
def sketch(weight: torch.Tensor) -> torch.Tensor:
    """Return the products of a matrix with 8 random vectors, the same ones in every process:
    (rows, 8), in 64 bits, off the GPU.

    The difference of two sketches is as large as that of the matrices, times the root of 8 and
    within a few per cent: random projections keep lengths (Johnson and Lindenstrauss, 1984).
    """
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(weight.shape[1], 8, generator=generator, dtype=torch.float64)
    vectors = vectors.to(weight.device)
    return torch.cat([rows.double() @ vectors for rows in weight.split(1024)]).cpu()


def matrix_distances(
    model, matrices: dict[str, tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, float]:
    """Return how far each matrix of a merged model is from the same merge in memory, as a share of
    what that merge did to it.

    Both are rounded to the same type. 0 is the same merge; 1 is a matrix left out, whatever the
    size of the adapter and the number of layers.
    """
    distances = {}
    for name, (before, after) in matrices.items():
        away = (sketch(model.get_parameter(name)) - after).norm().item()
        change = (after - before).norm().item()
        # If rounding left nothing of the adapter, the matrix must be the base's, to the last bits
        # of the 64.
        distances[name] = away / max(change, 1e-9 * after.norm().item())
    return distances


def compare_logits(logits: list[torch.Tensor], expected: dict) -> dict[str, float]:
    """Compare a merged model's logits with those of `merge_in_memory`; return three numbers for the
    manifest.

    kept: the share of what the adapter does to the base's logits that the merged model does too: 1
    is all of it, 0 is the bare base (the projection on the adapter's effect). Rounding the merged
    weights to 16 bits loses a part of a small adapter.
    unexplained: the distance from the same merge in memory, as a share of the adapter's effect;
    both are rounded alike, so next to nothing is left. logit_difference: the largest one from the
    adapter on its base.

    ValueError if the adapter does nothing to the logits, so that there is nothing to compare.
    """
    projection = 0.0
    effect_squared = 0.0
    distance_squared = 0.0
    for saved, base, adapter, merged in zip(
        logits, expected["base"], expected["adapter"], expected["merged"], strict=True
    ):
        effect = adapter - base
        projection += ((saved - base) * effect).sum().item()
        effect_squared += effect.square().sum().item()
        distance_squared += (saved - merged).square().sum().item()
    if effect_squared == 0:
        raise ValueError(
            "the adapter does nothing to the logits of its base, as one that was never trained: "
            "there is nothing to merge. Train it for several steps: at the first, the learning "
            "rate is 0."
        )
    return {
        "kept": projection / effect_squared,
        "unexplained": math.sqrt(distance_squared / effect_squared),
        "logit_difference": largest_difference(logits, expected["adapter"]),
    }


def verify(
    folder: Path,
    prompts: list[list[dict]],
    *,
    adapter: Path,
    base: Base,
    dtype: torch.dtype,
    dequantised: bool = False,
    thinking: bool | None = None,
) -> dict[str, float]:
    """Prove, in a fresh process, that the model saved in `folder` is the adapter on its base.

    The process imports plain Transformers and PEFT alone: it calls `merge_in_memory` with these
    prompts and the base as `load_base` gives it, and loads what was saved. Unsloth changes the
    classes of a whole process: on a GPU, cos and sin of the positions are rounded to 16 bits, which
    moves logits by more than a small adapter does.

    Every adapted matrix is compared, whichever program wrote it and whichever base it was merged
    into; then the logits, which also show whether the rest of the model is the base's: what was not
    adapted, and the configuration. thinking: the setting with which the prompts are rendered.

    Return what `compare_logits` returns, and as `matrix` the largest of `matrix_distances`.
    ValueError, with what differs, if the saved model is not what the same merge in memory is, or if
    either model cannot be loaded.
    """
    # Call `_prove`, below, in a process of its own.
    arguments = {
        "folder": str(folder),
        "prompts": prompts,
        "adapter": str(adapter),
        "base": asdict(base),
        "dtype": str(dtype).removeprefix("torch."),
        "dequantised": dequantised,
        "thinking": thinking,
    }
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    process = subprocess.run(
        [sys.executable, "-m", "helpers.results.merging"],
        env=os.environ | {"PYTHONPATH": path},
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
    )
    unharmed = "The adapter is whole; a model that was merged before stays."
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"the merged model cannot be proven ({reason}). {unharmed}")
    proof, distances = json.loads(process.stdout.splitlines()[-1])

    # If only the logits differ, something that was not adapted is not the base's.
    compared = distances | {"logits": proof["unexplained"]}
    # not >: true for nan too
    too_far = {name: share for name, share in compared.items() if not share <= UNEXPLAINED}
    if too_far:
        wrong = [f"{name} by {share:.0%}" for name, share in too_far.items()]
        raise ValueError(
            f"the merged model is not the adapter on its base: {len(wrong)} of {len(compared)} "
            f"comparisons with the same merge in memory fail ({', '.join(wrong[:3])} of what the "
            f"adapter does to it; {UNEXPLAINED:.0%} is allowed). {unharmed}"
        )
    return proof | {"matrix": max(distances.values())}


def proof_text(proof: dict[str, float]) -> str:
    """Return what `verify` found, in a sentence, with a warning if rounding lost most of the
    adapter.
    """
    sentence = (
        f"the merged model, read from disk, does {proof['kept']:.1%} of what the adapter does on "
        "its base"
    )
    if proof["kept"] >= 0.5:  # with less of it, it is hardly the trained model
        return sentence
    return (
        f"{sentence}\nWARNING: the adapter is so small beside its base that rounding the merged "
        "weights to 16 bits lost the rest. "
        'Use the adapter itself (merge="adapter"), or train further.'
    )


def _prove(
    folder: str,
    prompts: list,
    adapter: str,
    base: dict,
    dtype: str,
    dequantised: bool,
    thinking: bool | None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what `compare_logits` and `matrix_distances` return, in the process of `verify`."""
    from peft import PeftModel
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    set_thinking(tokenizer, thinking)
    # what the merge should be
    bare = load_base(Base(**base), getattr(torch, dtype), dequantised)
    expected = merge_in_memory(PeftModel.from_pretrained(bare, adapter).eval(), tokenizer, prompts)
    del bare
    release()  # makes room for the second model
    # what it is
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_whole(folder, dtype="auto", device_map=device).eval()
    with in_32_bits(model):
        logits = prompt_logits(model, tokenizer, prompts)
    return compare_logits(logits, expected), matrix_distances(model, expected["matrices"])


if __name__ == "__main__":
    print(json.dumps(_prove(**json.load(sys.stdin))))
