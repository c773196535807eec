"""NF4: fingerprints of the 4-bit weights, the merge into the dequantised base, LoRA's gradients."""

import hashlib

import torch

from benchmarks.gpu import common
from benchmarks.gpu.grpo_step import settings_for


def measure(result: common.Result) -> None:
    """Load a model in 4 bits twice and once more from disk; train beside it and beside its unpacked
    weights; merge.
    """
    import bitsandbytes  # noqa: F401  # named, if it is missing
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from helpers.results import merging
    from helpers.training import policy
    from helpers.training.base import Base

    folder = common.work("nf4")
    common.random_model(common.shape(result)).save_pretrained(model := str(folder / "model"))
    AutoTokenizer.from_pretrained(common.POCKET).save_pretrained(model)
    settings = settings_for(model, result.rehearse, backend="transformers", load_in_4bit=True)
    first, tokenizer = policy.load(settings)
    first.save_pretrained(folder / "stored")
    loads = [first, policy.load(settings)[0]]
    loads.append(
        AutoModelForCausalLM.from_pretrained(folder / "stored", device_map=common.device())
    )
    prints = [fingerprint(one) for one in loads]
    del loads
    result.found["fingerprint"] = prints[0]
    result.expect(len(set(prints)) == 1, f"two loads and a save gave the fingerprints {prints}.")

    in_4_bits = common.adapted(first, 1e-3)
    in_4_bits.save_pretrained(folder / "adapter")
    base = Base(model, "here")

    def unpacked(dtype=torch.bfloat16):
        bare = merging.load_base(base, dtype, dequantised=True)
        return PeftModel.from_pretrained(bare, str(folder / "adapter"), is_trainable=True)

    ours, theirs = (gradient(one, tokenizer) for one in (in_4_bits, unpacked()))
    apart = ((ours - theirs).norm() / theirs.norm()).item()
    result.found["LoRA's gradient on 4 bits against unpacked, relative difference"] = apart
    # Two gradients in bfloat16 differ by their own rounding, about 1.4 times as much as one differs
    # from float32: an H200 gave 5.4% between them and 3.8% from float32.
    exact = gradient(unpacked(torch.float32), tokenizer)
    rounding = ((theirs - exact).norm() / exact.norm()).item()
    result.found["the unpacked gradient in bfloat16 against float32"] = rounding
    result.expect(
        apart < 2 * rounding,
        f"LoRA's gradients on 4 bits are {apart:.1%} off, and bfloat16 alone is {rounding:.1%}.",
    )

    unpacked().merge_and_unload().save_pretrained(folder / "merged")
    tokenizer.save_pretrained(folder / "merged")
    how = {"adapter": folder / "adapter", "base": base, "dtype": torch.bfloat16}
    proof = merging.verify(folder / "merged", common.prompts(), **how, dequantised=True)
    result.found |= {f"merge: {name}": value for name, value in proof.items()}
    logits = [
        merging.prompt_logits(one.eval(), tokenizer, common.prompts())
        for one in (in_4_bits, unpacked())
    ]
    result.found["4-bit policy against unpacked: largest difference of a logit"] = (
        merging.largest_difference(*logits)
    )


def fingerprint(model) -> str:
    """A hash of all 4-bit codes of a model and of the scales of their blocks."""
    found = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        if state := getattr(weight, "quant_state", None):
            found.update(name.encode())
            for stored in (weight.data, state.absmax):
                found.update(stored.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def gradient(model, tokenizer) -> torch.Tensor:
    """The gradient of a prompt's loss by the adapter, in one vector."""
    text = tokenizer.apply_chat_template(common.prompts()[0], tokenize=False)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    ids = ids.to(common.device())
    model(input_ids=ids, labels=ids).loss.backward()
    weights = [weight for name, weight in model.named_parameters() if "lora_" in name]
    return torch.cat([weight.grad.float().flatten() for weight in weights])


if __name__ == "__main__":
    common.main(measure)
