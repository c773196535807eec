"""TRL alone: a trial step, its speed and memory, and the live objective against the settings."""

from benchmarks.gpu import common
from benchmarks.gpu.grpo_step import settings_for, step


def measure(result: common.Result) -> None:
    """In 16 bits, which need no bitsandbytes. Without a GPU, TRL needs Unsloth's patches."""
    if result.rehearse:
        import unsloth  # noqa: F401  # before Transformers
    model = common.speaking_model(common.shape(result), common.work("trl_step") / "model")
    how = {"backend": "transformers", "load_in_4bit": False, "optim": "adamw_torch"}
    step(settings_for(model, result.rehearse, **how), result)


if __name__ == "__main__":
    common.main(measure)
