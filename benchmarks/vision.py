"""Run notebook 11 with several seeds: `python -m benchmarks.vision --seeds 1 2 3`.

Writes benchmarks/results/vision.md. Ends with 1 if, for any seed, the sighted policy is over 45%
before or under 80% after, if the blind one is more than 5 points over its floor, or if swapping
the pictures leaves more than 6 points more or less than the rows whose pictures have the same
answer.
"""

from benchmarks.seeds import machine, run_anew, seeds_of_command
from helpers import PROJECT
from helpers.results.looking import CONDITIONS, blind_floor

RESULTS = PROJECT / "benchmarks" / "results" / "vision.md"


def failures(evaluation: dict, floor: float) -> list[str]:
    """What the evaluation of one run does not hold, each in a phrase; none if all is well."""
    before, after = evaluation["baseline"], evaluation["trained"]
    blind, swapped = after["blind"]["accuracy"], after["swapped"]["accuracy"]
    checks = {
        f"{before['accuracy']:.1%} correct before, over 45%": before["accuracy"] > 0.45,
        f"{after['accuracy']:.1%} correct after, under 80%": after["accuracy"] < 0.8,
        f"{blind:.1%} correct blind, the floor is {floor:.1%}": blind > floor + 0.05,
        f"{swapped:.1%} correct swapped, {after['same_answer']:.1%} have the same answer": abs(
            swapped - after["same_answer"]
        )
        > 0.06,
    }
    return [phrase for phrase, fails in checks.items() if fails]


def measured(seed: int) -> tuple[list[str], list[str]]:
    """Run notebook 11 with one seed; its rows of the table, one a model, and what fails."""
    run = run_anew(f"vision-seed-{seed}", "11", [f"seed={seed}", "shortcut_steps=0"])
    floor = blind_floor(run.table("data/train.parquet"), run.table("data/holdout.parquet"))
    lines = []
    for name, entry in run.evaluation.items():
        cells = [str(seed), name]
        for way in CONDITIONS:
            found = entry.get(way, entry)
            low, high = found["ci95"]
            cells.append(f"{found['accuracy']:.1%} ({100 * low:.1f} to {100 * high:.1f})")
        cells += [f"{floor:.1%}", f"{entry['same_answer']:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines, [f"seed {seed}: {failure}" for failure in failures(run.evaluation, floor)]


def main() -> None:
    """Run every seed, write the table, and end with 1 if one fails."""
    seeds = seeds_of_command(__doc__.splitlines()[0], default=[1, 2, 3])
    lines = []
    failed = []
    for seed in seeds:
        seed_lines, seed_failed = measured(seed)
        lines += seed_lines
        failed += seed_failed
    text = f"""# Notebook 11 with {len(seeds)} seeds

`python -m benchmarks.vision --seeds {" ".join(map(str, seeds))}` on {machine()}.
One question about each of 256 held-out images is answered at temperature 1; accuracies have 95% Wilson intervals. *Blind* replaces each image with a grey
one. *Swapped* uses the image of another row with the same question.

| seed | model | sighted | blind | swapped | blind floor | swapped image has the same answer |
|---|---|---|---|---|---|---|
""" + "\n".join([*lines, "", *(failed or ["Every seed passes the script's checks."])])
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
