"""What the lessons 07 to 11 do as 03 does it, where it is spelt out and explained.

The functions import what they need, because Unsloth must be imported before all of it.
"""

from helpers import presets
from helpers.environment import Machine
from helpers.presets import Preset
from helpers.runs import Run


def import_unsloth(settings: Preset) -> None:
    """Import Unsloth if these settings need it here (`policy.needs_unsloth`). It patches
    Transformers and so must come before it; the mode in which vLLM gives up its cache while the
    policy trains must be set even earlier.
    """
    from helpers.training import policy

    if settings.engine == "vllm":
        policy.standby()
    if policy.needs_unsloth(settings):
        import unsloth  # noqa: F401


def configuration(run: Run, settings: Preset, machine: Machine, seed: int, **differs):
    """Return the `GRPOConfig` of these settings, with what the lesson passes besides."""
    from trl import GRPOConfig

    only_fp16 = bool(machine.gpu) and not machine.bf16  # a T4 has no bf16
    return GRPOConfig(
        output_dir=str(run.path("checkpoints")),
        seed=seed,
        **presets.grpo_keywords(settings),
        use_vllm=settings.engine == "vllm",
        bf16=not only_fp16,
        fp16=only_fp16,
        save_total_limit=2,
        disable_tqdm=True,
        log_completions=True,
        num_completions_to_print=0,
        report_to="none",
        **differs,
    )


def train(
    run: Run, trainer, tokenizer, settings: Preset, seed: int, reward: str, checkpoint
) -> None:
    """Train, from the checkpoint if there is one, and keep the adapter and what led to it.

    reward: the name of the one that the run records.
    """
    from transformers import PrinterCallback

    from helpers.training import checkpoints

    trainer.remove_callback(PrinterCallback)
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    recorded = {"rewards": [reward], "weights": [1.0], "steps": trainer.state.global_step}
    checkpoints.keep(run, trainer, tokenizer, settings, seed, **recorded)
    print(f"{trainer.state.global_step} steps in {result.metrics['train_runtime']:.0f} s")
