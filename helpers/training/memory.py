"""Estimate the memory of a GRPO step with LoRA, part by part, before anything is loaded: that of
the GPU, or without one, that of the process.

    lines = check(settings, machine)

`check` refuses what does not fit, and `estimate` adds up the parts. They depend on the model's
weights and activations, which `model_sizes.py` counts. Sizes are in bytes; 1 GB is 10**9 bytes.

The estimate leaves out the vision tower (about 1 GB) and allocator fragmentation. A warm start
needs no more than a step: it takes the step's batch at most, at the same context, while vLLM sleeps
(warm.py).
"""

import math
from dataclasses import dataclass

from helpers.environment import Machine, cpu_has_bf16
from helpers.families import FAMILIES, config_of, family_of
from helpers.settings import Preset
from helpers.training.model_sizes import sizes_of

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


def check(
    settings: Preset, machine: Machine, config: dict | None = None, *, sees: bool | None = None
) -> list[str]:
    """Return the estimated memory of a step as lines of text: each part, the peak of the more
    expensive phase against the card, and advice about the model's family.

    config: the model's config.json; None: it is looked up, and nothing else is downloaded.
    sees: whether prompts have pictures; None: if the source is a set of pictures. Without pictures,
        only the language part of a vision model is loaded.

    Raise ValueError if the estimate exceeds the GPU; if the context exceeds the model's positions;
    if the adapter's rank exceeds the model's width; if the language part cannot be loaded alone; if
    the config.json cannot be had. A GPU that torch cannot use is refused by `settling.settle`.
    """
    # 1. Refuse a model that cannot be used.
    if sees is None:
        sees = settings.source.startswith("pictures/")
    config = config or config_of(settings.model_path)
    kind = config.get("model_type", "")
    family = family_of(kind)
    if "vision_config" in config and not sees and not family.language_part:
        raise ValueError(
            f"{settings.model} is a vision model, but this run has no images. For its family "
            f"({kind}), the language model cannot be trained and merged on its own; that works "
            f"only for {', '.join(name for name, row in FAMILIES.items() if row.language_part)}. "
            "Use a text model, or use notebook 11."
        )
    advice = []
    if settings.load_in_4bit and not family.in_4_bits:
        advice.append(
            f"Unsloth advises against 4 bits for {settings.model}: set load_in_4bit=False."
        )

    # 2. Count the model's weights. Without them there is no estimate, but the run may go on.
    card = card_of(machine)
    pictures = room_for_a_picture(settings) if sees else 0
    context = settings.context + pictures
    try:
        sizes = sizes_of(config, context)
    except LookupError as error:
        reason = f"no estimate for {settings.model}: Transformers could not build it ({error})."
        return [reason, *advice]

    # 3. Refuse an adapter or a context that the model is too small for, and a step that the card is
    # too small for.
    if settings.lora_rank > sizes.hidden:
        raise ValueError(
            f"lora_rank={settings.lora_rank:,} is more than the width of {settings.model}, "
            f"{sizes.hidden:,}: the adapter would be larger than the matrix it adapts. Ranks of "
            "8 to 128 are usual."
        )
    # pictures are left out here: the room reserved for one is more than most pictures take
    if 0 < sizes.positions < settings.context:
        raise ValueError(
            f"a prompt and its completion take {settings.context:,} tokens, but {settings.model} "
            f"has {sizes.positions:,} positions: lower max_completion_length or "
            "max_prompt_length."
        )
    step = estimate(settings, config, card, sees, in_32_bits=card is None and not cpu_has_bf16())
    if card and step.peak > _HEADROOM * card:
        awake = AWAKE if "vLLM awake" in step.training else ""
        raise ValueError(
            f"{settings.model} with these settings needs an estimated {size(step.peak)}, but only "
            f"{size(_HEADROOM * card)} of {machine.gpu}'s {size(card)} can be used. "
            f"{awake}{what_helps(settings)}"
        )

    # 4. List the parts, then the peak of the more expensive phase.
    picture = f", {pictures:,} of them an image" if pictures else ""
    lines = [
        f"memory of a step of {settings.model}, at {context:,} tokens a sequence{picture} "
        "(estimated)"
    ]
    for parts, when in (
        (step.held, ""),
        (step.sampling, "while sampling"),
        (step.training, "while training"),
    ):
        for name, part in parts.items():
            lines.append(f"  {name:<28}{size(part):>9}  {when}".rstrip())
    if step.offloaded:
        inputs = f"{'layer inputs, not on the card':<28}{size(step.offloaded):>9}"
        lines.append(f"  {inputs} of the computer's {machine.memory_gb:.0f} GB")
    phase = max(step.peaks, key=step.peaks.get)
    against = f" of {size(card)}" if card else ""
    lines.append(f"  {f'at most, while {phase}':<28}{size(step.peak):>9}{against}")
    return lines + advice


def what_helps(settings: Preset) -> str:
    """Return what to change in these settings so that a step needs less memory."""
    batch = settings.per_device_train_batch_size
    lower = "lower max_completion_length, or use a smaller model."
    if batch % 2:  # it cannot be halved
        return f"What helps: {lower}"
    changes = [
        f"per_device_train_batch_size={batch // 2}",
        f"gradient_accumulation_steps={2 * settings.gradient_accumulation_steps}",
    ]
    if settings.steps_per_generation:  # a round must sample as many completions as before
        changes.append(f"steps_per_generation={2 * settings.steps_per_generation}")
    return (
        f"What helps most is {', '.join(changes[:-1])} and {changes[-1]}, which train the same in "
        f"smaller passes. If that is not enough, {lower}"
    )


