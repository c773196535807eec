"""vLLM beside the policy: notebooks 01 and 03 through Unsloth with vLLM, and a step of it."""

import importlib.util

from benchmarks.gpu import common
from benchmarks.gpu.notebooks import SHORT, execute
from helpers.runs import runs_folder


def measure(result: common.Result) -> None:
    """The pocket model first, then the shapes of Qwen3-0.6B, as in `trl_step`."""
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError("vLLM is not installed", name="vllm")
    few = ["engine=vllm", "gpu_memory_utilization=0.3", "sampling_seconds=1"]
    execute(result, "gpu-beside", "pocket", "01,03", [*few, "max_steps=4"])
    model = runs_folder() / "gpu-check" / "speaking"
    if not model.exists():
        common.speaking_model(common.REAL, model)
    execute(result, "gpu-beside-l4", "l4", "01,03", [*SHORT, *few, f"model={model}"])


if __name__ == "__main__":
    common.main(measure)
