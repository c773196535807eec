"""Speed and memory of a GRPO step on one card: Unsloth and TRL, each with vLLM and without.

`make gpu-check` measures them.

No model is downloaded: weights of a real architecture's shapes are drawn at random, and the pocket
tokenizer reads and writes for them. Neither speed nor memory depends on the values. Every prompt is
as long as the settings allow and every completion is forced to its limit, so that each way of
sampling does the same work, and the memory is that of a step at full length.
"""

import json
import shutil
import statistics
import sys
import tempfile
import threading
from dataclasses import asdict, replace
from pathlib import Path

from helpers.environment import Machine, this_machine
from helpers.presets import PRESETS, Preset, with_overrides
from helpers.runs import atomic_folder
from helpers.training.memory import Shape, card_of, estimate, shape_of

# what each changes of the preset; in the last but one TRL starts the engine, which no preset asks
# for
CASES = {
    "Unsloth + vLLM": {"backend": "unsloth", "engine": "vllm"},
    "Unsloth": {"backend": "unsloth", "engine": "transformers"},
    "TRL + vLLM": {"backend": "transformers", "engine": "transformers"},
    "TRL": {"backend": "transformers", "engine": "transformers"},
}
SMALLEST = "Qwen/Qwen3-0.6B"
_WHOLE = 3  # tokens of a random model that are whole completions
_SHAPES = {SMALLEST: Shape(1024, 3072, 28, 16, 8, 128, 151_936, True, 40_960)}  # its config.json


def random_model(name: str, folder: Path) -> Path:
    """A Qwen3 of a known model's shape with random weights in 16 bits, and the pocket tokenizer, in
    `folder`; made once.

    A few tokens are far likelier than all others: the end, and some that are spelt as a whole
    completion in the format. So some completions earn and others do not, and a training has a
    gradient.
    """
    if (folder / "config.json").exists():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    pocket = Path(PRESETS["pocket"].model_path)
    known = json.loads((pocket / "config.json").read_text(encoding="utf-8"))
    shape, first = _SHAPES.get(name) or shape_of(name), known["vocab_size"]
    shape = replace(shape, vocab_size=max(shape.vocab_size, first + _WHOLE))
    config = Qwen3Config(
        **asdict(shape),
        **{key: known[key] for key in ("eos_token_id", "pad_token_id", "rms_norm_eps")},
    )
    tokenizer = json.loads((pocket / "tokenizer.json").read_text(encoding="utf-8"))
    whole = {f"<think>{i}</think><answer>{i}</answer>": i for i in range(first, first + _WHOLE)}
    tokenizer["model"]["vocab"] |= whole | {
        f"w{i}": i for i in range(first + _WHOLE, shape.vocab_size)
    }
    torch.manual_seed(0)
    with atomic_folder(folder) as path:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        # One dimension says the same of all tokens, louder than what the layers add, and of the
        # likely ones still more.
        for weight in {model.get_input_embeddings().weight, model.get_output_embeddings().weight}:
            weight.data[:, 0] = 100.0
            weight.data[[known["eos_token_id"], *whole.values()], 0] = 170.0
        model.model.norm.weight.data[0] = 0.01
        model.save_pretrained(path)
        (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        for file in ("tokenizer_config.json", "chat_template.jinja"):
            if (pocket / file).exists():
                shutil.copy(pocket / file, path / file)
    return folder


def settings_of(case: str, preset: Preset, model: str) -> Preset:
    """The preset with a case's changes, for this model: a folder, or the name of an
    embedded one.
    """
    return with_overrides(preset, model=model, **CASES[case])


def measure(case: str, settings: Preset, steps: int) -> dict:
    """Seconds a step (the median of TRL's `step_time` of `steps`, after one that warms up), sampled
    tokens a second, bytes of the card in use.

    Returned with the case and, of a case that a preset can ask for, the estimate in bytes; peak is
    None without a GPU.
    """
    from helpers.training import policy, vllm_cpu

    model, tokenizer = policy.load(settings)
    if settings.backend == "unsloth":
        from unsloth import FastLanguageModel

        checkpointing = settings.gradient_checkpointing
        options = {
            "use_gradient_checkpointing": checkpointing,
            "target_modules": policy.LORA_TARGETS,
            "random_state": 1,
        }
        model = FastLanguageModel.get_peft_model(
            model, r=settings.lora_rank, lora_alpha=settings.lora_alpha, **options
        )
    else:
        model = policy.add_adapter(model, settings)
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    prompts = [_longest_prompt(tokenizer, settings.max_prompt_length)] * (
        settings.completions_per_round * (steps + 1)
    )
    with tempfile.TemporaryDirectory() as folder, PeakMemory() as peak:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=_config(case, settings, steps + 1, folder),
            reward_funcs=[_alternating_reward],
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            rollout_func=vllm_cpu.rollout(model, tokenizer),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    times = [row["step_time"] for row in trainer.state.log_history if "step_time" in row]
    seconds = statistics.median(times[1:])
    tokens = settings.completions_per_step * settings.max_completion_length
    expected = estimate(settings, shape_of(settings.model_path), card_of(this_machine())).peak
    return {
        "case": case,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "peak": peak.bytes,
        "estimate": None if case == "TRL + vLLM" else expected,
    }


class PeakMemory:
    """The most bytes of the card that were in use, looked up every 20 ms: vLLM's memory does not
    pass through torch.
    """

    bytes: int | None = None

    def __enter__(self):
        import torch

        self.cuda, self.done = torch.cuda, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        if self.cuda.is_available():
            self.bytes = 0
            self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.done.wait(0.02):
            free, total = self.cuda.mem_get_info()
            self.bytes = max(self.bytes, total - free)

    def __exit__(self, *exception):
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()


def _config(case: str, settings: Preset, steps: int, folder: str):
    from trl import GRPOConfig

    machine, limit = this_machine(), settings.max_completion_length
    unsloths_vllm, trls_vllm = (
        settings.engine == "vllm" and machine.gpu is not None,
        case == "TRL + vLLM",
    )
    options = {
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": True,
        "vllm_max_model_length": settings.context,
    }
    options |= {"vllm_gpu_memory_utilization": settings.gpu_memory_utilization}
    full_length = (
        {"min_tokens": limit, "ignore_eos": True} if "vLLM" in case else {"min_new_tokens": limit}
    )
    return GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        num_generations=settings.num_generations,
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        max_completion_length=limit,
        generation_kwargs=full_length,
        gradient_checkpointing=settings.gradient_checkpointing,
        use_vllm=unsloths_vllm or trls_vllm,
        optim=settings.optim,
        beta=settings.beta,
        disable_tqdm=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        **({"bf16": machine.bf16, "fp16": not machine.bf16} if machine.gpu else {}),
        **(options if trls_vllm else {}),
    )


