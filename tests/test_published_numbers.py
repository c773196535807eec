"""The numbers on the pages are those of the data."""

import json
import tarfile

import pytest

from helpers import PROJECT


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def committed():
    """A file of the committed run, by its path there."""
    with tarfile.open(PROJECT / "notebooks" / "data" / "demo.tar.xz") as archive:
        yield lambda path: archive.extractfile(f"demo/{path}").read()


def test_the_accuracies_are_those_of_the_committed_run(committed):
    evaluation = json.loads(committed("evaluation.json"))
    before, after, merged = (evaluation[name] for name in ("baseline", "trained", "merged"))
    page = read("docs/results.md")
    for found in (before, after, merged, before["other"], after["other"]):
        low, high = found["ci95"]
        assert f"| {found['accuracy']:.1%} ({low:.1%} to {high:.1%}) |" in page
    assert f"| {before['mean_length']:.1f} → {after['mean_length']:.1f} |" in page
    told = "31 % of 256 held-out questions correctly before training and 95 % after it"
    assert told in " ".join(read("README.md").split()) and (before["n"], after["n"]) == (256, 256)
    assert (round(100 * before["accuracy"]), round(100 * after["accuracy"])) == (31, 95)
