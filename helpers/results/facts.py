"""Read the facts of a run from its folder, for the model card and the report.

    facts = read_facts(Run("demo"))
    facts.evaluation["trained"]  # as in evaluation.json

Files that are older than what they were made from are left out, and so is whatever would tell where
the author keeps files.
"""

from dataclasses import dataclass
from pathlib import PureWindowsPath

from helpers import PROJECT
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.history import read_metrics
from helpers.metrics.signals import Finding
from helpers.runs import Run

_REPORTS = ("data_report.json", "reward_report.json", "evaluation.json", "comparison.json")


@dataclass(frozen=True)
class Facts:
    """The contents of a run folder, without absolute paths.

    data, rewards, evaluation, comparison: the contents of data_report.json, reward_report.json,
        evaluation.json and comparison.json; empty if the file is missing or outdated.
    findings: the diagnosis of metrics.csv; empty if that file is missing or outdated.
    outdated: the reason why a file is outdated, from `Run.outdated`, by the file's name.
    """

    name: str
    manifest: dict
    data: dict
    rewards: dict
    evaluation: dict
    comparison: dict
    findings: list[Finding]
    outdated: dict[str, str]


def read_facts(run: Run) -> Facts:
    """Return the facts of a run.

    Raise FileNotFoundError if the run has no data or no training. Raise ValueError if a file is
    damaged, or if the data were prepared again after training (see `Run.section`).
    """
    # 1. Refuse a run that has not been trained.
    run.section("data")
    run.section("training")

    # 2. Leave out files that are older than their sources, and keep the reasons.
    outdated = {}
    for name in (*_REPORTS, "metrics.csv", "merged"):
        if reason := run.outdated(name):
            outdated[name] = reason
    current = [name for name in _REPORTS if name not in outdated]
    contents = {name: portable(run.read_object(name)) for name in current}

    # 3. Diagnose the training.
    findings = []
    metrics = run.folder / "metrics.csv"
    if metrics.exists() and "metrics.csv" not in outdated:
        findings = diagnose(read_metrics(metrics))
    return Facts(
        name=run.name,
        manifest=portable(run.manifest),
        data=contents.get("data_report.json", {}),
        rewards=contents.get("reward_report.json", {}),
        evaluation=contents.get("evaluation.json", {}),
        comparison=contents.get("comparison.json", {}),
        findings=findings,
        outdated=outdated,
    )


# Entries that may begin with a slash without being a path.
_TEXTS = ("system_prompt", "question", "completion", "content")


def portable(value, key: str = ""):
    """Return a value from a run's files with each absolute path in it made relative to the project,
    or reduced to the file name outside it, so that nothing about the author's machine is published.

    key: the name under which the value is stored. Texts such as a system prompt are kept.

    >>> portable({"source": "/data/sums.csv", "rewards": "correctness,/data/mine.py:brevity"})
    {'source': 'sums.csv', 'rewards': 'correctness,mine.py:brevity'}
    """
    if isinstance(value, dict):
        return {name: portable(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [portable(entry, key) for entry in value]
    if not isinstance(value, str) or key in _TEXTS:
        return value
    told = []
    paths = value.split(",") if ".py:" in value else [value]  # a list of rewards may name several
    for path in paths:
        path = path.removeprefix(f"{PROJECT}/")
        # PureWindowsPath splits at both kinds of slash, and both begin its absolute paths.
        is_absolute = PureWindowsPath(path).root != ""
        told.append(PureWindowsPath(path).name if is_absolute else path)
    return ",".join(told)
