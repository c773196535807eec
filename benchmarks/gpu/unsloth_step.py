"""Unsloth without vLLM: a step, the live objective, `save_pretrained_merged`, the merge proven."""

import torch

from benchmarks.gpu import common
from benchmarks.gpu.grpo_step import settings_for, step


def measure(result: common.Result) -> None:
    """Train one step on 4 bits, merge into the original weights, and prove the merge."""
    import unsloth  # noqa: F401  # before Transformers

    folder = common.work("unsloth_step")
    base = common.speaking_model(common.shape(result), folder / "model")
    settings = settings_for(base, result.rehearse, backend="unsloth", load_in_4bit=True)
    model, tokenizer = step(settings, result)
    model.save_pretrained(folder / "adapter")
    del model

    from peft import PeftModel

    from helpers.results import merging
    from helpers.training.base import Base

    how = {"base": Base(base, "here"), "adapter": folder / "adapter", "dtype": torch.bfloat16}
    if result.rehearse:
        result.left_out.append("Unsloth's own merge: needs a GPU")
        bare = merging.load_base(how["base"], torch.bfloat16, dequantised=False)
        merged = PeftModel.from_pretrained(bare, how["adapter"]).merge_and_unload()
        merged.save_pretrained(folder / "merged")
    else:
        merging.merge_with_unsloth(settings, how["adapter"], folder / "merged")
    tokenizer.save_pretrained(folder / "merged")
    proof = merging.verify(folder / "merged", common.prompts(), **how)
    result.found |= {f"merge: {name}": value for name, value in proof.items()}


if __name__ == "__main__":
    common.main(measure)
