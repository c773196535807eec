"""The notebooks with vLLM: 01 to 05, 00 and 10; a step's speed and memory against TRL alone.

What an earlier call has executed is not executed again.
"""

import importlib.util
import subprocess
import threading

from benchmarks.gpu import common
from helpers.environment import this_machine, vllm_obstacle
from helpers.runs import Run, runs_folder

# A step of Qwen3-0.6B's shapes. Random weights learn nothing, so the training is short.
SHORT = ["source=arithmetic/sums", "train_size=64", "holdout_size=16", "max_completion_length=256"]
SHORT += ["max_steps=4", "learning_rate=0.001"]


def measure(result: common.Result) -> None:
    """The pocket model first: it must learn. Then the two speeds, and the lessons."""
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError("vLLM is not installed", name="vllm")
    if obstacle := vllm_obstacle(this_machine()):
        raise RuntimeError(obstacle)
    if not (model := runs_folder() / "gpu-check" / "speaking").exists():
        common.speaking_model(common.REAL, model)
    pocket = ["engine=vllm", "gpu_memory_utilization=0.3"]
    short = [*SHORT, f"model={model}"]
    execute(result, "gpu-pocket", "pocket", "01,02,03,04,05", pocket)
    expect_learning(result, "gpu-pocket")
    few = ["sampled_questions=4"]
    execute(result, "gpu-vllm", "l4", "01,03,05", [*short, *few, "engine=vllm"])
    execute(result, "gpu-trl", "l4", "01,03", [*short, "backend=transformers"])
    for only in ("00", "10"):
        execute(result, None, None, only, [])


def execute(result: common.Result, run: str | None, preset: str | None, only: str, given: list):
    """Execute notebooks; note the speed of a training's steps and the most memory in use."""
    from helpers.commands.run import run_notebooks

    with PeakMemory() as peak:
        code = run_notebooks(run, preset, only, given, once=run is not None)
    name = run or f"notebook {only}"
    result.expect(code == 0, f"{name}: a notebook failed, see the log.")
    result.found[f"{name}: peak of the card, GB"] = peak.most / 1e9
    if run is None or code:
        return
    later = Run(run).table("metrics.csv").iloc[1:]
    settings = Run(run).section("training")["settings"]
    completions = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"]
    tokens = later["completions/mean_length"] * completions
    result.found[f"{name}: seconds a step"] = later["step_time"].median()
    result.found[f"{name}: tokens a second"] = (tokens / later["step_time"]).median()


def expect_learning(result: common.Result, run: str) -> None:
    """Note a run's accuracies; a problem if the training did not raise them."""
    evaluation = Run(run).evaluation
    for name in ("baseline", "trained", "merged"):
        result.found[f"pocket model, {name}"] = evaluation[name]["accuracy"]
    learned = evaluation["baseline"]["ci95"][1] < evaluation["trained"]["ci95"][0]
    result.expect(learned, "the pocket model did not learn: the intervals overlap.")


class PeakMemory:
    """The most bytes of the card in use, looked up every second: the notebooks are processes of
    their own, and vLLM's memory does not pass through torch.
    """

    most = 0

    def __enter__(self):
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.done.wait(1):
            said = subprocess.run(asked, capture_output=True, text=True).stdout.split()
            self.most = max(self.most, int(said[0]) * 2**20 if said else 0)

    def __exit__(self, *exception):
        self.done.set()
        self.thread.join()


if __name__ == "__main__":
    common.main(measure)
