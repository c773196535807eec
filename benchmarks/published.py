"""Results that others have published, as recipes to be held to.

    python -m benchmarks.published                            # can this card, how long, what lacks
    python -m benchmarks.published --recipe verl-gsm8k-1.5b   # trained, and written beside theirs

A file of benchmarks/published/ is a family of recipes, and the recipe `<name>-<point>` one row of a
table that somebody has published. Its `preset` and `notebooks` are those of a grid; in place of a
grid's `fixed` it has `stated`, what the source says, a comment with its place there beside each
setting, and `ours`, what the source leaves open. The names are the notebooks' parameters, and where
they have none, those of TRL's GRPOConfig: such a setting cannot be made here, and is named.
`departures` are what no setting could change. `points` are the rows of the table, each with what it
has of its own.
"""

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import yaml

from benchmarks import scaling
from helpers import PROJECT, presets
from helpers.commands import pipeline
from helpers.data.sources import read_source
from helpers.environment import Machine, mismatches, this_machine
from helpers.runs import Run, git_revision
from helpers.training import memory

FOLDER = PROJECT / "benchmarks" / "published"
RESULTS = PROJECT / "benchmarks" / "results" / "published.md"
NOT_RUN = "not run"
_HEAD = (
    "recipe",
    "theirs, %",
    "ours, %",
    "95 % interval",
    "before, %",
    "questions",
    "theirs lies",
    "on",
)


@dataclass(frozen=True)
class Recipe:
    """One published row. `published`, and `before` training, in per cent right; `stated`, `ours`:
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
    shape: memory.Shape
    data: str | None = None
    before: float | None = None

    @property
    def theirs(self) -> str:
        """Their figure, with that before training if they give it."""
        before = "" if self.before is None else f"{self.before:.1f} → "
        return f"{before}{self.published:.1f}"

    @property
    def hours(self) -> float:
        """The training on the card it is meant for, by the model of a step in `scaling`."""
        card, settings = scaling.CARDS[self.preset], self.settings
        each = scaling.step(settings, card, 1, settings.completions_per_step, self.shape)
        return settings.max_steps * each.seconds / 3600

    @property
    def parameters(self) -> dict:
        """What the notebooks are given."""
        return self._split(True) | {"preset": self.preset}

    @property
    def cannot_be_set(self) -> dict:
        """The settings of the recipe that no notebook takes."""
        return self._split(False)

    def _split(self, taken: bool) -> dict:
        known = pipeline.defaults(self.notebooks)
        return {
            name: value
            for name, value in (self.stated | self.ours).items()
            if (name in known) == taken
        }

    @property
    def machine(self) -> Machine:
        """This machine with the card that the recipe is meant for."""
        return replace(this_machine(), **self.card)

    @property
    def settings(self) -> presets.Preset:
        """Every setting as the notebooks would have it on that card.

        ValueError where they cannot go together.
        """
        overrides = {
            name: value for name, value in self.parameters.items() if name in presets.SETTINGS
        }
        return presets.resolve(self.preset, self.machine, **overrides)

    @property
    def left_to_preset(self) -> dict:
        """The settings of which the recipe says nothing."""
        settings = asdict(self.settings)
        return {
            name: settings[name] for name in presets.SETTINGS if name not in self.stated | self.ours
        }

    def with_data(self, folder: str | None) -> "Recipe":
        """The recipe on the data in this folder, `train.jsonl` and `test.jsonl` for example; None:
        where the recipe says.

        ValueError for a folder without both, or without the recipe's columns.
        """
        if folder is None:
            return self
        if not Path(folder).is_dir():
            raise ValueError(
                f"--data {folder} is no folder: give one with a train and a test file, such as "
                "train.jsonl."
            )
        source = str(Path(folder).resolve())
        rows = read_source(source, self.parameters.get("columns"), None, 1, 0)
        if {row.get("split") for row in rows if isinstance(row, dict)} != {"train", "holdout"}:
            raise ValueError(
                f"--data {folder} lacks a train or a test file: give it both, such as train.jsonl "
                "and test.jsonl."
            )
        stated = {name: value for name, value in self.stated.items() if name != "source"}
        return replace(self, stated=stated, ours=self.ours | {"source": source}, data=None)


def recipes() -> dict[str, Recipe]:
    """All recipes by name, in the order of the files."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        found |= _points(yaml.safe_load(path.read_text(encoding="utf-8")))
    return found


