"""A sweep of 8 small runs on two Ray nodes of one CPU each against `--jobs 2`, in one run: `python
-m benchmarks.ray_sweep`.

The nodes are real ones of Ray's, on this machine, and each way starts every run in processes of its
own, with one thread. The ways take turns, half of the runs at a time, so that what else the machine
does falls on both. Ray's share is its start-up of the tasks and the connection; the cluster itself
stands before. Needs Ray: `make optional`.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import yaml
from ray.cluster_utils import Cluster

from helpers import PROJECT
from helpers.environment import installed_version, this_machine

SMALL = {"max_steps": 4, "holdout_size": 8, "num_generations": 4, "per_device_train_batch_size": 8}
NODE = {"object_store_memory": 80_000_000}
WANTED = 1.15  # at most: Ray's time by that of --jobs 2


def grid(name: str, seeds: list[int]) -> dict:
    """A point a seed."""
    return {
        "name": name,
        "preset": "pocket",
        "seeds": seeds,
        "fixed": SMALL,
        "product": {"lora_rank": [8]},
    }


def timed(file: Path, content: dict, runs: Path, way: list[str]) -> float:
    """Seconds of one sweep as a command; its runs must all go through."""
    file.write_text(yaml.safe_dump(content))
    began = time.monotonic()
    command = [sys.executable, "-m", "helpers", "sweep", "--grid", str(file), *way]
    subprocess.run(command, check=True, cwd=PROJECT, env=os.environ | {"GRPO_RUNS_DIR": str(runs)})
    return time.monotonic() - began


def measure(points: int) -> pd.DataFrame:
    """A row a half: seconds of each way, and the load of the machine before it."""
    cluster = Cluster(
        initialize_head=True, head_node_args=NODE | {"num_cpus": 0, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1, **NODE)
    ways = {"--jobs 2": ["--jobs", "2"], "Ray": ["--on", "ray", "--address", cluster.address]}
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for half, order in enumerate((list(ways), list(ways)[::-1])):
                seeds = list(range(1 + half * points // 2, 1 + (half + 1) * points // 2))
                row = {"runs": len(seeds), "load": os.getloadavg()[0]}
                for way in order:
                    runs = Path(folder) / way.strip("-").replace(" ", "")
                    row[way] = timed(
                        Path(folder) / "grid.yaml", grid(f"half{half}", seeds), runs, ways[way]
                    )
                rows.append(row)
    finally:
        cluster.shutdown()
    return pd.DataFrame(rows)


def text(found: pd.DataFrame) -> str:
    """The page of results."""
    total, machine = found.sum(), this_machine()
    ratio = total["Ray"] / total["--jobs 2"]
    lines = [
        "# A sweep on Ray",
        "",
        f"`python -m benchmarks.ray_sweep`, Ray {installed_version('ray')}, {machine.cores} "
        f"cores, {platform.machine()}: runs "
        f"of notebooks 01 and 03, {SMALL['max_steps']} steps each, on two nodes of one CPU "
        "against `--jobs 2`.",
        "",
        "| runs | load before | `--jobs 2`, s | Ray, s | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in [*found.to_dict("records"), total.to_dict() | {"load": float("nan")}]:
        load = "" if pd.isna(row["load"]) else f"{row['load']:.1f}"
        numbers = f"{row['--jobs 2']:.0f} | {row['Ray']:.0f} | {row['Ray'] / row['--jobs 2']:.2f}"
        lines.append(f"| {row['runs']:.0f}{'' if load else ' together'} | {load} | {numbers} |")
    lines += ["", f"Wanted: at most {WANTED}; found: {ratio:.2f}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write benchmarks/results/ray_sweep.md and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=8, help="runs of each way (default: 8)")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    page = text(measure(parser.parse_args().points))
    (PROJECT / "benchmarks" / "results" / "ray_sweep.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
