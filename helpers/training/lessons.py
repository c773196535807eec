"""What lessons 07 and 09 to 11 configure as notebook 03 does, which explains each keyword."""

from helpers.environment import Machine
from helpers.runs import Run
from helpers.settings import Preset, grpo_keywords


def lesson_keywords(run: Run, settings: Preset, machine: Machine, seed: int) -> dict:
    """Return the keywords of `GRPOConfig` that every lesson gives; it adds or replaces its own."""
    return {
        "output_dir": str(run.path("checkpoints")),
        "seed": seed,
        **grpo_keywords(settings),
        "use_vllm": settings.engine == "vllm",
        "bf16": not machine.only_fp16,
        "fp16": machine.only_fp16,
        "save_total_limit": 2,
        "disable_tqdm": True,
        "log_completions": True,
        "num_completions_to_print": 0,
        "report_to": "none",
    }
