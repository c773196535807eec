"""Results that others have published, as recipes to be held to.

    python -m benchmarks.published                            # the recipes, and what each needs
    python -m benchmarks.published --recipe verl-gsm8k-1.5b   # trained, and printed beside theirs

A file of benchmarks/published/ is a family of recipes, and the recipe `<name>-<point>` one row of a
table that somebody has published. Its `preset` and `notebooks` are those of a grid; in place of a
grid's `fixed` it has `stated`, what the source says, a comment with its place there beside each
setting, and `ours`, what the source leaves open. The names are the notebooks' parameters, and where
they have none, those of TRL's GRPOConfig: such a setting cannot be made here, and is named.
`departures` are what no setting could change. `points` are the rows of the table, each with what it
has of its own.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from helpers import PROJECT
from helpers.commands.notebooks import defaults
from helpers.commands.run import execute
from helpers.environment import Machine, this_machine
from helpers.families import dense
from helpers.runs import Run
from helpers.settings import SETTINGS, Preset
from helpers.settling import settle
from helpers.training import memory

FOLDER = PROJECT / "benchmarks" / "published"


@dataclass(frozen=True)
class Recipe:
    """One published row. `published`, and `before` training, in per cent correct; `stated`, `ours`:
    settings by name; `data`: what --data must hold.
    """

    name: str
    preset: str
    notebooks: list[str]
    questions: int
    card: dict
    stated: dict
    ours: dict
    departures: list[str]
    published: float
    config: dict
    data: str | None = None
    before: float | None = None

    @property
    def parameters(self) -> dict:
        """What the notebooks are given: all that they take."""
        known = defaults(self.notebooks)
        given = {name: value for name, value in (self.stated | self.ours).items() if name in known}
        return given | {"preset": self.preset}

    @property
    def machine(self) -> Machine:
        """This machine with the card that the recipe is meant for."""
        return replace(this_machine(), **self.card)

    @property
    def settings(self) -> Preset:
        """Every setting as the notebooks would have it on that card.

        Raise ValueError if they cannot go together.
        """
        given = self.parameters
        overrides = {name: given[name] for name in given if name in SETTINGS}
        return settle(self.preset, **overrides)

    def with_data(self, folder: str) -> "Recipe":
        """Return the recipe on the data in this folder. Raise ValueError if it has no train or no
        test file, such as train.jsonl and test.jsonl.
        """
        if not all(list(Path(folder).glob(f"{part}.*")) for part in ("train", "test")):
            raise ValueError(f"--data {folder}: give a folder with a train and a test file.")
        stated = {name: value for name, value in self.stated.items() if name != "source"}
        source = str(Path(folder).resolve())
        return replace(self, stated=stated, ours=self.ours | {"source": source}, data=None)


def recipes() -> dict[str, Recipe]:
    """Return all recipes by name, in the order of the files."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        family = yaml.safe_load(path.read_text(encoding="utf-8"))
        for point, own in family.pop("points").items():
            one = family | own | {"name": f"{family['name']}-{point}"}
            for part in ("stated", "ours"):
                one[part] = family[part] | own.get(part, {})
            one["config"] = dense(*one.pop("shape"))
            found[one["name"]] = Recipe(**one)
    return found


def plan(chosen: Recipe) -> list[str]:
    """Return the recipe, and the estimate of its memory on the card it is meant for, as lines.

    Raise ValueError if its settings cannot go together or do not fit the card.
    """
    estimate = memory.check(chosen.settings, chosen.machine, chosen.config)
    given = chosen.parameters
    blocks = {
        "settings that the source states": {n: v for n, v in chosen.stated.items() if n in given},
        "settings that it leaves to us": chosen.ours,
        "stated, and cannot be set here": {
            name: value for name, value in chosen.stated.items() if name not in given
        },
    }
    lines = [f"{chosen.name}: {chosen.published}% of {chosen.questions:,} questions correct"]
    for title, values in blocks.items():
        lines += ["", title, *(f"  {name}: {value}" for name, value in values.items())]
    lines += ["", "departures from the source", *(f"  {text}" for text in chosen.departures)]
    return [*lines, "", f"memory on one {chosen.card['gpu']}", *estimate]


def row(chosen: Recipe, evaluation: dict, card: str) -> str:
    """Return the row of benchmarks/results/published.md: theirs beside the greedy accuracy of the
    trained policy, with its 95% Wilson interval, and of the base model.

    evaluation: of the recipe's run; card: what it ran on. Raise ValueError if it has another number of questions than the
    recipe.
    """
    before, after = (evaluation[name]["greedy"] for name in ("baseline", "trained"))
    if after["n"] != chosen.questions:
        raise ValueError(
            f"{after['n']} questions were evaluated, and {chosen.name} has {chosen.questions:,}."
        )
    low, high = (100 * end for end in after["ci95"])
    where = "within"
    if not low <= chosen.published <= high:
        where = "below" if chosen.published < low else "above"
    ours = f"{after['accuracy']:.1%} | {low:.1f} to {high:.1f} | {before['accuracy']:.1%}"
    theirs = f"{chosen.published:.1f}"
    if chosen.before is not None:
        theirs = f"{chosen.before:.1f} → {theirs}"
    cells = (
        f"{chosen.name} | {theirs} | {ours.replace('%', '')} | {after['n']:,} | {where} | {card}"
    )
    return f"| {cells} |"


def main() -> None:
    """Train one recipe and print ours beside theirs; without one, list them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", choices=list(recipes()))
    parser.add_argument("--data", help="a folder with a train and a test file, as the source")
    parser.add_argument("--dry-run", action="store_true", help="print the recipe, run nothing")
    args = parser.parse_args()
    if args.recipe is None:
        for one in recipes().values():
            needs = f"needs one {one.card['gpu']}" + (f" and {one.data}" if one.data else "")
            print(f"{one.name:<24}{one.published:5.1f}%  {needs}")
        return
    chosen = recipes()[args.recipe]
    if args.data:
        chosen = chosen.with_data(args.data)
    print("\n".join(plan(chosen)))
    if args.dry_run:
        return
    if chosen.data:
        raise SystemExit(f"error: {chosen.name} needs --data with {chosen.data}")
    finished = Run(f"published-{chosen.name}")
    if execute(finished.name, chosen.notebooks, chosen.parameters):
        raise SystemExit(f"error: {chosen.name} failed; see {finished.show('notebooks')}")
    print("", row(chosen, finished.evaluation, this_machine().gpu), sep="\n")


if __name__ == "__main__":
    main()
