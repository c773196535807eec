"""Merge an adapter into its base model, and verify what was saved.

Notebook 05 loads the base with `load_base`, merges the adapter with PEFT or `merge_with_unsloth`,
and verifies the saved model:

    proof = verify(folder, prompts, adapter=adapter, base=base, dtype=dtype)
    print(proof_text(proof))

`verify` runs this module in a process of its own, `python -m helpers.results.merging`, whose work
begins at `_prove`: it merges in memory, and compares the saved model with the result.
"""

import json
import logging
import math
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from helpers import PROJECT
from helpers.environment import Machine
from helpers.settings import Preset
from helpers.templates import encode, set_thinking
from helpers.training.base import Base
from helpers.training.policy import (
    dtype_without_bf16,
    load_as_stored,
    load_text,
    load_whole,
    nf4,
)
from helpers.training.sampling import release

# --- The bases ------------------------------------------------------------------------------------


def precision(machine: Machine, base: Base) -> torch.dtype:
    """Return the data type in which a base is merged and measured.

    On a GPU: bfloat16 if supported, otherwise float16, or float32 for model families that overflow
    in float16. On a CPU: float32.
    """
    if machine.gpu is None:
        return torch.float32
    return torch.bfloat16 if machine.bf16 else dtype_without_bf16(base.name)


def load_base(base: Base, dtype: torch.dtype, dequantised: bool):
    """Load the base of an adapter in `dtype`, on the GPU if there is one.

    dequantised: load the 4-bit weights and unpack them, instead of the original weights. The
        adapter was trained on the 4-bit weights, so it behaves as in training on the unpacked ones.
        The original weights are the better model, but the adapter was not trained on them.

    Raise ValueError if the 4-bit weights are not the ones used in training.
    """
    options = {"dtype": dtype, "device_map": "cuda" if torch.cuda.is_available() else "cpu"}
    load = load_text if base.text_only else load_whole
    if base.quantised is None or not dequantised:
        return load(base.original, **options)
    if base.quantised == "here":  # not stored in 4 bits, but quantised while loading
        options["quantization_config"] = nf4(dtype)
    model = load(base.name, **options)
    base.check(model)
    # dequantize() warns that it dequantises
    logging.getLogger("transformers.integrations.bitsandbytes").setLevel(logging.ERROR)
    return model.dequantize()


def merge_with_unsloth(settings: Preset, adapter: Path, folder: Path) -> None:
    """Merge an adapter into its original base and save the result in 16 bits through Unsloth, which
    reads and writes one shard at a time. Requires a GPU.
    """
    from unsloth import FastLanguageModel

    model, tokenizer = FastLanguageModel.from_pretrained(
        str(adapter), max_seq_length=settings.context, load_in_4bit=settings.load_in_4bit
    )
    model.save_pretrained_merged(str(folder), tokenizer, save_method="merged_16bit")


# --- The proof ------------------------------------------------------------------------------------

# The largest distance allowed between a saved merge and the same merge in memory, as a share of the
# adapter's effect. Measured in benchmarks/results/merge_tolerance.md.
UNEXPLAINED = 0.25


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
    """Verify, in a fresh process, that the model saved in `folder` is the adapter on its base.

    The process loads the base and the adapter, merges them in memory, loads the saved model, and
    compares the two: first each adapted matrix, then the logits of these prompts. The logits also
    cover the rest of the model: the weights without an adapter, and the configuration. Any program
    may have written the model, with either base.

    The process must be a fresh one because Unsloth patches model classes for the whole process. On
    a GPU, for example, it rounds rotary position embeddings to 16 bits, which changes logits by
    more than a small adapter does.

    dequantised: which base the adapter was merged into; see `load_base`.
    thinking: the setting used to render the prompts.

    Returns the numbers of `compare_logits`, and the largest of `matrix_distances` as `matrix`.
    Raise ValueError, naming the differences, if the saved model differs from the merge in memory,
    or if one of the models cannot be loaded.
    """
    # 1. Run `_prove` in another process.
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
    unharmed = "The adapter is unharmed, and a model that was merged before is kept."
    if process.returncode:
        messages = process.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"the merged model cannot be proven ({messages[-1]}). {unharmed}")
    found = json.loads(process.stdout.splitlines()[-1])

    # 2. Refuse a model that is too far from the merge in memory. If only the logits differ, the
    # fault is outside the adapted matrices.
    compared = found["matrices"] | {"logits": found["logits"]["unexplained"]}
    wrong = []
    for name, share in compared.items():
        if not share <= UNEXPLAINED:  # also true for nan
            wrong.append(f"{name} by {share:.0%}")
    if wrong:
        raise ValueError(
            f"the merged model is not the adapter on its base: {len(wrong)} of {len(compared)} "
            f"comparisons with the same merge in memory fail ({', '.join(wrong[:3])} of what the "
            f"adapter does to it; {UNEXPLAINED:.0%} is allowed). {unharmed}"
        )
    return found["logits"] | {"matrix": max(found["matrices"].values())}


