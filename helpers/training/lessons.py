"""The training code of notebook 03 as functions, for lessons 07 to 11. Notebook 03 explains each
call.

The functions import TRL and Transformers themselves, because Unsloth must be imported first.
"""

from helpers.environment import Machine
from helpers.runs import Run
from helpers.settings import Preset, grpo_keywords


def configuration(run: Run, settings: Preset, machine: Machine, seed: int, **differs):
    """Return the `GRPOConfig` of these settings; `differs` adds or replaces keywords."""
    from trl import GRPOConfig

    keywords = {
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
    return GRPOConfig(**keywords | differs)


def train(
    run: Run, trainer, tokenizer, settings: Preset, seed: int, reward: str, checkpoint
) -> None:
    """Train, resuming from a checkpoint if there is one, and save the results in the run folder.

    reward: the name, for the manifest, of the only reward that counts. Its weight there is 1.0.
    """
    from transformers import PrinterCallback

    from helpers.training import checkpoints

    # Because of `disable_tqdm`, the trainer has a callback that prints all that it logs. Remove it:
    # the lessons show the steps themselves.
    trainer.remove_callback(PrinterCallback)
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    recorded = {"rewards": [reward], "weights": [1.0], "steps": trainer.state.global_step}
    checkpoints.keep(run, trainer, tokenizer, settings, seed, **recorded)
    print(f"{trainer.state.global_step} steps in {result.metrics['train_runtime']:.0f} s")
