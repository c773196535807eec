"""The proof of a merge in bfloat16: small adapters pass, and a left-out matrix is refused.

Unsloth leaves a process in which the rotary embedding rounds cos and sin to bfloat16. What such a
process would have computed for the proof is measured beside it; the proof has a process of its own.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

from benchmarks.gpu import common

SIZES = (1e-5, 1e-4, 1e-3)  # of the entries of B: a learning rate of 1e-5 leaves 1e-4 to 1e-3


def measure(result: common.Result) -> None:
    """Merge adapters of several sizes and prove each; the proofs run at the same time."""
    from transformers import AutoTokenizer

    from helpers.results import merging
    from helpers.training.base import Base

    folder, tokenizer = common.work("merge_proof"), AutoTokenizer.from_pretrained(common.POCKET)
    base = common.random_model(common.shape(result))
    base.save_pretrained(folder / "base")
    proofs, matrix = {}, base.model.layers[1].self_attn.v_proj.weight.clone()
    with ThreadPoolExecutor(2 if result.rehearse else 4) as pool:

        def prove(name: str, model, adapter: str) -> None:
            model.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
            how = {"adapter": folder / adapter, "dtype": torch.bfloat16}
            how["base"] = Base(str(folder / "base"), None)
            proofs[name] = pool.submit(merging.verify, folder / name, common.prompts(), **how)

        for size in SIZES:
            policy = common.adapted(common.random_model(common.shape(result)), size)
            policy.save_pretrained(folder / f"adapter {size:g}")
            with rounded_rotary(policy):
                seen = merging.merge_in_memory(policy, tokenizer, common.prompts())  # merges it
            with merging.in_32_bits(policy):
                logits = merging.prompt_logits(policy, tokenizer, common.prompts())
            unexplained = merging.compare_logits(logits, seen)["unexplained"]
            result.found[f"B {size:g}, if cos and sin were rounded: unexplained"] = unexplained
            merged = policy.merge_and_unload()
            prove(f"B {size:g}", merged, f"adapter {size:g}")
        merged.model.layers[1].self_attn.v_proj.weight.data.copy_(matrix)
        prove("a left-out matrix", merged, f"adapter {size:g}")
    for name, proof in proofs.items():
        broken = name == "a left-out matrix"
        try:
            proof = proof.result()
            result.found[name] = f"kept {proof['kept']:.1%}, unexplained {proof['unexplained']:.2g}"
            result.expect(not broken, f"{name} was accepted.")
        except ValueError as error:
            result.found[name] = "refused"
            result.expect(broken and "v_proj" in str(error), f"{name}: {error}")


def rounded_rotary(model):
    """Let cos and sin come in bfloat16's precision, as from Unsloth's rotary embedding."""
    (rotary,) = (one for name, one in model.named_modules() if name.endswith("rotary_emb"))
    return rotary.register_forward_hook(
        lambda *call: tuple(one.to(torch.bfloat16).to(one.dtype) for one in call[-1])
    )


if __name__ == "__main__":
    common.main(measure)
