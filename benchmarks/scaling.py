"""How far more GPUs carry one training: a model of a step from published figures, and a simpler one
held to measurements.

`PYTHONPATH=. python -m benchmarks.scaling` computes the table and the figure, which needs no GPU
and takes a second; `--measure` first trains the pocket model in 1, 2 and 4 processes, to hold a
prediction from one process against them. Both go to benchmarks/results/scaling.md.

A step has three parts. Sampling: each token of the longest completion reads all weights and the
cache once, however few completions a GPU has; that is its floor. Forward and backward: arithmetic,
which is shared out evenly. Sync: the adapter's gradients, averaged in a ring. What is left out: the
rewards, the prompt's own pass, uneven completions between GPUs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers import PROJECT
from helpers.environment import package_versions, this_machine
from helpers.presets import PRESETS, Preset
from helpers.training.memory import Shape, shape_of

_RESULTS = PROJECT / "benchmarks" / "results"
_MEASURED = _RESULTS / "scaling.json"


@dataclass(frozen=True)
class Card:
    """Of a data sheet: bytes a second of memory, floating-point operations a second (dense, 16
    bits), and bytes a second to another card of the same machine, one way.
    """

    name: str
    memory: float
    compute: float
    link: float


# NVIDIA's data sheets of these cards. NVLink's and PCIe's figures are halved where the sheet adds
# both directions.
CARDS = {
    "small": Card("RTX 3070", 448e9, 40.6e12, 32e9),
    "t4": Card("T4", 320e9, 65e12, 16e9),
    "l4": Card("L4", 300e9, 121e12, 32e9),
    "a100": Card("A100 40 GB", 1555e9, 312e12, 300e9),
    "h100": Card("H100 SXM", 3350e9, 989e12, 450e9),
    "h200": Card("H200 SXM", 4800e9, 989e12, 450e9),
}
_A_MACHINE = 8  # GPUs; more are in several machines,
_NETWORK = 50e9  # with 400 Gb/s InfiniBand for each GPU
# Assumptions: the shares of the published figures that are reached, and how long a completion is
# beside its limit.
_OF_MEMORY, _OF_COMPUTE, _OF_LINK, _LATENCY, _MEAN_LENGTH = 0.6, 0.35, 0.7, 20e-6, 0.5


@dataclass(frozen=True)
class Step:
    """Seconds of one optimiser step by part, and the tokens that are sampled for it."""

    sampling: float
    learning: float
    sync: float
    tokens: float

    @property
    def seconds(self) -> float:
        return self.sampling + self.learning + self.sync


def step(
    preset: Preset, card: Card, gpus: int, completions: int, shape: Shape | None = None
) -> Step:
    """The model of a step of `completions` (of all GPUs together; a multiple of `gpus`).

    shape: the model's; looked up if None.
    """
    shape, each = shape or shape_of(preset.model), completions / gpus
    weights = (
        shape.linear_parameters * (0.52 if preset.load_in_4bit else 2)
        + shape.embedding_parameters * 2
    )
    longest, mean = preset.max_completion_length, _MEAN_LENGTH * preset.max_completion_length
    # Lengths spread evenly from 0 to the limit: half of the completions are still written at a
    # token, on average over tokens, and those are a third of the limit long by then.
    cache = each * shape.kv_bytes * _MEAN_LENGTH * (preset.max_prompt_length + longest / 3)
    reading = (weights + cache) / (_OF_MEMORY * card.memory)
    computing = 2 * shape.parameters * each * _MEAN_LENGTH / (_OF_COMPUTE * card.compute)
    # A forward pass, the same again where activations are recomputed, a backward pass to the
    # activations (the weights are frozen), and the reference's forward pass: 2 operations a weight
    # and token each.
    passes = 2 + preset.gradient_checkpointing + (preset.beta > 0)
    learning = (
        2
        * passes
        * shape.parameters
        * each
        * (preset.max_prompt_length / 2 + mean)
        / (_OF_COMPUTE * card.compute)
    )
    link = card.link if gpus <= _A_MACHINE else min(card.link, _NETWORK)
    ring = (
        2
        * (gpus - 1)
        * (4 * shape.lora_parameters(preset.lora_rank) / gpus / (_OF_LINK * link) + _LATENCY)
    )
    return Step(longest * max(reading, computing), learning, ring, completions * mean)


def curve(name: str) -> pd.DataFrame:
    """A row a number of GPUs that the preset's step divides into: seconds by part, speed-up, and
    with a step grown as much.
    """
    preset, card, rows = PRESETS[name], CARDS[name], []
    completions = preset.completions_per_step
    alone = step(preset, card, 1, completions)
    for gpus in (number for number in (1, 2, 4, 8, 16, 32, 64) if completions % number == 0):
        same, grown = (
            step(preset, card, gpus, completions),
            step(preset, card, gpus, gpus * completions),
        )
        rows.append(
            {
                "gpus": gpus,
                "sampling": same.sampling,
                "learning": same.learning,
                "sync": same.sync,
                "seconds": same.seconds,
                "tokens_a_second": same.tokens / same.seconds,
                "speedup": alone.seconds / same.seconds,
                "grown_tokens_a_second": grown.tokens / grown.seconds,
            }
        )
    return pd.DataFrame(rows)


# --- Held to measurements -------------------------------------------------------------------------


def measure(steps: int) -> list[dict]:
    """Seconds of a step of the pocket model in 1, 2 and 4 processes, and what one process with as
    small a share predicts.
    """
    whole, cores = PRESETS["pocket"].completions_per_step, this_machine().cores
    with tempfile.TemporaryDirectory() as folder:
        _call(folder, 1, "run", "--run", "prepared", "--preset", "pocket", "--only", "01")
        shares = {n: f"per_device_train_batch_size={whole // n}" for n in (1, 2, 4)}
        alone = {
            n: _median_step(folder, f"alone-{n}", 1, steps, share) for n, share in shares.items()
        }
        rows = [{"processes": 1, "predicted": alone[1], "measured": alone[1], "sync": 0.0}]
        for processes in (2, 4):
            sync = _sync(folder, processes)
            predicted = alone[processes] * max(1, processes / cores) + sync
            measured = _median_step(folder, f"together-{processes}", processes, steps)
            rows.append(
                {"processes": processes, "predicted": predicted, "measured": measured, "sync": sync}
            )
    return rows


def _median_step(folder: str, name: str, processes: int, steps: int, *given: str) -> float:
    shutil.copytree(Path(folder) / "prepared", Path(folder) / name)
    parameters = [part for one in (f"max_steps={steps}", *given) for part in ("-p", one)]
    _call(folder, processes, "train", name, *parameters)
    return float(pd.read_csv(Path(folder) / name / "metrics.csv")["step_time"][1:].median())


def _call(folder: str, processes: int, *arguments: str, module: str = "helpers") -> str:
    several = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        if processes > 1
        else []
    )
    environment = os.environ | {
        "GRPO_RUNS_DIR": folder,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, *several, "-m", module, *arguments]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _sync(folder: str, processes: int) -> float:
    return float(_call(folder, processes, "--all-reduce", module="benchmarks.scaling").split()[-1])


def all_reduce() -> None:
    """In one of several processes: the seconds of averaging the pocket adapter's gradients, printed
    by the first.
    """
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    preset = PRESETS["pocket"]
    gradients = torch.zeros(shape_of(preset.model_path).lora_parameters(preset.lora_rank))
    times = []
    for _ in range(20):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(gradients)
        times.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(sorted(times)[len(times) // 2])
    dist.destroy_process_group()


# --- The page -------------------------------------------------------------------------------------


def page(measured: dict | None) -> str:
    """benchmarks/results/scaling.md."""
    lines = [
        "# How far more GPUs carry one training",
        "",
        "`python -m benchmarks.scaling`. **A model, not a measurement**: no GPU has run it. "
        "Published bandwidths and "
        f"arithmetic (`CARDS`), of which {_OF_MEMORY:.0%} of the memory's, {_OF_COMPUTE:.0%} of "
        "the arithmetic and "
        f"{_OF_LINK:.0%} of the link's are assumed to be reached, the longest completion at its "
        "limit and the mean at "
        f"{_MEAN_LENGTH:.0%} of it. Up to {_A_MACHINE} GPUs in one machine, more over "
        f"{_NETWORK * 8 / 1e9:.0f} Gb/s each. The "
        "completions of a step stay the same, as `train` keeps them; the last column lets each "
        "GPU keep a whole step's.",
        "",
        "![Speed-up over one GPU](scaling.png)",
        "",
        "| preset, card | GPUs | sampling s | learning s | sync s | step s | speed-up | tokens/s "
        "| tokens/s, step grown |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, card in CARDS.items():
        for row in curve(name).itertuples():
            parts = (
                f"{row.sampling:.1f} | {row.learning:.1f} | {row.sync:.3f} | "
                f"{row.seconds:.1f} | {row.speedup:.1f}"
            )
            rates = f"{row.tokens_a_second:,.0f} | {row.grown_tokens_a_second:,.0f}"
            lines.append(f"| {name}, {card.name} | {row.gpus} | {parts} | {rates} |")
    lines += ["", *_where_it_stops(), "", "## Held to measurements", "", *_measured_lines(measured)]
    return "\n".join([*lines, ""])


def _where_it_stops() -> list[str]:
    lines = ["Where a doubling of the GPUs gains less than a quarter:", ""]
    for name in CARDS:
        found = curve(name)
        gains = found["speedup"].to_numpy()[1:] / found["speedup"].to_numpy()[:-1]
        stop = next((row for row, gain in enumerate(gains) if gain < 1.25), None)
        last = found.iloc[-1 if stop is None else stop]
        where = (
            f"after {last.gpus:.0f}"
            if stop is not None
            else f"not up to {last.gpus:.0f}, all that its step divides into"
        )
        lines.append(
            f"- `{name}`: {where}; {last.sampling / last.seconds:.0%} of the step is sampling "
            "there."
        )
    return [
        *lines,
        "",
        "Sampling does not shrink with the GPUs: each reads all the weights for every token of "
        "the longest completion of the "
        "round. A larger step uses them (last column), at the price of another training. "
        "Gradients are those of an adapter, so "
        "their sync is small; a vLLM server on a card of its own also takes the whole merged "
        "weights once a step.",
    ]


def _measured_lines(measured: dict | None) -> list[str]:
    if measured is None:
        return ["Not measured yet: `--measure`."]
    rows = [
        f"| {row['processes']} | {row['predicted']:.3f} | {row['measured']:.3f} | "
        f"{row['measured'] / row['predicted']:.2f} | "
        f"{1000 * row['sync']:.1f} |"
        for row in measured["rows"]
    ]
    return [
        f"The pocket model on {measured['cores']} CPU cores, one thread a process, "
        f"{measured['steps']} steps, medians "
        f"({measured['versions']}). Predicted: the step of one process with that share of the "
        "completions, times the processes "
        "that share a core, and the measured averaging of the gradients. What it leaves out: "
        "waiting for the slowest process.",
        "",
        "| processes | predicted s | measured s | measured / predicted | averaging ms |",
        "|---|---|---|---|---|",
        *rows,
    ]


def figure():
    """Speed-up over one GPU, a line a preset."""
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(7, 4.2))
    for (name, card), marker in zip(CARDS.items(), "osD^vP", strict=True):
        found = curve(name)
        axes.plot(found["gpus"], found["speedup"], marker=marker, label=f"{name} ({card.name})")
    axes.plot([1, 64], [1, 64], color="0.6", linestyle="--", label="as many times as GPUs")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="GPUs",
        ylabel="times the speed of one GPU",
        title="A model, not a measurement",
    )
    ticks = [1, 2, 4, 8, 16, 32, 64]
    axes.set_xticks(ticks, ticks)
    axes.set_yticks(ticks, ticks)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--measure",
        action="store_true",
        help="train the pocket model in 1, 2 and 4 processes first",
    )
    parser.add_argument(
        "--steps", type=int, default=8, help="steps of each of these trainings (default: 8)"
    )
    parser.add_argument("--all-reduce", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.all_reduce:
        all_reduce()
        return 0
    if parsed.measure:
        have = package_versions()
        versions = ", ".join(f"{name} {have[name]}" for name in ("torch", "trl", "unsloth"))
        found = {
            "rows": measure(parsed.steps),
            "steps": parsed.steps,
            "cores": this_machine().cores,
            "versions": versions,
        }
        _MEASURED.write_text(json.dumps(found, indent=1), encoding="utf-8")
    measured = json.loads(_MEASURED.read_text(encoding="utf-8")) if _MEASURED.is_file() else None
    (_RESULTS / "scaling.md").write_text(page(measured), encoding="utf-8")
    figure().savefig(_RESULTS / "scaling.png", dpi=110, bbox_inches="tight")
    print(page(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
