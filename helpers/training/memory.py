"""Estimate the memory of a GRPO step with LoRA, part by part, before anything is loaded: that of
the GPU, or without one, that of the process.

    lines = check(settings, machine)

The model is built from its config.json on torch's meta device, where weights have shapes but take
no memory, and its weights are counted there: hybrid layers, experts, embeddings, and the cache of
one forward pass. Sizes are in bytes; 1 GB is 10**9 bytes. The estimate leaves out the vision tower
(about 1 GB) and allocator fragmentation. A warm start needs no more than a step: it takes the
step's batch at most, at the same context, while vLLM sleeps (warm.py).
"""

import functools
import json
import math
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass

from helpers import PROJECT
from helpers.environment import Machine, cpu_has_bf16, gpu_obstacle
from helpers.families import FAMILIES, config_of, family_of, lora_targets
from helpers.settings import Preset

# Bytes per weight. NF4 with double quantisation (QLoRA, arXiv 2305.14314, section 3): 4 bits, an
# 8-bit scale per 64 weights, and a 32-bit scale per 256 of those scales. Unsloth's dynamic
# checkpoints (-unsloth-bnb-4bit) keep some layers in 16 bits and are larger.
_NF4 = (4 + 8 / 64 + 32 / (64 * 256)) / 8
_16_BIT = 2
# Assumptions, in bytes
_CONTEXT = 0.8e9  # CUDA, cuBLAS and the loaded kernels
_GRAPHS = 1.0e9  # vLLM's CUDA graphs, which stay allocated while the engine sleeps
# Without a GPU: Python with its libraries; and how much more the heap takes than the activations in
# it. The first step of SmolLM2, 16 sequences of 256 tokens, took 4.9 GB: 3.3 of activations and 1.3
# before the forward pass. Steps of other lengths then leave gaps between freed blocks. The share is
# fitted to the peaks of whole trainings: 5.3 GB with a limit of 192 tokens, 8.1 GB with 344.
_PROCESS = 1.0e9
_HEAP = 1.45
_HEADROOM = 0.95  # usable share of the card; the rest is lost to fragmentation
# Families whose layers and decoding Unsloth replaces on a GPU (unsloth/models/loader.py 1796)
_REPLACED = ("llama", "mistral", "gemma", "gemma2", "qwen2", "qwen3")
AWAKE = (
    "With a vision model, vLLM cannot sleep, so its share of the card stays in use: lower "
    "gpu_memory_utilization first, or use engine='transformers'. "
)


def what_helps(settings: Preset) -> str:
    """Return what to change in these settings so that a step needs less memory."""
    batch, reused = settings.per_device_train_batch_size, settings.steps_per_generation
    lower = "lower max_completion_length, or use a smaller model."
    if batch % 2:  # it cannot be halved
        return f"What helps: {lower}"
    half = {
        "per_device_train_batch_size": batch // 2,
        "gradient_accumulation_steps": 2 * settings.gradient_accumulation_steps,
    }
    if reused:  # a round must sample as many completions as before
        half["steps_per_generation"] = 2 * reused
    *first, last = (f"{name}={value}" for name, value in half.items())
    return (
        f"What helps most is {', '.join(first)} and {last}, which train the same in smaller "
        f"passes. If that is not enough, {lower}"
    )


