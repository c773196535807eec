"""Count the weights and activations of a model, on which the memory of a step depends.

    sizes = sizes_of(config_of("unsloth/Qwen3-4B"), context=1024)

Nothing is downloaded but the config.json: the model is built from it on torch's meta device, where
weights have shapes but take no memory.

Counting imports Transformers, which must not be imported before Unsloth. `sizes_of` therefore runs
this file as a program, in a process of its own.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass

from helpers import PROJECT
from helpers.families import lora_targets


@dataclass(frozen=True)
class Sizes:
    """What is counted of a model, or of the language part of a vision model.

    quantised: weights of the layers' linear maps, which loading in 4 bits quantises.
    experts: weights of experts.
    unquantised: all other weights, such as embeddings and the head, which stay in 16 bits.
    adapter: weights of an adapter of rank 1, as PEFT makes it. For gpt-oss PEFT adapts only the
        attention; the adapter that Unsloth puts on its experts is not counted.
    activations: for each layer, the numbers it computes per token.
    hidden: the numbers a layer passes on per token.
    vocabulary: the tokens the head scores.
    positions: the longest sequence the model can read; 0 if unknown.
    cache: bytes of the keys, values and states of one sequence.
    """

    quantised: int
    experts: int
    unquantised: int
    adapter: int
    activations: list[int]
    hidden: int
    vocabulary: int
    positions: int
    cache: int


def sizes_of(config: dict, context: int) -> Sizes:
    """Return the sizes of a model, counted in a separate process.

    config: the model's config.json.
    context: the tokens of the sequence whose cache is counted.

    Raise LookupError, with the reason, if Transformers cannot build the model.
    """
    return _counted(json.dumps([config, context]))


@functools.cache
def _counted(arguments: str) -> Sizes:
    """Run this file as a program with the JSON of `count`'s arguments, and return its result."""
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    process = subprocess.run(
        [sys.executable, "-m", "helpers.training.model_sizes"],
        env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        input=arguments,
        capture_output=True,
        text=True,
    )
    if process.returncode or not process.stdout:
        message = process.stderr.strip().splitlines() or ["no message"]
        raise LookupError(message[-1][:200])
    return Sizes(**json.loads(process.stdout.splitlines()[-1]))


def count(config: dict, context: int) -> Sizes:
    """Build a model on the meta device, run it on one sequence of `context` tokens, and return its
    sizes.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModel

    # 1. Build the model without its head, which is neither quantised nor adapted.
    entries = {key: value for key, value in config.items() if key != "quantization_config"}
    whole = AutoConfig.for_model(**entries)
    text = whole.get_text_config()
    with torch.device("meta"):
        model = AutoModel.from_config(text, dtype=torch.bfloat16).eval()

    # 2. Count all weights, and add those of the head unless the embedding serves as the head.
    embedding = model.get_input_embeddings().weight
    all_weights = sum(weight.numel() for weight in model.parameters())
    if not (text.tie_word_embeddings or whole.tie_word_embeddings):
        all_weights += embedding.numel()

    # 3. Go through the linear maps, the convolutions and the experts: count the weights, and
    # collect how many numbers each computes per token.
    quantised = 0
    in_experts = 0
    widths: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            quantised += module.weight.numel()
            widths[name] = module.out_features
        elif isinstance(module, torch.nn.Conv1d):
            widths[name] = module.out_channels
    experts_per_token = getattr(text, "num_experts_per_tok", None) or 1
    for name, weight in model.named_parameters():
        # a map of all experts of a layer is one tensor of three dimensions
        if weight.dim() == 3 and ".experts." in name:
            in_experts += weight.numel()
            widths[name] = experts_per_token * max(weight.shape[1:])

    # 4. Add up the activations of each layer. Besides the outputs of its maps, a layer computes its
    # inputs and norms, and at the width of the MLP (its widest map) the activation and the product.
    widths_of_layer: dict[str, list[int]] = defaultdict(list)
    for name, width in widths.items():
        layer_number = re.search(r"(?:^|\.)(\d+)\.", name)
        if layer_number:
            widths_of_layer[layer_number[1]].append(width)
    activations = []
    for layer in widths_of_layer.values():
        activations.append(sum(layer) + 3 * text.hidden_size + 2 * max(layer))

    # 5. Run the model, and add up the bytes of its cache.
    with torch.no_grad():
        ids = torch.zeros(1, context, dtype=torch.long, device="meta")
        cache = model(input_ids=ids, use_cache=True).past_key_values
    cache_bytes = 0
    for layer in cache.layers:
        for state in vars(layer).values():
            # linear attention and convolutions keep their states in dictionaries
            tensors = state.values() if isinstance(state, dict) else [state]
            cache_bytes += sum(tensor.nbytes for tensor in tensors if torch.is_tensor(tensor))

    # 6. Count an adapter last, because it changes the model.
    lora = LoraConfig(r=1, target_modules=lora_targets(model))
    with torch.device("meta"):
        policy = get_peft_model(model, lora)
    adapter = sum(weight.numel() for weight in policy.parameters() if weight.requires_grad)

    return Sizes(
        quantised=quantised,
        experts=in_experts,
        unquantised=all_weights - quantised - in_experts,
        adapter=adapter,
        activations=activations,
        hidden=text.hidden_size,
        vocabulary=embedding.shape[0],
        positions=getattr(text, "max_position_embeddings", None) or 0,
        cache=cache_bytes,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(count(*json.load(sys.stdin)))))