def _points(content: dict) -> dict[str, Recipe]:
    found = {}
    for point, own in content.pop("points").items():
        both = {key: content[key] | own.get(key, {}) for key in ("stated", "ours")}
        own = (
            own
            | both
            | {"name": f"{content['name']}-{point}", "shape": memory.Shape(*own["shape"])}
        )
        found[own["name"]] = Recipe(**content | own)
    return found


def recipe(name: str) -> Recipe:
    """The recipe of this name. ValueError names those that there are."""
    if name not in (known := recipes()):
        raise ValueError(f"there is no recipe {name!r}. Known: {', '.join(known)}.")
    return known[name]


def doctor(machine: Machine) -> list[str]:
    """What this machine can reproduce: a line each, with the hours that the training would take on
    the card it is meant for, by the estimate, and what is missing here.
    """
    absent = [name for name, _, have in mismatches(machine) if have is None]
    lines = []
    for one in recipes().values():
        missing = [f"packages: {', '.join(absent)}"] * bool(absent)
        if machine.gpu is None:
            missing.append(f"an NVIDIA GPU (meant for {one.card['gpu']})")
        else:
            try:
                presets.check_machine(one.settings, machine)
                memory.check(one.settings, machine, one.shape)
            except ValueError as error:
                missing.append(str(error))
        missing += [one.data] if one.data else []
        said = "; ".join(missing) or "nothing, this card can"
        lines.append(f"{one.name:<24}{one.theirs:>13} %  {one.hours:4.1f} hours  missing: {said}")
    return lines


def plan(chosen: Recipe) -> list[str]:
    """The resolved recipe and its flight check on the card it is meant for, as lines of text.

    ValueError where the settings cannot go together or do not fit the card.
    """
    flight = memory.check(chosen.settings, chosen.machine, chosen.shape)
    lines = [
        f"{chosen.name}: {chosen.theirs} % of {chosen.questions:,} questions right, as published",
        f"about {chosen.hours:.1f} hours of training, by the estimate",
    ]
    given = {name: f"{name}: {value}" for name, value in chosen.parameters.items()}
    blocks = {
        "settings that the source states": [
            line for name, line in given.items() if name in chosen.stated
        ],
        "settings that it leaves to us": [
            line for name, line in given.items() if name not in chosen.stated
        ],
        "stated, and cannot be set here": [
            f"{name}: {value}" for name, value in chosen.cannot_be_set.items()
        ],
        f"left to the preset {chosen.preset}": [
            f"{name}: {value}" for name, value in chosen.left_to_preset.items()
        ],
        "departures from the source": chosen.departures,
        "data, to be named with --data": [chosen.data] if chosen.data else [],
    }
    for title, entries in blocks.items():
        lines += ["", f"{title}{'' if entries else ': none'}", *(f"  {entry}" for entry in entries)]
    return [*lines, "", f"flight check on one {chosen.card['gpu']}", *flight]


def run(chosen: Recipe) -> Run:
    """The run of the recipe through the notebooks, finished. One that was interrupted goes on.

    ValueError without a GPU, without the data, and for all that `pipeline.execute` refuses.
    """
    machine = this_machine()
    if machine.gpu is None:
        raise ValueError(
            f"the recipe {chosen.name} needs an NVIDIA GPU with {chosen.card['gpu_memory_gb']} GB "
            "and none is visible; "
            "--dry-run checks the recipe without one."
        )
    if chosen.data:
        raise ValueError(f"the recipe {chosen.name} needs --data with {chosen.data}.")
    folder = Run(f"published-{chosen.name}")
    code = (
        pipeline.resume(folder.name)
        if pipeline.is_last_call(folder.name, chosen.notebooks, chosen.parameters)
        else pipeline.execute(folder.name, chosen.notebooks, chosen.parameters)
    )
    if code:
        raise ValueError(f"the recipe {chosen.name} failed; see {folder.show('notebooks')}.")
    return folder