def check(
    settings: Preset, machine: Machine, config: dict | None = None, *, sees: bool | None = None
) -> list[str]:
    """Return the estimated memory of a step as lines of text: each part, the peak of the more
    expensive phase against the card, and advice about the model's family.

    config: the model's config.json; None: it is looked up, and nothing else is downloaded.
    sees: whether prompts have pictures; None: if the source is a set of pictures. Without pictures,
        only the language part of a vision model is loaded.

    ValueError if torch cannot use the GPU; if the estimate exceeds it; if the context exceeds the
    model's positions; if the adapter's rank exceeds the model's width; if the language part cannot
    be loaded alone; if the config.json cannot be had.
    """
    if obstacle := gpu_obstacle(machine):
        raise ValueError(obstacle)
    if sees is None:
        sees = settings.source.startswith("pictures/")
    config = config or config_of(settings.model_path)
    kind = config.get("model_type", "")
    if "vision_config" in config and not sees and not family_of(kind).language_part:
        raise ValueError(
            f"{settings.model} is a vision model, but this run has no images. For its family "
            f"({kind}), the language model cannot be trained and merged on its own; that works "
            f"only for {', '.join(name for name, row in FAMILIES.items() if row.language_part)}. "
            "Use a text model, or use notebook 11."
        )
    card = card_of(machine)
    pictures = room_for_a_picture(settings) if sees else 0
    context = settings.context + pictures
    advice = []
    if settings.load_in_4bit and not family_of(kind).in_4_bits:
        advice.append(
            f"Unsloth advises against 4 bits for {settings.model}: set load_in_4bit=False."
        )
    try:
        sizes = sizes_of(config, context)
    except LookupError as error:
        reason = f"no estimate for {settings.model}: Transformers could not build it ({error})."
        return [reason, *advice]

    # refuse what cannot run
    if settings.lora_rank > sizes["hidden"]:
        raise ValueError(
            f"lora_rank={settings.lora_rank:,} is more than the width of {settings.model}, "
            f"{sizes['hidden']:,}: the adapter would be larger than the matrix it adapts. Ranks of "
            "8 to 128 are usual."
        )
    # pictures are left out here: the room reserved for one is more than most pictures take
    if 0 < sizes["positions"] < settings.context:
        raise ValueError(
            f"a prompt and its completion take {settings.context:,} tokens, but {settings.model} "
            f"has {sizes['positions']:,} positions: lower max_completion_length or "
            "max_prompt_length."
        )
    step = estimate(settings, config, card, sees, in_32_bits=card is None and not cpu_has_bf16())
    if card and step.peak > _HEADROOM * card:
        raise ValueError(
            f"{settings.model} with these settings needs an estimated {size(step.peak)}, but only "
            f"{size(_HEADROOM * card)} of {machine.gpu}'s {size(card)} can be used. "
            f"{AWAKE if 'vLLM awake' in step.training else ''}{what_helps(settings)}"
        )

    # list the parts, then the peak of the more expensive phase
    picture = f", {pictures:,} of them a picture" if pictures else ""
    lines = [
        f"memory of a step of {settings.model}, at {context:,} tokens a sequence{picture} "
        "(estimated)"
    ]
    for parts, when in (
        (step.held, ""),
        (step.sampling, "while sampling"),
        (step.training, "while training"),
    ):
        for name, number in parts.items():
            lines.append(f"  {name:<28}{size(number):>9}  {when}".rstrip())
    if step.offloaded:
        inputs = f"{'layer inputs, not on the card':<28}{size(step.offloaded):>9}"
        lines.append(f"  {inputs} of the computer's {machine.memory_gb:.0f} GB")
    phase = max(step.peaks, key=step.peaks.get)
    against = f" of {size(card)}" if card else ""
    lines.append(f"  {f'at most, while {phase}':<28}{size(step.peak):>9}{against}")
    return lines + advice


@dataclass(frozen=True)
class Estimate:
    """Bytes by part: held throughout, and added while sampling and while training.

    offloaded: bytes in the computer's own memory while training.
    """

    held: dict[str, float]
    sampling: dict[str, float]
    training: dict[str, float]
    offloaded: float = 0

    @property
    def peaks(self) -> dict[str, float]:
        """Peak bytes of each phase."""
        held = sum(self.held.values())
        return {
            "sampling": held + sum(self.sampling.values()),
            "training": held + sum(self.training.values()),
        }

    @property
    def peak(self) -> float:
        """Peak bytes of a step."""
        return max(self.peaks.values())


