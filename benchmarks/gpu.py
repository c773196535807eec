"""Speed and memory of a GRPO step on a GPU: Unsloth with vLLM, Unsloth alone, and TRL alone, side by side in one run.

    python -m benchmarks.gpu --models unsloth/Qwen3-1.7B unsloth/Qwen3-8B
    python -m benchmarks.gpu --models pocket --steps 1          # the same script on any machine, to see that it works

No model is downloaded: weights of a real architecture's shapes are drawn at random, and the pocket tokenizer reads and writes
for them. Neither speed nor memory depends on the values. Every completion is forced to its limit, so that each way of sampling
does the same work. Each case runs in a process of its own; the table goes to benchmarks/results/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from helpers import PROJECT
from helpers.environment import package_versions, this_machine
from helpers.presets import POCKET_MODEL, PRESETS, Preset, with_overrides
from helpers.training.memory import card_of, estimate, shape_of

CASES = {  # what each changes of the preset
    "Unsloth + vLLM": {"backend": "unsloth", "fast_inference": True},
    "Unsloth": {"backend": "unsloth", "fast_inference": False},
    "TRL alone": {"backend": "transformers", "fast_inference": False},
}
RESULTS = PROJECT / "benchmarks" / "results" / "gpu.md"


def random_model(name: str, folder: Path) -> Path:
    """A Qwen3 of a known model's shape with random weights in 16 bits, and the pocket tokenizer, in `folder`.

    What the tokenizer has no words for are spellings of the format's tags with a number: so that random completions earn
    different rewards, and a training on them has a gradient.
    """
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    pocket = Path(PRESETS["pocket"].model_path)
    known = json.loads((pocket / "config.json").read_text(encoding="utf-8"))
    shape = shape_of(name)
    config = Qwen3Config(**asdict(shape), **{key: known[key] for key in ("eos_token_id", "pad_token_id", "rms_norm_eps")})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer = json.loads((pocket / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    vocabulary |= {f"{tags[i % 4]}{i}": i for i in range(known["vocab_size"], shape.vocab_size)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    for file in ("tokenizer_config.json", "chat_template.jinja"):
        if (pocket / file).exists():
            shutil.copy(pocket / file, folder / file)
    return folder


def measure(settings: Preset, steps: int) -> dict:
    """Seconds a step (the median of `steps`, after one that warms up), sampled tokens a second, bytes of the card in use."""
    from helpers.training import flight, policy

    model, tokenizer = policy.load(settings)
    if settings.backend == "unsloth":
        from unsloth import FastLanguageModel

        checkpointing = settings.gradient_checkpointing
        options = {"use_gradient_checkpointing": checkpointing, "target_modules": policy.LORA_TARGETS, "random_state": 1}
        model = FastLanguageModel.get_peft_model(model, r=settings.lora_rank, lora_alpha=settings.lora_alpha, **options)
    else:
        model = policy.add_adapter(model, settings)
    from trl import GRPOConfig

    from helpers.data.tasks import load_task

    machine = this_machine()
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        num_generations=settings.num_generations,
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        max_completion_length=settings.max_completion_length,
        gradient_checkpointing=settings.gradient_checkpointing,
        use_vllm=settings.fast_inference,
        optim=settings.optim,
        beta=settings.beta,
        disable_tqdm=True,
        **({"bf16": machine.bf16, "fp16": not machine.bf16} if machine.gpu else {}),
    )
    rows = load_task("arithmetic/sums", train_size=settings.completions_per_round, holdout_size=1).train
    trials = [
        flight.trial_step(model, tokenizer, config, [_alternating_reward], rows, settings, machine) for _ in range(steps + 1)
    ]
    seconds = statistics.median(trial.seconds for trial in trials[1:])
    sampled = settings.completions_per_round * settings.max_completion_length
    peaks = [trial.peak for trial in trials if trial.peak is not None]
    return {"seconds": seconds, "tokens_per_second": sampled / seconds, "peak": max(peaks, default=None)}


def _alternating_reward(completions: list, **columns) -> list[float]:
    return [float(i % 2) for i in range(len(completions))]


def settings_of(model: str, case: str, args: argparse.Namespace) -> Preset:
    """The l4 preset (or, for the pocket model, its own) with the case's changes and this run's sizes."""
    base = PRESETS["pocket" if model == POCKET_MODEL else "l4"]
    sizes = {"max_completion_length": args.length, "gpu_memory_utilization": args.utilization}
    return with_overrides(base, model=model, **CASES[case], **{key: value for key, value in sizes.items() if value})


def table(rows: list[dict], command: str) -> str:
    """The results in Markdown: a case a row, with its ratio to TRL alone and the estimate beside the measured memory."""
    machine = this_machine()
    lines = [
        "# A step of GRPO, side by side",
        "",
        f"`{command}` on {machine.gpu or 'a CPU'} ({machine.cores} cores), Python {platform.python_version()}; "
        + ", ".join(f"{name} {version}" for name, version in package_versions().items() if name in _TOLD)
        + ".",
        "",
        "| model | case | s a step | sampled tokens a second | times TRL alone | peak, GB | estimate, GB | estimate / peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    alone = {
        row["model"]: row["tokens_per_second"] for row in rows if row["case"] == "TRL alone" and "tokens_per_second" in row
    }
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['model']} | {row['case']} | {row['error']} | | | | | |")
            continue
        ratio = f"{row['tokens_per_second'] / alone[row['model']]:.2f}" if row["model"] in alone else ""
        measured = [f"{row['seconds']:.2f}", f"{row['tokens_per_second']:,.0f}", ratio]
        expected = row["estimate"] / 1e9
        memory = ["", f"{expected:.1f}", ""]
        if row["peak"]:
            memory = [f"{row['peak'] / 1e9:.1f}", f"{expected:.1f}", f"{row['estimate'] / row['peak']:.2f}"]
        lines.append(f"| {' | '.join([row['model'], row['case'], *measured, *memory])} |")
    return "\n".join(lines) + "\n"


_TOLD = ("torch", "transformers", "trl", "peft", "bitsandbytes", "unsloth", "vllm")


def _one_case(args: argparse.Namespace) -> None:
    """In a process of its own: measure, and print the result as the last line."""
    model, case = args.models[0], args.case
    settings = settings_of(model, case, args)
    if args.folder:
        settings = replace(settings, model=args.folder)
    result = measure(settings, args.steps)
    expected = estimate(settings, shape_of(settings.model_path), card_of(this_machine())).peak
    print("\n" + json.dumps({"model": model, "case": case, "estimate": expected} | result))


def main() -> None:
    """Run every case of every model and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["unsloth/Qwen3-1.7B", "unsloth/Qwen3-4B", "unsloth/Qwen3-8B"])
    parser.add_argument("--steps", type=int, default=3, help="steps measured, after one that warms up (default: 3)")
    parser.add_argument("--length", type=int, help="tokens a completion (default: the preset's)")
    parser.add_argument("--utilization", type=float, help="the share of the card that vLLM takes (default: the preset's)")
    parser.add_argument("--no-table", action="store_true", help="print the results and leave the table as it is")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        _one_case(args)
        return
    if this_machine().gpu is None and args.models != [POCKET_MODEL]:
        parser.error("no NVIDIA GPU is visible; on a CPU only `--models pocket` ends within minutes")
    rows = []
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            if model != POCKET_MODEL:
                builder = (
                    f"from pathlib import Path; from benchmarks.gpu import random_model as r; r({model!r}, Path({folder!r}))"
                )
                subprocess.run([sys.executable, "-c", builder], check=True, cwd=PROJECT)
            cases = CASES if this_machine().gpu else [case for case in CASES if not CASES[case]["fast_inference"]]
            for case in cases:
                rows.append(_in_a_process(model, case, "" if model == POCKET_MODEL else folder, args))
                print(json.dumps(rows[-1]), flush=True)
    text = table(rows, " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]))
    print(text)
    if this_machine().gpu and not args.no_table:
        RESULTS.write_text(text, encoding="utf-8")
    failed = [row for row in rows if "error" in row]
    if failed:
        sys.exit(f"{len(failed)} of {len(rows)} cases failed; the table names the error of each")


def _in_a_process(model: str, case: str, folder: str, args: argparse.Namespace) -> dict:
    command = [sys.executable, "-m", "benchmarks.gpu", "--models", model, "--case", case, "--steps", str(args.steps)]
    options = {"--folder": folder, "--length": args.length, "--utilization": args.utilization}
    command += [str(part) for name, value in options.items() if value for part in (name, value)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error" in line] or [f"exit code {done.returncode}"]
        return {"model": model, "case": case, "error": said[-1].strip()[:200]}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
