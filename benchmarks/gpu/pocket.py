"""The notebooks with the embedded model, without vLLM: 00, then 01, 03 and 05. About two minutes.

A rehearsal leaves this out: tests/gpu_path executes the same notebooks through Unsloth's GPU code
on a CPU.
"""

from benchmarks.gpu import common
from benchmarks.gpu.notebooks import execute
from helpers.runs import Run


def measure(result: common.Result) -> None:
    """The quickstart, then the pipeline, whose trained and merged policy must have learned."""
    execute(result, "gpu-quickstart", "pocket", "00", [])
    execute(result, "gpu-plain", "pocket", "01,03,05", ["engine=transformers"])
    evaluation = Run("gpu-plain").evaluation
    for name in ("baseline", "trained", "merged"):
        result.found[f"accuracy, {name}"] = evaluation[name]["accuracy"]
    learned = evaluation["baseline"]["ci95"][1] < evaluation["trained"]["ci95"][0]
    result.expect(learned, "the pocket model did not learn: the intervals overlap.")


if __name__ == "__main__":
    common.main(measure)