def estimate(
    settings: Preset,
    config: dict,
    card: float | None,
    sees: bool = False,
    in_32_bits: bool = False,
) -> Estimate:
    """Return the memory per process of a GRPO step at its longest prompts and completions.

    config: the model's config.json.
    card: bytes of the GPU; None: a CPU. vLLM's engine takes `gpu_memory_utilization` of the card,
        whether it needs it or not. The frozen weights, which the engine shares with the training,
        are part of that share. While the policy trains, the engine sleeps (Unsloth's standby) and
        keeps only its CUDA graphs; beside a vision model it cannot sleep.
    sees: whether each prompt has a picture.
    in_32_bits: whether weights and activations are in 32 bits, as on a CPU without bfloat16.

    LookupError if Transformers cannot build the model.
    """
    on_unsloth = settings.backend == "unsloth"
    context = settings.context + (room_for_a_picture(settings) if sees else 0)
    sizes = sizes_of(config, context)

    # frozen weights
    in_4_bits = 0
    if settings.load_in_4bit:
        in_4_bits = sizes["quantised"]
        if on_unsloth and family_of(config["model_type"]).experts_in_4_bits:
            in_4_bits += sizes["experts"]
    whole = sizes["quantised"] + sizes["experts"] + sizes["kept"]
    number = 4 if in_32_bits else _16_BIT  # bytes
    weights = in_4_bits * _NF4 + (whole - in_4_bits) * number

    # the adapter: Unsloth keeps it in 32 bits; TRL casts an adapter on a 4-bit model to 16
    width = _16_BIT if settings.load_in_4bit and not on_unsloth else 4
    adapter = sizes["adapted"] * settings.lora_rank
    # As the reference of the KL, TRL keeps a frozen copy of the adapter. Unsloth on a GPU uses the
    # model without its adapter.
    copied = settings.beta and not (on_unsloth and card is not None)
    moments = 2 if "8bit" in settings.optim else 2 * width
    held = {"frozen weights": weights}
    if copied:
        held["adapter, and its reference"] = 2 * adapter * width
    else:
        held["adapter"] = adapter * width
    held["optimizer"] = adapter * moments
    if card is None:
        held["Python and its libraries"] = _PROCESS
    else:
        held["CUDA context"] = _CONTEXT

    # Activations of one batch. With checkpointing, a layer keeps its input, and its inside is
    # computed again for the backward pass; otherwise all layers keep their inside.
    tokens = settings.per_device_train_batch_size * context
    insides = sizes["inside"]
    layers = len(insides)
    if card is None:
        # Without Unsloth's kernels, both norms keep their input in 32 bits, and the adapter keeps
        # copies of its inputs: 12 bytes of each number of the layer's input, as counted in a step
        # of SmolLM2.
        insides = [inside + 12 / number * sizes["hidden"] for inside in insides]
    layer_input = tokens * sizes["hidden"] * number
    kept = layers * layer_input
    offloaded = 0
    if not settings.gradient_checkpointing:
        kept = tokens * sum(insides) * number
    elif on_unsloth and card is not None and context >= 512 and layer_input > 2 * 2**20:
        # `add_adapter` asks Unsloth to move the inputs of all layers but the last to the computer's
        # memory; two buffers on the card receive them in turn. Unsloth does so on a GPU, from 512
        # tokens (apply_unsloth_gradient_checkpointing, unsloth/models/_utils.py 502), for inputs
        # over 2 MiB (UnslothCheckpointFunction, unsloth_zoo/gradient_checkpointing.py).
        kept = 3 * layer_input
        offloaded = (layers - 1) * layer_input
    # The gradients inside a layer take as much again, unless Unsloth's kernels write them over the
    # activations (LoRA_MLP.backward, unsloth/kernels/fast_lora.py).
    replaced = on_unsloth and card is not None and config["model_type"] in _REPLACED
    inside = (1 if replaced else 2) * tokens * max(insides) * number

    # logits, and what is computed from them
    completions = settings.per_device_train_batch_size * settings.max_completion_length
    if on_unsloth:
        # One buffer in 32 bits, which the gradient overwrites. Its rows are a share of all tokens,
        # at least 512 and at most 2 GiB (fused_linear_rows in unsloth_zoo). The hidden states in
        # front of it exist twice, and so do their gradients.
        share = completions * sizes["hidden"] / sizes["vocabulary"]
        rows = min(max(512, share), completions, 2**31 / (4 * sizes["vocabulary"]))
        logits = rows * sizes["vocabulary"] * 4 + 4 * completions * sizes["hidden"] * number
    else:
        # TRL: the whole batch in 16 bits; as computed, divided by the temperature, the gradient
        logits = 3 * completions * sizes["vocabulary"] * number
    training = {
        "gradients": adapter * width,
        "activations": (kept + inside) * (_HEAP if card is None else 1),
        "logits": logits,
    }

    # sampling; an engine still "auto", before `presets.settle` has a machine, counts as vLLM
    if card is not None and settings.engine != "transformers":
        sampling = {"vLLM engine": max(0.0, settings.gpu_memory_utilization * card - weights)}
        # `load_vllm` turns standby off for a vision model (unsloth_zoo/vllm_utils.py 4432)
        if sees:
            training["vLLM awake"] = sampling["vLLM engine"]
        else:
            training["vLLM asleep"] = _GRAPHS
    else:
        cache = settings.completions_per_round / settings.processes * sizes["cache"]
        if replaced:
            # Unsloth's decoding makes room for 512 tokens at a time (KV_CACHE_INCREMENT), and the
            # prompts' part exists twice at the first of them
            blocks = math.ceil(settings.max_completion_length / 512)
            cache *= (2 * (context - settings.max_completion_length) + 512 * blocks) / context
        sampling = {"KV cache": cache}
    return Estimate(held, sampling, training, offloaded)