def _longest_prompt(tokenizer, tokens: int) -> list[dict]:
    """A chat prompt of at most so many tokens, and nearly as many."""

    def prompt(count: int) -> list[dict]:
        return [{"role": "user", "content": " ".join(["What is 1 + 2?"] * count)}]

    def length(count: int) -> int:
        text = tokenizer.apply_chat_template(
            prompt(count), add_generation_prompt=True, tokenize=False
        )
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    return prompt(max((count for count in range(1, tokens) if length(count) <= tokens), default=1))


def _alternating_reward(completions: list, **columns) -> list[float]:
    return [float(i % 2) for i in range(len(completions))]


def table(rows: list[dict]) -> list[str]:
    """The measurements in Markdown: a case a row, with its ratio to TRL alone and the estimate
    beside the measured memory.
    """
    lines = [
        "| case | s a step | sampled tokens a second | times TRL | peak, GB | estimate, GB | "
        "estimate / peak |",
        "|---|---|---|---|---|---|---|",
    ]
    alone = next((row["tokens_per_second"] for row in rows if row["case"] == "TRL"), None)
    for row in rows:
        cells = [row["case"], f"{row['seconds']:.2f}", f"{row['tokens_per_second']:,.0f}"]
        cells.append(f"{row['tokens_per_second'] / alone:.2f}" if alone else "")
        cells += [_gigabytes(row[name]) for name in ("peak", "estimate")]
        cells.append(f"{ratio:.2f}" if (ratio := estimate_to_peak(row)) else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _gigabytes(size: float | None) -> str:
    """Two digits at the least, so that the pocket model's are no 0.0; nothing for what was not
    measured.
    """
    return f"{size / 1e9:{'.1f' if size >= 1e9 else '.2g'}}" if size else ""


def estimate_to_peak(row: dict) -> float | None:
    """The estimated memory of a measured case as a multiple of the measured; None where either is
    absent.
    """
    return row["estimate"] / row["peak"] if row["estimate"] and row["peak"] else None


def preset_for(machine: Machine) -> Preset:
    """The preset whose sizes are measured: the one for a card of 22 GB, for a smaller one that of a
    T4, pocket without any.
    """
    if machine.gpu is None:
        return PRESETS["pocket"]
    return PRESETS["l4" if machine.gpu_memory_gb >= PRESETS["l4"].needs_gb else "t4"]


if __name__ == "__main__":
    random_model(sys.argv[1], Path(sys.argv[2]))
