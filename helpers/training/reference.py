"""Before a policy is trained: one trainer claims it, and the KL gets its reference, which is the
policy as it is when the training begins.

    trainer = GRPOTrainer(model=claim_for_training(model), …)
    freeze_reference(model)  # if the adapter has been trained before, as in a warm start
    trainer.train()
"""

import functools
import re
from weakref import WeakSet

import torch

from helpers.training.sampling import engine_of, random_devices

_claimed: WeakSet = WeakSet()  # the models that a trainer has


def claim_for_training(model):
    """Return the model, and remember that a trainer has it. Raise RuntimeError if one already has.

    A second training run would start from a trained policy and report it as the base model. TRL's
    own error only says that the adapter `ref` already exists; Unsloth's GPU trainer raises nothing.
    """
    if model in _claimed:
        raise RuntimeError(
            "This cell has been run before, and the model that it trains has been trained already: "
            "choose Kernel > Restart Kernel and Run All Cells. An interrupted training continues "
            "from its last checkpoint."
        )
    _claimed.add(model)
    return model


def begin_again(model, fresh: dict[str, torch.Tensor]) -> None:
    """Make a trained policy the base model again, for another training run with the same engine.

    fresh: copies of the adapter's weights from before the first training run, by name.

    TRL's copy of the adapter (`ref`) is removed, and a trainer may claim the model again.
    """
    if "ref" in model.peft_config:
        model.delete_adapter("ref")
    for name, weight in fresh.items():
        model.get_parameter(name).data.copy_(weight)
    _claimed.discard(model)


def freeze_reference(model) -> None:
    """Make the current policy the reference of the KL: copy its adapter into a frozen adapter
    `ref`, unless the model has a `ref` already.

    Call this between the trainer's constructor and `train()` if the adapter has been trained
    before. A fresh adapter changes nothing, so the model without an adapter serves as its
    reference. TRL's `GRPOTrainer` makes the copy itself. Unsloth's GPU trainer does not
    (unsloth/models/rl.py, "Skip add_adapter"), but uses an existing `ref`.
    """
    if engine_of(model) == "vllm":
        _patch_unsloth_to_send_vllm_only_the_policy()
    if "ref" in model.peft_config:
        return
    # PEFT initialises the new adapter at random before the copy below
    with torch.random.fork_rng(random_devices(model)):
        model.add_adapter("ref", model.peft_config["default"])
    for name, weight in model.named_parameters():
        if ".default." in name:
            model.get_parameter(name.replace(".default.", ".ref.")).data.copy_(weight.data)


@functools.cache  # a second patch would wrap the first
def _patch_unsloth_to_send_vllm_only_the_policy() -> None:
    """Patch a private function of Unsloth for the rest of the process, so that vLLM gets the
    tensors of the adapter `default` alone.

    `_build_lora_request` (unsloth_zoo/vllm_utils.py, 2026.10.9) takes those of every adapter from
    the model's state, and vLLM raises at those of `ref`. Every request with an adapter's tensors is
    built there, even one in place of a merged rollout.
    """
    from unsloth_zoo import vllm_utils

    build = vllm_utils._build_lora_request

    def build_from_default(model, *args, **options):
        # the hook is removed afterwards, because a checkpoint holds both adapters
        with model.register_state_dict_post_hook(_drop_other_adapters):
            return build(model, *args, **options)

    vllm_utils._build_lora_request = build_from_default


def _drop_other_adapters(model, state: dict, prefix: str, metadata) -> None:
    """Remove the LoRA tensors of other adapters than `default` from a model's state."""
    for name in list(state):
        if re.search(r"\.lora_[AB]\.(?!default\b)", name):
            del state[name]
