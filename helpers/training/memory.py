"""Where a GPU's memory goes in GRPO on a 4-bit model with LoRA: an estimate by part, from shapes
and settings alone.

Nothing is loaded or measured here. Sizes are in bytes, GB is 10**9 of them. Left out on purpose:
mixtures of experts, whose shapes these formulas do not describe, what reads the pictures of a model
that sees (about 1 GB), and allocator fragmentation.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from helpers.data.files import hub_failure
from helpers.environment import Machine
from helpers.presets import Preset

# NF4 with double quantisation (QLoRA, arXiv 2305.14314, section 3): 4 bits, an 8-bit scale for each
# 64 weights, and a 32-bit one for each 256 of those. Unsloth's dynamic checkpoints
# (-unsloth-bnb-4bit) keep some layers in 16 bits and are larger.
_NF4 = (4 + 8 / 64 + 32 / (64 * 256)) / 8
_16_BIT = 2
_CONTEXT = 0.8e9  # what CUDA, cuBLAS and the kernels themselves take once loaded: an assumption
_GRAPHS = 1.0e9  # vLLM's CUDA graphs, which stay while the engine sleeps: an assumption
# The families that see whose language part is a model of its own: in Unsloth with `text_only`, if
# its type begins with that of the whole (unsloth/models/_utils.py 2245), and in Transformers. Only
# these have been tried.
LANGUAGE_PARTS = ("gemma3", "gemma4", "qwen3_5")
_HEADROOM = 0.95  # of the card; the rest is lost to fragmentation
WHAT_HELPS = (
    "What helps most: halve per_device_train_batch_size and double gradient_accumulation_steps, "
    "which trains the same, then lower max_completion_length; or take a smaller model."
)
# where vLLM's share stays taken while the policy trains
AWAKE = (
    "Beside a model that sees vLLM cannot sleep, so its share of the card stays taken: lower "
    "gpu_memory_utilization first, or take engine='transformers'. "
)


@dataclass(frozen=True)
class Shape:
    """The sizes of a dense decoder on which its memory depends, under config.json's names."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of one layer's linear maps: query, key, value, output, gate,
        up, down.
        """
        hidden = self.hidden_size
        mlp = self.intermediate_size
        queries = self.num_attention_heads * self.head_dim
        keys = self.num_key_value_heads * self.head_dim
        return [
            (hidden, queries),
            (hidden, keys),
            (hidden, keys),
            (queries, hidden),
            (hidden, mlp),
            (hidden, mlp),
            (mlp, hidden),
        ]

    @property
    def linear_parameters(self) -> int:
        """Weights of all layers' linear maps: what 4-bit loading quantises."""
        return self.num_hidden_layers * sum(inputs * outputs for inputs, outputs in self.matrices)

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding, and of the output head if it is another matrix; they stay in
        16 bits.
        """
        return self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)

    def lora_parameters(self, rank: int) -> int:
        """Weights of an adapter of this rank on every linear map."""
        return self.num_hidden_layers * sum(
            rank * (inputs + outputs) for inputs, outputs in self.matrices
        )

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in all layers, in 16 bits.

        Sliding windows are not credited.
        """
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * _16_BIT


