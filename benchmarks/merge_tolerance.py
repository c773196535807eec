"""What the proof of a merge refuses: random Qwen3 models in bfloat16, adapters of several sizes,
sound merges and broken ones.

`python -m benchmarks.merge_tolerance` prints the two tables of results/merge_tolerance.md: ten
minutes on one busy core, 1 GB. The weights are random with unit gain, the norms from 0.8 to 1.2,
the logits scaled to a largest one of about 30, the vocabulary cut to 4,096 tokens; rank 32.
"""

import argparse

import torch

from benchmarks.gpu.common import adapted, random_model
from helpers.families import dense
from helpers.results import merging
from helpers.training.policy import LORA_TARGETS

# Of the entries of B, by their standard deviation. A learning rate of 1e-5 leaves 1e-4 to 1e-3
# after some hundred steps.
SIZES = (1e-5, 1e-4, 1e-3)
TRIALS = {  # hidden size, width of the MLP, layers, heads; sizes; seeds
    "256 wide, 4 layers": ((256, 768, 4, 4), SIZES, range(2)),
    "256 wide, 28 layers": ((256, 768, 28, 4), SIZES, range(2)),
    "1024 wide (Qwen3-0.6B), 4 layers": ((1024, 3072, 4, 16), (3e-4, 3e-3), range(1)),
}
VOCABULARY, TOKENS = 4096, 32
KINDS = (
    "sound",  # as PEFT and Unsloth merge: added in 32 bits, then rounded to 16
    "sound, rounded twice",  # the adapter's part rounded to 16 bits before it is added
    "not merged",
    "merged twice",
    "alpha/r left out",
    "another adapter",
    "a layer left out",
    "a matrix left out",
    "a norm left out",  # of the last layer: ones instead of what the base has
)


def random_policy(hidden: int, wide: int, layers: int, heads: int, size: float, seed: int):
    """A PEFT model on random weights of these sizes, with a random adapter."""
    sizes = dense("qwen3", hidden, wide, layers, heads, heads // 2, 128, VOCABULARY, False, 32_768)
    return adapted(random_model(sizes, seed), size, seed)


@torch.no_grad()
def merge(policy, layers: dict, whole: dict, deltas: dict, kind: str) -> None:
    """Write into the base's weights what a merge of this kind makes of them."""
    middle = f".layers.{len(layers) // len(LORA_TARGETS) // 2}."
    for name, layer in layers.items():
        left_out = kind == "a layer left out" and middle in name
        left_out |= kind == "a matrix left out" and name.endswith(f"{middle}self_attn.v_proj")
        delta = deltas[name] * {"not merged": 0, "merged twice": 2, "alpha/r left out": 0.5}.get(
            kind, 0 if left_out else 1
        )
        if kind == "another adapter":
            delta = delta.flip(0)
        if kind == "sound, rounded twice":
            delta = delta.to(torch.bfloat16)
        layer.base_layer.weight.copy_((whole[name].float() + delta).to(torch.bfloat16))
    if kind == "a norm left out":  # the last kind
        policy.get_submodule("base_model.model.model.layers")[
            -1
        ].post_attention_layernorm.weight.fill_(1)


@torch.inference_mode()
def logits(model, rows: torch.Tensor) -> list[torch.Tensor]:
    """A (tokens, vocabulary) tensor a row, computed in 32 bits."""
    with merging.in_32_bits(model):
        return list(model(input_ids=rows).logits)


def trial(shape: tuple, size: float, seed: int) -> tuple[float, dict]:
    """The largest size of an adapter's matrix against its base's, and what the proof measures of
    every kind of merge.
    """
    policy = random_policy(*shape, size, seed)
    rows = torch.randint(0, VOCABULARY, (2, TOKENS))
    layers = {
        name: layer
        for name, layer in policy.named_modules()
        if hasattr(layer, "lora_B") and hasattr(layer, "base_layer")
    }
    whole = {name: layer.base_layer.weight.detach().clone() for name, layer in layers.items()}
    deltas = {name: layer.get_delta_weight("default").detach() for name, layer in layers.items()}
    relative = max(
        delta.norm() / whole[name].float().norm() for name, delta in deltas.items()
    ).item()
    with policy.disable_adapter():
        seen = {"base": logits(policy, rows)}
    seen["adapter"] = logits(policy, rows)
    matrices = {
        name.replace(".weight", ".base_layer.weight"): two
        for name, two in merging.merge_by_matrix(policy).items()
    }
    seen["merged"] = logits(policy, rows)
    found = {}
    for kind in KINDS:
        # PEFT takes the adapter for merged, and uses these weights alone
        merge(policy, layers, whole, deltas, kind)
        distances = merging.matrix_distances(policy.base_model.model, matrices)
        found[kind] = merging.compare_logits(logits(policy, rows), seen) | {
            "matrix": max(distances.values())
        }
    return relative, found


def table(found: dict, measured: str) -> None:
    """Print a table of what was measured: the worst of each kind, and how many were
    refused by it.
    """
    head = ["model", "adapter / weights", "kept", *KINDS]
    print(f"\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    refused = dict.fromkeys(KINDS, 0)
    for (name, _), trials in found.items():
        cells = []
        for kind in KINDS:
            away = [seen[kind][measured] for _, seen in trials]
            refused[kind] += sum(not one <= merging.UNEXPLAINED for one in away)
            cells.append(f"{(max if kind.startswith('sound') else min)(away):.3f}")
        kept = sum(seen["sound"]["kept"] for _, seen in trials) / len(trials)
        print(f"| {name} | {trials[0][0]:.3%} | {kept:.1%} | " + " | ".join(cells) + " |")
    total = sum(map(len, found.values()))
    print(
        "| **refused** | | | "
        + " | ".join(f"{count} of {total}" for count in refused.values())
        + " |",
        flush=True,
    )


def main() -> None:
    """Run the trials and print both tables."""
    found = {
        (name, size): [trial(shape, size, seed) for seed in seeds]
        for name, (shape, sizes, seeds) in TRIALS.items()
        for size in sizes
    }
    for measured in ("matrix", "unexplained"):
        table(found, measured)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
