"""The notebooks with the pocket model, without vLLM: 00, then 01, 03 and 05. About two minutes.

A rehearsal leaves this out: tests/gpu_path executes the same notebooks through Unsloth's GPU code
on a CPU.
"""

from benchmarks.gpu import common
from benchmarks.gpu.notebooks import execute, expect_learning


def measure(result: common.Result) -> None:
    """The quickstart, then the pipeline, whose trained and merged policy must have learned."""
    execute(result, "gpu-quickstart", "pocket", "00", [])
    execute(result, "gpu-plain", "pocket", "01,03,05", ["engine=transformers"])
    expect_learning(result, "gpu-plain")


if __name__ == "__main__":
    common.main(measure)
