"""`python -m helpers diagnose`: what is wrong with a training run, from its log alone.

The log may come from this suite, TRL, verl or OpenRLHF, or from a tracker; see
`metrics.logs.read_log`. The findings are those of notebook 04.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from helpers.metrics.diagnosis import LOGGED, diagnose
from helpers.metrics.history import in_trl_names
from helpers.metrics.logs import read_log
from helpers.metrics.signals import SEVERITIES
from helpers.runs import Run
from helpers.training.base import training_in_words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diagnose`."""
    parser.add_argument(
        "log", help="a run's name, or a log: CSV, JSON, trainer_state.json, a folder of events, …"
    )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        help="exit with 1 if a finding is at least this severe; for batches",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def main(parsed: argparse.Namespace) -> int:
    """Print the findings, the most severe first. Return 0, or 1 if one is as severe as `--fail-on`.

    Raise FileNotFoundError if there is neither such a file nor such a run, and ValueError if the
    log cannot be read.
    """
    # 1. Find the log: a file or a folder, or else that of a run.
    path = Path(parsed.log)
    manifest = path / "manifest.json"
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise FileNotFoundError(f"{parsed.log} is not there.")
        run = Run(parsed.log)
        manifest = run.folder / "manifest.json"
        # a training that was interrupted, or still runs, has its rows beside its checkpoints
        path = run.folder / "checkpoints" / "metrics.csv"
        if (run.folder / "metrics.csv").exists() or not path.exists():
            path = run.require("metrics.csv")

    # 2. Read and diagnose it.
    history = read_log(path)
    if not any(name in LOGGED for name in in_trl_names(history)):
        found = ", ".join(map(str, history.columns[:10]))
        raise ValueError(f"{path}: it has no column that GRPO trainers log; found {found}.")
    findings = diagnose(history)

    # 3. Print the findings.
    if parsed.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        # a log does not show, for example, that the run is a control
        recorded = json.loads(manifest.read_text("utf-8")) if manifest.is_file() else {}
        lines = training_in_words(recorded.get("training", {}))
        lines += findings or [f"no findings in {len(history)} rows"]
        print(*lines, sep="\n")

    # 4. Is one of them as severe as `--fail-on`?
    if parsed.fail_on is None:
        return 0
    fatal = SEVERITIES[: SEVERITIES.index(parsed.fail_on) + 1]
    return int(any(finding.severity in fatal for finding in findings))