# --- The estimate ---------------------------------------------------------------------------------


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

    Raise LookupError if Transformers cannot build the model.
    """
    context = settings.context + (room_for_a_picture(settings) if sees else 0)
    sizes = sizes_of(config, context)
    family = config["model_type"]
    value_bytes = 4 if in_32_bits else _16_BIT  # of a weight or an activation
    on_gpu = card is not None
    by_unsloth = settings.backend == "unsloth"
    unsloth_on_gpu = by_unsloth and on_gpu
    by_unsloth_kernels = unsloth_on_gpu and family in _REPLACED

    # 1. The frozen weights: those that are quantised to 4 bits, and the others.
    in_4_bits = 0
    if settings.load_in_4bit:
        in_4_bits = sizes.quantised
        if by_unsloth and family_of(family).experts_in_4_bits:
            in_4_bits += sizes.experts
    all_weights = sizes.quantised + sizes.experts + sizes.unquantised
    weights = in_4_bits * _NF4 + (all_weights - in_4_bits) * value_bytes
    held = {"frozen weights": weights}

    # 2. The adapter. Unsloth keeps it in 32 bits; TRL casts an adapter on a 4-bit model to 16. As
    # the reference of the KL, TRL keeps a frozen copy of the adapter. Unsloth on a GPU uses the
    # model without its adapter.
    adapter = sizes.adapter * settings.lora_rank
    adapter_bytes = _16_BIT if settings.load_in_4bit and not by_unsloth else 4
    if settings.beta and not unsloth_on_gpu:
        held["adapter, and its reference"] = 2 * adapter * adapter_bytes
    else:
        held["adapter"] = adapter * adapter_bytes
    # Adam's two moments of each weight
    held["optimizer"] = adapter * (2 if "8bit" in settings.optim else 2 * adapter_bytes)
    if on_gpu:
        held["CUDA context"] = _CONTEXT
    else:
        held["Python and its libraries"] = _PROCESS

    # 3. The activations of one batch. With checkpointing, a layer keeps only its input, and
    # computes its other activations again for the backward pass; otherwise all layers keep all.
    tokens = settings.per_device_train_batch_size * context
    per_token = sizes.activations
    if not on_gpu:
        # Without Unsloth's kernels, both norms keep their input in 32 bits, and the adapter keeps
        # copies of its inputs: 12 bytes of each number of the layer's input, as counted in a step
        # of SmolLM2.
        per_token = [numbers + 12 / value_bytes * sizes.hidden for numbers in per_token]
    layers = len(per_token)
    layer_input = tokens * sizes.hidden * value_bytes
    kept = layers * layer_input
    offloaded = 0
    if not settings.gradient_checkpointing:
        kept = tokens * sum(per_token) * value_bytes
    elif unsloth_on_gpu and context >= 512 and layer_input > 2 * 2**20:
        # `add_adapter` asks Unsloth to move the inputs of all layers but the last to the computer's
        # memory; two buffers on the card receive them in turn. Unsloth does so on a GPU, from 512
        # tokens (apply_unsloth_gradient_checkpointing, unsloth/models/_utils.py 502), for inputs
        # over 2 MiB (UnslothCheckpointFunction, unsloth_zoo/gradient_checkpointing.py).
        kept = 3 * layer_input
        offloaded = (layers - 1) * layer_input
    # In the backward pass, the gradients of a layer take as much again as its activations, unless
    # Unsloth's kernels write them over these (LoRA_MLP.backward, unsloth/kernels/fast_lora.py).
    copies = 1 if by_unsloth_kernels else 2
    largest_layer = copies * tokens * max(per_token) * value_bytes
    activations = (kept + largest_layer) * (1 if on_gpu else _HEAP)

    # 4. The logits of the completions, and what is computed from them.
    completion_tokens = settings.per_device_train_batch_size * settings.max_completion_length
    if by_unsloth:
        # One buffer in 32 bits, which the gradient overwrites. Its rows are a share of all tokens,
        # at least 512 and at most 2 GiB (fused_linear_rows in unsloth_zoo). The hidden states in
        # front of it exist twice, and so do their gradients.
        share = completion_tokens * sizes.hidden / sizes.vocabulary
        rows = min(max(512, share), completion_tokens, 2**31 / (4 * sizes.vocabulary))
        logits = rows * sizes.vocabulary * 4 + 4 * completion_tokens * sizes.hidden * value_bytes
    else:
        # TRL: the whole batch in 16 bits; as computed, divided by the temperature, the gradient
        logits = 3 * completion_tokens * sizes.vocabulary * value_bytes
    training = {
        "gradients": adapter * adapter_bytes,
        "activations": activations,
        "logits": logits,
    }

    # 5. Sampling. An engine still "auto", before `settling.settle` has a machine, counts as vLLM.
    if on_gpu and settings.engine != "transformers":
        engine = max(0.0, settings.gpu_memory_utilization * card - weights)
        sampling = {"vLLM engine": engine}
        # `load_vllm` turns standby off for a vision model (unsloth_zoo/vllm_utils.py 4432)
        if sees:
            training["vLLM awake"] = engine
        else:
            training["vLLM asleep"] = _GRAPHS
    else:
        cache = settings.completions_per_round / settings.processes * sizes.cache
        if by_unsloth_kernels:
            # Unsloth's decoding makes room for 512 tokens at a time (KV_CACHE_INCREMENT), and the
            # prompts' part exists twice at the first of them
            prompt_tokens = context - settings.max_completion_length
            blocks = math.ceil(settings.max_completion_length / 512)
            cache *= (2 * prompt_tokens + 512 * blocks) / context
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
    if number >= 1e7:
        return f"{number / 1e6:.0f} MB"
    return f"{number / 1e6:.1f} MB"
