"""The numbers on the pages are those of the data."""

import io
import json
import re
import tarfile

import pandas as pd
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
    told = "31 % of 256 held-out questions\ncorrectly before training and 94 % after it"
    assert told in read("README.md") and (before["n"], after["n"]) == (256, 256)
    assert (round(100 * before["accuracy"]), round(100 * after["accuracy"])) == (31, 94)


def test_what_was_forgotten_is_what_the_committed_run_forgot(committed):
    """The last number of a completion counts, wherever it stands."""
    right = {}
    for name in ("baseline", "trained"):
        kept = pd.read_parquet(io.BytesIO(committed(f"evaluation/{name}-other.parquet")))
        kept = kept.set_index("question")["completions"].str[0]
        right[name] = pd.Series(
            {
                question: re.findall(r"-?\d+", text)[-1:] == [str(eval(question[8:-1]))]
                for question, text in kept.items()
            }
        )
    before, after = right["baseline"], right["trained"]
    won, lost = (~before & after).sum(), (before & ~after).sum()
    page = read("docs/results.md").replace("\n", " ")
    assert f"in {100 * after.mean():.0f} % of the {len(after)} differences" in page
    assert f"down from {100 * before.mean():.0f} % ({won} won, {lost} lost" in page