def room_for_a_picture(settings: Preset) -> int:
    """Return how many tokens to reserve for a picture: one per 700 pixels, and at least 600.

    Qwen-VL and Mistral 3 use one token per 784 pixels or more, and a few around the picture. Other
    families resize all pictures to one size (LLaVA: 580 tokens, Gemma 3: 260).
    """
    return max(600, settings.max_pixels // 700)


def card_of(machine: Machine) -> float | None:
    """Return the bytes of the machine's GPU; None without one."""
    return machine.gpu_memory_gb * 1e9 if machine.gpu else None


def size(number: float) -> str:
    """Return a number of bytes in readable form: `0.5 MB`, `120 MB`, `3.4 GB`."""
    if number >= 1e9:
        return f"{number / 1e9:.1f} GB"
    return f"{number / 1e6:.0f} MB" if number >= 1e7 else f"{number / 1e6:.1f} MB"


# --- Counting a model's weights -------------------------------------------------------------------


def sizes_of(config: dict, context: int) -> dict:
    """Return what `count` counts of a model, computed in a separate process: the counting imports
    Transformers, which must not be imported before Unsloth.

    LookupError, with the reason, if Transformers cannot build the model.
    """
    return _counted(json.dumps([config, context]))


@functools.cache
def _counted(arguments: str) -> dict:
    """Run this file as a program with the JSON of `count`'s arguments, and return its result."""
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "helpers.training.memory"],
        env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        input=arguments,
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout:
        raise LookupError((done.stderr.strip().splitlines() or ["no message"])[-1][:200])
    return json.loads(done.stdout.splitlines()[-1])


def count(config: dict, context: int) -> dict:
    """Build a model, or the language part of a vision model, on the meta device, run it on one
    sequence of `context` tokens, and return these counts:

    quantised: weights of the layers' linear maps, which loading in 4 bits quantises.
    experts: weights of experts.
    kept: all other weights, such as embeddings and the head, which stay in 16 bits.
    adapted: weights of an adapter of rank 1, as PEFT makes it. For gpt-oss PEFT adapts only the
        attention; the adapter that Unsloth puts on its experts is not counted.
    inside: for each layer, the numbers it computes per token.
    hidden: the numbers a layer passes on per token.
    vocabulary: the tokens the head scores.
    positions: the longest sequence the model can read; 0 if unknown.
    cache: bytes of the keys, values and states of the sequence.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModel

    # build the model without its head, which is neither quantised nor adapted
    described = {key: value for key, value in config.items() if key != "quantization_config"}
    whole = AutoConfig.for_model(**described)
    text = whole.get_text_config()
    with torch.device("meta"):
        model = AutoModel.from_config(text, dtype=torch.bfloat16).eval()

    # count the weights, and add those of the head unless the embedding serves as the head
    embedding = model.get_input_embeddings().weight
    weights = sum(weight.numel() for weight in model.parameters())
    if not (text.tie_word_embeddings or whole.tie_word_embeddings):
        weights += embedding.numel()
    # the experts of a layer are tensors of three dimensions, one for each of their maps
    experts = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() == 3 and ".experts." in name
    }
    in_experts = sum(weight.numel() for weight in experts.values())

    # collect, by layer, the output widths of linear maps, convolutions and the experts in use
    quantised = 0
    widths: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            quantised += module.weight.numel()
            widths[name] = module.out_features
        elif isinstance(module, torch.nn.Conv1d):
            widths[name] = module.out_channels
    used = getattr(text, "num_experts_per_tok", None) or 1
    for name, weight in experts.items():
        widths[name] = used * max(weight.shape[1:])
    layers: dict[str, list[int]] = defaultdict(list)
    for name, width in widths.items():
        if number := re.search(r"(?:^|\.)(\d+)\.", name):
            layers[number[1]].append(width)
    # Besides these, a layer computes its inputs and norms, and at the width of the MLP (its widest
    # map) the activation and the product.
    inside = [sum(layer) + 3 * text.hidden_size + 2 * max(layer) for layer in layers.values()]

    # run the model, and collect the cache's tensors; linear attention and convolutions keep theirs
    # in dictionaries
    with torch.no_grad():
        ids = torch.zeros(1, context, dtype=torch.long, device="meta")
        cache = model(input_ids=ids, use_cache=True).past_key_values
    states = [value for layer in cache.layers for value in vars(layer).values()]
    states += [value for state in states if isinstance(state, dict) for value in state.values()]

    # count an adapter last, because it changes the model
    lora = LoraConfig(r=1, target_modules=lora_targets(model))
    with torch.device("meta"):
        policy = get_peft_model(model, lora)
    adapted = sum(weight.numel() for weight in policy.parameters() if weight.requires_grad)

    return {
        "quantised": quantised,
        "experts": in_experts,
        "kept": weights - quantised - in_experts,
        "adapted": adapted,
        "inside": inside,
        "hidden": text.hidden_size,
        "vocabulary": embedding.shape[0],
        "positions": getattr(text, "max_position_embeddings", None) or 0,
        "cache": sum(state.nbytes for state in states if torch.is_tensor(state)),
    }


if __name__ == "__main__":
    print(json.dumps(count(*json.load(sys.stdin))))