# From each model's config.json, so that an estimate needs no network; of any other model that file
# is read.
_KNOWN = {
    name: Shape(*sizes)
    for name, sizes in {
        "unsloth/gemma-3-1b-it": (1152, 6912, 26, 4, 1, 256, 262_144, True, 32_768),
        "unsloth/Qwen2.5-1.5B-Instruct": (1536, 8960, 28, 12, 2, 128, 151_936, True, 32_768),
        "unsloth/Qwen3-1.7B": (2048, 6144, 28, 16, 8, 128, 151_936, True, 40_960),
        "unsloth/Llama-3.2-3B-Instruct": (3072, 8192, 28, 24, 8, 128, 128_256, True, 131_072),
        "unsloth/Qwen3-4B": (2560, 9728, 36, 32, 8, 128, 151_936, True, 40_960),
        "unsloth/Qwen3-4B-Instruct-2507": (2560, 9728, 36, 32, 8, 128, 151_936, True, 262_144),
        "unsloth/Llama-3.1-8B-Instruct": (4096, 14_336, 32, 32, 8, 128, 128_256, False, 131_072),
        "unsloth/Qwen3-8B": (4096, 12_288, 36, 32, 8, 128, 151_936, False, 40_960),
        "unsloth/Qwen3-14B": (5120, 17_408, 40, 40, 8, 128, 151_936, False, 40_960),
        "unsloth/Qwen3-VL-2B-Instruct": (2048, 6144, 28, 16, 8, 128, 151_936, True, 262_144),
        "unsloth/gemma-3-4b-it": (2560, 10_240, 34, 8, 4, 256, 262_208, True, 131_072),
        "unsloth/Qwen3-VL-8B-Instruct": (4096, 12_288, 36, 32, 8, 128, 151_936, False, 262_144),
    }.items()
}
_KNOWN_TO_SEE = [name for name in _KNOWN if "-VL-" in name or name == "unsloth/gemma-3-4b-it"]


def shape_of(model: str) -> Shape | None:
    """Return the shape of a model, of its language part if it sees: a hub name, or a folder with
    its config.json.

    None if it is no dense model. ValueError as `config_of`.
    """
    return _KNOWN[model] if model in _KNOWN else shape_from_config(config_of(model))


def is_known_text(model: str) -> bool:
    """Return whether this is a dense model of text whose shape is known without its config.json."""
    return model in _KNOWN and model not in _KNOWN_TO_SEE


def room_for_a_picture(settings: Preset) -> int:
    """Return the tokens that a picture may take: one for 700 pixels (Qwen-VL and Mistral 3 take
    one for 784 or more, and a few around them), and at least the 600 of families that make all
    pictures one size (LLaVA 580, Gemma 3 260).
    """
    return max(600, settings.max_pixels // 700)


def config_of(model: str) -> dict:
    """Return the config.json of a model: a hub name, or a folder.

    Read without Transformers, which the notebooks import after Unsloth. FileNotFoundError if the
    folder has none, ValueError if the hub does not give it, and for an adapter's folder.
    """
    path = Path(model) / "config.json"
    if not path.exists() and (Path(model) / "adapter_config.json").exists():
        raise ValueError(
            f"{model} holds an adapter, not a model: notebook 5 merges it into one (the folder "
            "merged/ beside it), and notebook 3 trains it further with from_adapter=True."
        )
    if not Path(model).is_dir():
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(model, "config.json"))
        except (OSError, ValueError) as error:
            raise ValueError(hub_failure(f"the model {model!r}", error)) from None
    return json.loads(path.read_text(encoding="utf-8"))