def proof_text(proof: dict[str, float]) -> str:
    """Return the result of `verify` as a sentence, with a warning if rounding lost most of the
    adapter's effect.
    """
    sentence = (
        f"the merged model, read from disk, does {proof['kept']:.1%} of what the adapter does on "
        "its base"
    )
    if proof["kept"] >= 0.5:
        return sentence
    return (
        f"{sentence}\nWARNING: the adapter is so small compared with its base that rounding "
        "the merged weights to 16 bits lost the rest. "
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
) -> dict[str, dict[str, float]]:
    """Return what `verify` asks for, in the process of its own: as `logits` the result of
    `compare_logits`, and as `matrices` that of `matrix_distances`.

    The arguments are those of `verify`, as JSON can hold them.
    """
    from peft import PeftModel
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    set_thinking(tokenizer, thinking)

    # 1. Merge in memory, and make room for the second model.
    bare = load_base(Base(**base), getattr(torch, dtype), dequantised)
    unmerged = PeftModel.from_pretrained(bare, adapter).eval()
    expected = merge_in_memory(unmerged, tokenizer, prompts)
    del bare, unmerged
    release()

    # 2. Load the saved model, and compare.
    model = load_as_stored(folder)
    with in_32_bits(model):
        logits = prompt_logits(model, tokenizer, prompts)
    return {
        "logits": compare_logits(logits, expected),
        "matrices": matrix_distances(model, expected["matrices"]),
    }


def merge_in_memory(unmerged, tokenizer, prompts: list[list[dict]]) -> dict:
    """Merge a PEFT model's adapter in place, and return the reference for the comparison.

    Returns a dictionary: base, adapter and merged are the `prompt_logits`, computed in 32 bits, of
    the bare base, the adapter on the base, and the merged model; matrices is the result of
    `merge_by_matrix`. Raise ValueError if the adapter does not change the logits.
    """
    expected = {}
    with in_32_bits(unmerged):
        with unmerged.disable_adapter():
            expected["base"] = prompt_logits(unmerged, tokenizer, prompts)
        expected["adapter"] = prompt_logits(unmerged, tokenizer, prompts)
        expected["matrices"] = merge_by_matrix(unmerged)
        expected["merged"] = prompt_logits(unmerged, tokenizer, prompts)
    compare_logits(expected["merged"], expected)  # raises if the adapter has no effect
    return expected


def compare_logits(logits: list[torch.Tensor], expected: dict) -> dict[str, float]:
    """Compare a saved model's logits with those of `merge_in_memory`; return three numbers.

    The adapter's effect is the change it makes to the logits of its base.

    kept: the share of the effect that the saved model shows (its change projected on the effect). 1
        is the whole effect, 0 is the bare base. Rounding merged weights to 16 bits loses part of a
        small adapter.
    unexplained: the distance from the merge in memory, as a share of the effect. Both models are
        rounded alike, so it is close to 0.
    logit_difference: the largest difference from the adapter on its base, in logits.

    Raise ValueError if the adapter has no effect.
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
            "the adapter does not change the logits of its base, as if it had never been trained: "
            "there is nothing to merge. Train it for several steps: in the first, the learning "
            "rate is 0."
        )
    return {
        "kept": projection / effect_squared,
        "unexplained": math.sqrt(distance_squared / effect_squared),
        "logit_difference": largest_difference(logits, expected["adapter"]),
    }


def matrix_distances(
    model, matrices: dict[str, tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, float]:
    """Return the distance of each merged matrix from the same merge in memory, as a share of the
    change that merging made.

    0 means the matrices are equal (both are rounded to the same type). 1 means the matrix was not
    merged, however small the adapter or deep the model is.

    matrices: the sketches before and after the merge in memory, from `merge_by_matrix`.
    """
    distances = {}
    for name, (before, after) in matrices.items():
        saved = sketch(model.get_parameter(name))
        distance = (saved - after).norm().item()
        change = (after - before).norm().item()
        # The lower limit is for an adapter that rounding removed entirely: the matrix must then
        # equal the base's, to 64-bit precision.
        distances[name] = distance / max(change, 1e-9 * after.norm().item())
    return distances


def merge_by_matrix(unmerged) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Merge a PEFT model's adapter in place, one matrix at a time; return the `sketch` of each
    adapted matrix before and after, by parameter name.

    The sketches need 128 bytes per matrix row: about 270 MB for a model of 14 billion weights.
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
    """Return the products of a matrix with 8 fixed random vectors: (rows, 8), float64, on the CPU.

    Sketches replace matrices too large to keep. Random projections preserve lengths (Johnson and
    Lindenstrauss, 1984): the norm of the difference of two sketches is √8 times the norm of the
    difference of the matrices, within a few per cent.
    """
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(weight.shape[1], 8, generator=generator, dtype=torch.float64)
    vectors = vectors.to(weight.device)
    return torch.cat([rows.double() @ vectors for rows in weight.split(1024)]).cpu()


@torch.inference_mode()
def prompt_logits(model, tokenizer, prompts: list[list[dict]]) -> list[torch.Tensor]:
    """Return a model's logits at every token of these chat prompts: one (tokens, vocabulary) tensor
    per prompt, float32, on the CPU.

    Prompts run one at a time, because padding would change the logits slightly.
    """
    logits = []
    for prompt in prompts:
        ids = torch.tensor([encode(tokenizer, prompt)], device=model.device)
        logits.append(model(input_ids=ids).logits[0].float().cpu())
    return logits


def largest_difference(logits: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """Return the largest absolute difference between two models' `prompt_logits`; nan if any logit
    is nan.
    """
    pairs = zip(logits, others, strict=True)
    differences = [(one - other).abs().max() for one, other in pairs]
    return torch.stack(differences).max().item()


@contextmanager
def in_32_bits(model):
    """Make a model compute in 32 bits while this context is open, whatever the type of its weights.

    In bfloat16, rounding during the computation changes logits as much as a small adapter does.
    Each layer's weights are converted only while that layer runs, so memory hardly grows.
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


if __name__ == "__main__":
    print(json.dumps(_prove(**json.load(sys.stdin))))
