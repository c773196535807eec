"""The numbers on the pages are those of the data."""

import json
import re
import tarfile
from statistics import mean, median

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


def test_the_headline_of_the_readme_is_in_the_table_of_smollm2():
    """Its shares are those of all seeds together; its minutes are the median seed's."""
    row = re.compile(
        r"^\| true rewards \| \d \| 40 \| 128 \| ([\d.]+)% .*?→ ([\d.]+)% .*\| ([\d.]+) \+ [\d.]+ \|",
        re.MULTILINE,
    )
    seeds = [
        list(map(float, found)) for found in row.findall(read("benchmarks/results/smollm2.md"))
    ]
    before, after, _ = (round(mean(column)) for column in zip(*seeds, strict=True))
    minutes = {6: "six", 7: "seven", 8: "eight"}[round(median(seed[2] for seed in seeds))]
    told = f"from {before} % to {after} % right in {minutes} minutes of training"
    assert len(seeds) == 3 and told in " ".join(read("README.md").replace("*", "").split())
