"""The numbers on the pages are those of the data."""

import json
import re
import tarfile
from statistics import mean

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
    told = f"| {100 * before['accuracy']:.1f} → {100 * after['accuracy']:.1f}% of {before['n']} |"
    assert told in read("README.md") and before["n"] == after["n"]


def test_the_figure_of_the_readme_is_that_of_the_committed_run(committed):
    shown = (PROJECT / "benchmarks" / "results" / "reasoning.png").read_bytes()
    assert shown == committed("figures/reasoning.png")


def test_the_answers_that_the_readme_shows_are_in_notebook_5():
    block = re.search(r"```text\nWhat is .*?```", read("README.md"), re.DOTALL)[0]
    _, before, after = block.splitlines()[1:4]
    outputs = read("notebooks/05_merge_and_inference.ipynb")
    for line in (before, after):
        assert line.split(maxsplit=1)[1] in outputs


def test_the_headline_of_the_readme_is_in_the_table_of_smollm2():
    """Its shares are those of all seeds together; its minutes are those of the fastest and of the
    slowest seed.
    """
    row = re.compile(
        r"^\| true rewards \| \d \| 40 \| 128 \| ([\d.]+)% .*?→ ([\d.]+)% .*?\| ([\d.]+)% .*?→ ([\d.]+)% .*?"
        r"\| ([\d.]+)% → ([\d.]+)% \| ([\d.]+) \+ [\d.]+ \|",
        re.MULTILINE,
    )
    seeds = [
        list(map(float, found)) for found in row.findall(read("benchmarks/results/smollm2.md"))
    ]
    *shares, _ = (round(mean(column)) for column in zip(*seeds, strict=True))
    times = sorted(seed[-1] for seed in seeds)
    words = {5: "five", 6: "six", 7: "seven", 10: "ten", 11: "eleven", 12: "twelve"}
    page = " ".join(read("README.md").replace("*", "").split())
    told = (
        f"On held-out sums, {words[round(times[0])]} to {words[round(times[-1])]} minutes of GRPO on two CPU "
        "cores raised the sampled accuracy of SmolLM2-135M-Instruct, a real language model, from "
        f"{shares[0]}% to {shares[1]}%"
    )
    assert len(seeds) == 3 and told in page
    (greedy,) = re.findall(r"^\| greedy \| ([\d.]+)%.* \| ([\d.]+)%", read("docs/results.md"), re.M)
    assert [round(float(share)) for share in greedy] == shares[2:4]
    assert shares[3] - shares[2] < shares[1] - shares[0] and "greedy accuracy" in page


def test_the_readme_says_what_the_controls_gained():
    gains = {
        name: (
            round(float(gain)),
            interval and [round(float(end)) for end in interval.split(" to ")],
        )
        for name, gain, interval in re.findall(
            r"^- ([a-z ]+): ([+-][\d.]+)(?: \((.*)\))?",
            read("benchmarks/results/smollm2.md"),
            re.MULTILINE,
        )
    }
    assert gains["random"][0] < 0 and gains["shuffled"][0] < 0
    gain, (low, high) = gains["format"]
    page = " ".join(read("README.md").split())
    assert (
        "Random or shuffled rewards brought no gain; rewarding only the format brought "
        f"{gain} points (95% interval: {low} to {high})".replace("-", "−")
    ) in page
