"""Peers that diagnose runs: their simulated histories, and their judgement of any history.

Run this file in an environment of its own, because the peers are no part of the suite:

    python3 -m venv peers && peers/bin/pip install rldoctor==0.2.0 rlprobe==0.1.0
    peers/bin/python benchmarks/peers.py simulate FOLDER     # FOLDER/rldoctor/KIND-SEED.csv, …
    peers/bin/python benchmarks/peers.py judge FOLDER        # judges all CSV files below; FOLDER/peers.json

The columns have TRL's names. Five seeds of each kind, or those from one number to another:
`simulate FOLDER 101 130`.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path

import numpy as np

# TRL's names of rlprobe's fields. What TRL does not log is left out.
FIELDS = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "kl": "kl_mean",
    "entropy": "entropy_mean",
    "clip_ratio/region_mean": "clip_fraction",
    "frac_reward_zero_std": "zero_variance_group_frac",
    "grad_norm": "grad_norm",
    "loss": "loss",
    "learning_rate": "lr",
    "completions/mean_length": "completion_len_mean",
    "completions/max_length": "completion_len_max",
    "completions/clipped_ratio": "truncation_rate",
    "step_time": "step_time_s",
}


def simulated_by_rlprobe(kind: str | None, seed: int) -> list[dict]:
    """The series of `rlprobe.testing.synth.generate_run`, which writes them in its own format."""
    from rlprobe.testing import synth

    rng = np.random.default_rng(seed)
    series = synth._healthy_series(500, rng, "ppo" if kind == "value_divergence" else "grpo")
    rewards = synth._healthy_components(series)
    positions = synth._healthy_kl_positional(series, rng)
    if kind:
        synth._inject(kind, series, rewards, positions, 250, rng)
    rows = []
    for step in range(500):
        row = {"step": step} | {name: float(series[field][step]) for name, field in FIELDS.items()}
        row |= {f"rewards/{name}/mean": float(values[step]) for name, values in rewards.items()}
        if series["nan_count"][step]:
            row["grad_norm"] = float("nan")
        rows.append(row)
    return rows


def write_simulated(folder: Path, first: int = 1, last: int = 5) -> None:
    """Write each kind of both peers, with each of these seeds."""
    from rl_doctor.simulate import SCENARIOS, simulate
    from rlprobe.testing import synth

    histories = {}
    for seed in range(first, last + 1):
        for kind in SCENARIOS:
            histories["rldoctor", kind, seed] = simulate(kind, seed=seed)[0]
        for kind in (None, *synth.PATHOLOGIES):
            histories["rlprobe", kind or "healthy", seed] = simulated_by_rlprobe(kind, seed)
    for (peer, kind, seed), rows in histories.items():
        path = folder / peer / f"{kind}-{seed}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, dict.fromkeys(name for row in rows for name in row))
            writer.writeheader()
            writer.writerows(rows)


def judged_by_rldoctor(rows: list[dict]) -> list[str]:
    """Its findings of at least a warning."""
    from rl_doctor.detectors.base import Severity
    from rl_doctor.diagnosis import diagnose
    from rl_doctor.ingest.base import run_from_records

    found = diagnose(run_from_records(rows, config={"algorithm": "grpo", "num_generations": 8}))
    return [one.detector for one in found.findings if one.severity >= Severity.WARNING]


def judged_by_rlprobe(rows: list[dict]) -> list[str]:
    """Its findings that are more than an info."""
    from rlprobe.doctor import diagnose
    from rlprobe.schemas import RunManifest, StepRecord
    from rlprobe.storage import RunWriter

    manifest = RunManifest(run_id="x", created_at="2026-01-01", algorithm="grpo", model_name="x")
    with tempfile.TemporaryDirectory() as folder:
        with RunWriter(folder, manifest) as writer:
            for row in rows:
                fields = {field: row.get(name) for name, field in FIELDS.items()}
                rewards = {
                    name.split("/")[1]: value
                    for name, value in row.items()
                    if name.startswith("rewards/") and name.endswith("/mean") and value is not None
                }
                record = StepRecord(step=row["step"], reward_components=rewards, **fields)
                writer.add_step(record)
        found = diagnose(folder)
    return [one.signature_id for one in found if one.severity != "info"]


def read(path: Path) -> list[dict]:
    """The training steps of a history; a blank field is None."""
    with path.open(newline="") as file:
        rows = [
            {name: float(value) if value else None for name, value in row.items()}
            for row in csv.DictReader(file)
        ]
    rows = [row for row in rows if row.get("reward") is not None]
    return [row | {"step": int(row["step"])} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["simulate", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="*", help="the first and the last seed: 1 5")
    parsed = parser.parse_args()
    if parsed.what == "simulate":
        write_simulated(parsed.folder, *parsed.seeds)
        return

    verdicts = {}
    for path in sorted(parsed.folder.rglob("*.csv")):
        rows = read(path)
        given = [{k: v for k, v in row.items() if v is not None} for row in rows]
        verdicts[str(path.relative_to(parsed.folder))] = {
            "rldoctor": judged_by_rldoctor(given),
            "rlprobe": judged_by_rlprobe(rows),
        }
    (parsed.folder / "peers.json").write_text(json.dumps(verdicts, indent=1))


if __name__ == "__main__":
    main()