def shape_from_config(config: dict) -> Shape | None:
    """Return the shape that a config.json describes; None if these formulas do not hold for it."""
    config = config | (config.get("text_config") or {})
    heads = config.get("num_attention_heads")
    if not heads or not config.get("intermediate_size") or any("expert" in key for key in config):
        return None
    return Shape(
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_hidden_layers=config["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        # Absent means tied in Transformers, except in the families whose class says otherwise
        # (Llama).
        tie_word_embeddings=config.get("tie_word_embeddings", config.get("model_type") != "llama"),
        max_position_embeddings=config.get("max_position_embeddings", 0),
    )


@dataclass(frozen=True)
class Estimate:
    """Bytes by part. What is held all the time, and what comes on top while sampling and while
    training.
    """

    held: dict[str, float]
    sampling: dict[str, float]
    training: dict[str, float]

    @property
    def peaks(self) -> dict[str, float]:
        """Bytes at the highest point of each phase."""
        held = sum(self.held.values())
        return {
            "sampling": held + sum(self.sampling.values()),
            "training": held + sum(self.training.values()),
        }

    @property
    def peak(self) -> float:
        """Bytes at the highest point of a step."""
        return max(self.peaks.values())


def estimate(settings: Preset, shape: Shape, card: float | None, sees: bool = False) -> Estimate:
    """Return the memory of a GRPO step at its longest prompts and completions, on a card of so many
    bytes; None is a CPU. sees: each prompt has a picture.

    The card matters because vLLM's engine takes `gpu_memory_utilization` of it, whatever it needs;
    the frozen weights, which training shares with it, are in that part. Asleep while the policy
    trains (Unsloth's standby), it keeps its graphs; beside a model that sees it cannot sleep.

    Per-process memory. What processes exchange of the adapter is little beside the rest and not
    counted.
    """
    on_unsloth = settings.backend == "unsloth"

    # what is held all the time
    weights = (
        shape.linear_parameters * (_NF4 if settings.load_in_4bit else _16_BIT)
        + shape.embedding_parameters * _16_BIT
    )
    context = settings.context + (room_for_a_picture(settings) if sees else 0)
    # Unsloth keeps adapters in 32 bits; TRL casts those on a quantised model to 16.
    width = _16_BIT if settings.load_in_4bit and not on_unsloth else 4
    adapter = shape.lora_parameters(settings.lora_rank)
    # TRL keeps a frozen copy for the KL; Unsloth on a GPU takes the model without its adapter
    # instead.
    copied = settings.beta and not (on_unsloth and card is not None)
    moments = 2 if "8bit" in settings.optim else 2 * width
    held = {"frozen weights": weights}
    if copied:
        held["adapter, and its reference"] = 2 * adapter * width
    else:
        held["adapter"] = adapter * width
    held["optimizer"] = adapter * moments
    if card is not None:
        held["CUDA context"] = _CONTEXT

    # What the backward pass of one batch keeps: every layer's input and one layer's inside, or all
    # insides. A layer's inside, in units of tokens x 16 bits: its inputs and their norms, query,
    # key, value, the attention's output, the three of the MLP and their product; and as much again
    # for the gradients of the layer at work. A 4-bit matrix is unpacked to 16 bits for its use.
    tokens = settings.per_device_train_batch_size * context
    attention = sum(outputs for _, outputs in shape.matrices[:4])
    inside = tokens * (4 * shape.hidden_size + attention + 4 * shape.intermediate_size) * _16_BIT
    inputs = tokens * shape.hidden_size * _16_BIT
    kept = inputs if settings.gradient_checkpointing else inside
    unpacked = shape.hidden_size * shape.intermediate_size * _16_BIT if settings.load_in_4bit else 0
    # Three times logits: themselves, scaled by the temperature, and their gradient. TRL makes those
    # of the whole batch, in 16 bits; Unsloth those of a quarter of a completion at a time
    # (unsloth_zoo's autotune_batch_and_chunks), in 32 bits.
    if on_unsloth:
        logits = context / max(4, context // 4096) * shape.vocab_size * 4
    else:
        completions = settings.per_device_train_batch_size * settings.max_completion_length
        logits = completions * shape.vocab_size * _16_BIT
    training = {
        "gradients": adapter * width,
        "activations": shape.num_hidden_layers * kept + 2 * inside + unpacked,
        "logits": 3 * logits,
    }

    # What sampling takes. "auto", which `presets.check_machine` settles, counts as vLLM
    if card is not None and settings.engine != "transformers":
        sampling = {"vLLM engine": max(0.0, settings.gpu_memory_utilization * card - weights)}
        # `load_vllm` turns standby off for a model that sees (unsloth_zoo/vllm_utils.py 4432)
        if sees and os.environ.get("UNSLOTH_VLLM_STANDBY_VISION", "0") == "0":
            training["vLLM awake"] = sampling["vLLM engine"]
        else:
            training["vLLM asleep"] = _GRAPHS
    else:
        completions = settings.completions_per_round / settings.processes
        sampling = {"KV cache": completions * context * shape.kv_bytes}
    return Estimate(held, sampling, training)


def check(
    settings: Preset, machine: Machine, shape: Shape | None = None, *, sees: bool | None = None
) -> list[str]:
    """Return the estimate of a step's memory before anything is loaded, as lines of text: one for
    each part, and the higher of the two phases against the card.

    shape: the model's, if it is known already; otherwise it is looked up. sees: whether the run has
    pictures; None: as its source says. Without them only the language part of a model that sees is
    loaded. ValueError if that is impossible; if the machine's GPU is too small; if the model has
    fewer positions than the context, or is narrower than the adapter's rank; and if the model
    cannot be had (only its config.json is fetched).
    """
    if sees is None:
        sees = settings.source.startswith("pictures/")
    if shape is None:
        shape = shape_of(settings.model_path)
        config = {} if sees or is_known_text(settings.model) else config_of(settings.model_path)
        family = config.get("model_type", "")
        if "vision_config" in config and family not in LANGUAGE_PARTS:
            raise ValueError(
                f"{settings.model} reads pictures and this run has none. Of its family ({family}) "
                "the language part cannot be trained and merged alone, as it can of "
                f"{', '.join(LANGUAGE_PARTS)}: take a model of text, or pictures in notebook 11."
            )
    card = card_of(machine)
    if shape is None:
        return [f"no estimate for {settings.model}: its shape is not that of a dense model."]
    pictures = room_for_a_picture(settings) if sees else 0
    context = settings.context + pictures
    if settings.lora_rank > shape.hidden_size:
        raise ValueError(
            f"lora_rank={settings.lora_rank:,} is more than the width of {settings.model}, "
            f"{shape.hidden_size:,}: such an adapter would be larger than what it adapts. Ranks of "
            "8 to 128 are usual."
        )
    # without a picture, whose room above is more than most pictures take
    if 0 < shape.max_position_embeddings < settings.context:
        raise ValueError(
            f"a prompt and its completion take {settings.context:,} tokens and {settings.model} "
            f"has {shape.max_position_embeddings:,} positions: lower max_completion_length or "
            "max_prompt_length."
        )
    found = estimate(settings, shape, card, sees)
    if card and found.peak > _HEADROOM * card:
        raise ValueError(
            f"{settings.model} with these settings needs an estimated {size(found.peak)}, and of "
            f"{machine.gpu}'s {size(card)} {size(_HEADROOM * card)} can be filled. "
            f"{AWAKE if 'vLLM awake' in found.training else ''}{WHAT_HELPS}"
        )
    picture = f", {pictures:,} of them a picture" if pictures else ""
    lines = [
        f"memory of a step of {settings.model}, at {context:,} tokens a sequence{picture} "
        "(estimated)"
    ]
    for parts, when in (
        (found.held, ""),
        (found.sampling, "while sampling"),
        (found.training, "while training"),
    ):
        lines += [
            f"  {name:<28}{size(number):>9}  {when}".rstrip() for name, number in parts.items()
        ]
    phase = max(found.peaks, key=found.peaks.get)
    against = f" of {size(card)}" if card else ""
    return [*lines, f"  {f'at most, while {phase}':<28}{size(found.peak):>9}{against}"]


def card_of(machine: Machine) -> float | None:
    """Return the bytes of the machine's GPU; None without one."""
    return machine.gpu_memory_gb * 1e9 if machine.gpu else None


def size(number: float) -> str:
    """Return bytes for the eye: `0.5 MB`, `120 MB`, `3.4 GB`."""
    if number >= 1e9:
        return f"{number / 1e9:.1f} GB"
    return f"{number / 1e6:.0f} MB" if number >= 1e7 else f"{number / 1e6:.1f} MB"
