"""01 to 05 at a real model's shapes on the CPU: `python -m benchmarks.real_shapes`.

Random weights at Qwen3-0.6B's configuration (28 layers, 151,936 tokens) with the pocket tokenizer:
2 steps of 8 completions of 32 tokens. What breaks at 28 layers and a real vocabulary breaks here.
Eighteen minutes on two cores that had other work, 11 of them of one core's time, and 9 GB; with
`--layers 4`, under five.
"""

import argparse
import json
import os
import shutil
import sys
from dataclasses import replace

NAME = "real-shapes"
SIZES = ["source=arithmetic/sums", "train_size=64", "holdout_size=8", "max_completion_length=32"]
SHORT = ["max_steps=2", "learning_rate=0.001", "per_device_train_batch_size=8"]


def main() -> int:
    """0 if two steps were taken with finite gradients, and the merge was proven."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=28)
    layers = parser.parse_args().layers
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch

    from benchmarks.gpu import common
    from helpers.commands.run import run_notebooks
    from helpers.metrics.history import read_metrics
    from helpers.runs import Run, runs_folder

    model, run = runs_folder() / "gpu-check" / NAME, Run(NAME)
    shutil.rmtree(model, ignore_errors=True)
    common.speaking_model(replace(common.REAL, num_hidden_layers=layers), model)
    if run_notebooks(NAME, "pocket", "01", [f"model={model}", *SIZES], fresh=True):
        return 1
    run_notebooks(NAME, None, "02", ["groups=4"])  # no go, and rightly: random weights say nothing
    print(run.read_object("reward_report.json")["verdict"])
    if run_notebooks(NAME, None, "03,04,05", [*SHORT, "samples=2", "sampled_questions=2"]):
        return 1
    history = read_metrics(run.require("metrics.csv"))
    print(history[["step", "reward", "grad_norm", "step_time"]].to_string(index=False))
    print(json.dumps(run.manifest["merge"], indent=1))
    return int(len(history) != 2 or history["grad_norm"].isna().any())


if __name__ == "__main__":
    sys.exit(main())