def verdict(theirs: float, low: float, high: float) -> str:
    """Where their share lies: `within` our interval, `above` or `below` it."""
    return "below" if theirs < low else "above" if theirs > high else "within"


def row(chosen: Recipe, evaluation: dict, on: str) -> dict[str, str]:
    """The row of the table, by _HEAD: evaluation.json of the recipe's run beside what is published.

    Ours is the greedy accuracy of the trained policy, with its 95 % Wilson interval; `before` that
    of the untrained one. ValueError where the run was evaluated on another number of questions than
    the recipe's.
    """
    before, after = (evaluation[name]["greedy"] for name in ("baseline", "trained"))
    if after["n"] != chosen.questions:
        raise ValueError(
            f"{chosen.name}: {after['n']} questions were evaluated, and the recipe has "
            f"{chosen.questions:,}."
        )
    low, high = after["ci95"]
    cells = [
        chosen.name,
        chosen.theirs,
        f"{after['accuracy']:.1%}",
        f"{low:.1%} to {high:.1%}",
    ]
    cells += [
        f"{before['accuracy']:.1%}",
        f"{after['n']:,}",
        verdict(chosen.published / 100, low, high),
        on,
    ]
    return dict(zip(_HEAD, (cell.replace("%", "") for cell in cells), strict=True))


def page(done: dict[str, dict]) -> str:
    """The page of results: a row a recipe. done: the rows, by name, of those that have been run."""
    rows = [
        done.get(name)
        or dict.fromkeys(_HEAD, "") | {"recipe": name, "theirs, %": one.theirs, "ours, %": NOT_RUN}
        for name, one in recipes().items()
    ]
    reproduced = [name for name, one in done.items() if one["theirs lies"] == "within"]
    said = (
        f"Reproduced, that is, theirs lies within our interval: {', '.join(reproduced) or 'none'}."
        if done
        else ""
    )
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(one.values()) for one in rows)]
    return f"""# Published results, and ours

`python -m benchmarks.published` says for each recipe whether this card can, how long it would take by the estimate, and what is
missing; with `--recipe NAME` it runs one on a GPU and fills in its row, and with `--dry-run` it says what it would run and how that
departs from the source. The sources are named in benchmarks/published/*.yaml. Ours is the greedy accuracy of the trained policy
with a 95 % Wilson interval, which covers the choice of questions and not that of the seed: one training each.

{said or "No row has been reproduced, because none has been run yet."}

""" + "\n".join([*lines, ""])


def read_page(text: str) -> dict[str, dict]:
    """The rows of a page that have been run, by name."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    rows = [dict(zip(_HEAD, one, strict=True)) for one in cells[2:]]
    return {one["recipe"]: one for one in rows if one["ours, %"] != NOT_RUN}


def _line(cells) -> str:
    return f"| {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> None:
    """Run one recipe, print ours beside theirs, and write the row into
    benchmarks/results/published.md.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--recipe", help="for example verl-gsm8k-1.5b; without: what can be run here"
    )
    parser.add_argument(
        "--data", help="a folder with a train and a test file, in place of the recipe's own source"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check and print the resolved recipe, and run nothing",
    )
    args = parser.parse_args(argv)
    if args.recipe is None:
        print("\n".join(doctor(this_machine())))
        return
    try:
        chosen = recipe(args.recipe).with_data(args.data)
        print("\n".join(plan(chosen)))
        if args.dry_run:
            return
        finished = run(chosen)
        revision = git_revision().get("revision", "unknown")[:9]
        found = row(chosen, finished.evaluation, f"{this_machine().gpu}, revision {revision}")
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f"error: {error}") from None
    print("", *(f"{name:<16}{cell}" for name, cell in found.items()), sep="\n")
    RESULTS.write_text(
        page(read_page(RESULTS.read_text(encoding="utf-8")) | {chosen.name: found}),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
