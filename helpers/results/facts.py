"""The facts of a run, which the model card and the report show.

    facts = card.read_facts(Run("demo"))
    facts.evaluation["trained"]  # as in evaluation.json

Whatever would tell where the author keeps files is left out.
"""

from dataclasses import dataclass
from pathlib import PureWindowsPath

from helpers import PROJECT
from helpers.metrics.signals import Finding


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
