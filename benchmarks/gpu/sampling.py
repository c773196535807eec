"""Sampling: greedy texts as on a CPU, the batch that fits, seeds, and the state put back.

Through Transformers; vLLM's is part of `notebooks`.
"""

import torch

from benchmarks.gpu import common


def measure(result: common.Result) -> None:
    """The pocket model in 32 bits for what is said, a random model for what fits."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from helpers.data.sources import read_source
    from helpers.tags import TagFormat
    from helpers.training import sampling

    tokenizer = AutoTokenizer.from_pretrained(common.POCKET)
    model = AutoModelForCausalLM.from_pretrained(common.POCKET, dtype=torch.float32)
    system = {"role": "system", "content": TagFormat().system_prompt}
    asked = [
        [system, {"role": "user", "content": row["question"]}]
        for row in read_source("arithmetic/sums", None, 1, 15 if result.rehearse else 63, 1)
    ]

    def drawn(**how) -> list[str]:
        how = {"max_new_tokens": 72, **how}
        return [text for (text,) in sampling.sample(model, tokenizer, asked, **how)]

    on_cpu = drawn(temperature=0.0)
    model.to(common.device())
    same = sum(a == b for a, b in zip(on_cpu, drawn(temperature=0.0), strict=True))
    result.found["greedy texts that are the CPU's"] = f"{same} of {len(asked)}"
    result.expect(same >= 0.95 * len(asked), f"only {same} of {len(asked)} greedy texts agree.")

    model.train()
    before, first = state(model), drawn(seed=1)
    result.expect(state(model) == before, "sampling left the model or the random numbers changed.")
    torch.rand(1, device=common.device())
    result.expect(first == drawn(seed=1), "the same seed gave other texts.")
    others = sum(a != b for a, b in zip(first, drawn(seed=2), strict=True))
    result.expect(others > len(asked) / 2, f"another seed changed only {others} texts.")
    result.found["texts that another seed changes"] = f"{others} of {len(asked)}"

    model = common.random_model(common.shape(result))
    length = 256 if result.rehearse else 4096
    count = 2 if result.rehearse else sampling.BATCH["transformers"]
    prompts = torch.full((count, length - 8), 5).tolist()
    with sampling.sampler(model, tokenizer) as complete:
        answered = complete(prompts, [8] * count)
    result.found[f"sequences of {length} tokens, in batches that fit"] = len(answered)
    if result.rehearse:
        result.left_out.append("smaller batches where the memory runs out: needs a GPU")
    else:
        free, total = torch.cuda.mem_get_info()
        result.found["share of the card in use afterwards"] = 1 - free / total


def state(model) -> list:
    """What sampling must leave alone."""
    gpu = torch.cuda.get_rng_state().tolist() if torch.cuda.is_available() else []
    return [model.training, model.config.use_cache, torch.get_rng_state().tolist(), gpu]


if __name__ == "__main__":
    common.main(measure)
