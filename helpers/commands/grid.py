"""The grid of a sweep: a YAML file read, checked and turned into points. `sweep.py` runs them.

    name: knobs                 # the runs are called <name>-<point>-seed-<seed>
    preset: pocket              # optional, like `run --preset`
    notebooks: [01, 03]         # optional; 05 adds the accuracies
    seeds: [1, 2, 3]
    fixed: {max_steps: 25}      # optional: parameters of every run
    one_at_a_time:              # each knob alone, around what is fixed; the base point is run once,
      and shared learning_rate: [3.0e-4, 1.0e-3] num_generations: [4, 8, 16]

or, in place of `one_at_a_time`, `product: {beta: [0, 0.02], lora_rank: [8, 16]}`, every
combination.

A grid is plain YAML: of aliases, tags and deep nesting, which a few lines could unfold to fill the
memory, it needs none.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from helpers import presets
from helpers.commands import arguments, pipeline
from helpers.data.files import regular_file
from helpers.environment import this_machine
from helpers.runs import Run, check_seed

_KEYS = ("name", "preset", "notebooks", "seeds", "fixed", "one_at_a_time", "product")
# parameters that have a key of their own
_ELSEWHERE = {"run": "name", "seed": "seeds", "preset": "preset"}
_LONGEST_NAME = 32  # of a sweep: its runs' names, of 64 characters, hold point and seed too
_MOST_RUNS = 10_000  # without --yes
_LARGEST_FILE = 2**20  # bytes; the grids here have less than a thousandth of that
_DEEPEST = 8  # levels: a value that is a mapping within a list within a knob is at 5
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


@dataclass(frozen=True)
class Point:
    """One setting of the knobs.

    `given`: the parameters that its runs get beside what is fixed; `knobs`: the value that each
    knob of the sweep has here, given or not ("none" for None).
    """

    name: str
    given: dict
    knobs: dict


@dataclass(frozen=True)
class Grid:
    """A checked grid: every point can run on this machine."""

    name: str
    notebooks: list[str]
    seeds: list[int]
    fixed: dict  # with the preset
    points: list[Point]
    needs_gpu: bool

    @property
    def knobs(self) -> list[str]:
        """The names of what varies, in the order of the file."""
        return list(self.points[0].knobs)

    def parameters(self, point: Point, seed: int) -> dict:
        """What a run is given."""
        return self.fixed | point.given | {"seed": seed}

    @property
    def tasks(self) -> list[tuple[Point, int]]:
        """Every point with every seed: a run each."""
        return [(point, seed) for point in self.points for seed in self.seeds]

    def command(self, point: Point, seed: int) -> list[str]:
        """What makes a run, after `python -m helpers`; given again, it goes on with what was
        interrupted, or does nothing.
        """
        given = [
            part
            for key, value in self.parameters(point, seed).items()
            for part in ("-p", f"{key}={json.dumps(value)}")
        ]
        name = self.run_name(point, seed)
        return [
            "run",
            "--once",
            "--fresh",
            "--run",
            name,
            "--only",
            ",".join(self.notebooks),
            *given,
        ]

    def run_name(self, point: Point, seed: int) -> str:
        """`<name>-<point>-seed-<seed>`; a point's name that does not fit, or is no part of a run
        name, ends in a hash.
        """
        return _run_name(self.name, point.name, seed)


def read_grid(path: Path, many: bool = False, elsewhere: bool = False) -> Grid:
    """Read a grid and check all that can be checked before anything runs: its keys, its parameters,
    and every point's settings.

    Numbers such as 1e-3, which YAML 1.1 reads as text, are taken as the numbers they are.
    many: take a grid of more than 10,000 runs, too; otherwise it is refused as a slip.
    elsewhere: it may run on other machines, so this one need not be able to. FileNotFoundError
    without the file; ValueError, beginning with the file's name, for everything else.
    """
    try:
        regular_file(path)
    except ValueError as error:
        raise FileNotFoundError(
            f"there is no grid file: {error} The top of helpers/commands/grid.py shows what one "
            "looks like."
        ) from None
    try:
        return _grid(_content(path), many, elsewhere)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


# --- YAML -----------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which names the line of a value that its type cannot hold, such as the
    date 2024-13-45.
    """

    def construct_object(self, node, deep=False):
        """See PyYAML; errors of other kinds than its own become ValueErrors."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            if not isinstance(node, yaml.ScalarNode):
                raise
            raise ValueError(
                f"line {node.start_mark.line + 1}: {node.value[:40]!r} cannot be read ({error})."
            ) from None


def _content(path: Path) -> object:
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError(
            f"the file has {path.stat().st_size:,} bytes; a grid has at most {_LARGEST_FILE:,}."
        )
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_more_than_values(text)
        _refuse_repeated_keys(yaml.compose(text, _Loader))
        return yaml.load(text, _Loader)
    except UnicodeDecodeError:
        raise ValueError("this is not text in UTF-8.") from None
    except OSError as error:
        raise ValueError(f"the file cannot be read ({error.strerror}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(
            f"{line}this is not YAML: "
            f"{getattr(error, 'problem', None) or str(error).splitlines()[0]}."
        ) from None


def _refuse_more_than_values(text: str) -> None:
    """ValueError for aliases, tags and deep nesting, before anything is built of the text: events
    come as it is read.
    """
    depth = 0
    for event in yaml.parse(text, _Loader):
        line, why = event.start_mark.line + 1, None
        if isinstance(event, yaml.AliasEvent):
            why = f"the alias *{event.anchor} is not taken here: write the values out."
        elif getattr(event, "tag", None) not in (None, "!"):
            why = (
                f"the tag {event.tag} is not taken here: write the value alone; text goes in "
                "quotes."
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > _DEEPEST:
            why = (
                f"more than {_DEEPEST} levels of lists and mappings within one another; a grid "
                "needs three or four."
            )
        if why:
            raise ValueError(f"line {line}: {why}")


def _refuse_repeated_keys(node: yaml.Node | None) -> None:
    """safe_load would keep the last of them and say nothing."""
    children = node.value if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, _ in children:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice.")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        children = [child for pair in children for child in pair]
    for child in children:
        _refuse_repeated_keys(child)


def _number(value: object) -> object:
    """Text such as 1e-3 as the number it is."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _from_here(parameters: dict) -> dict:
    """Parameters with the paths of files made to hold from anywhere, as `run -p` takes them."""
    return {
        name: arguments.absolute(value) if isinstance(value, str) else value
        for name, value in parameters.items()
    }


# --- Checks ---------------------------------------------------------------------------------------


def _grid(content: object, many: bool, elsewhere: bool) -> Grid:
    if not isinstance(content, dict):
        raise ValueError(
            f"a grid is a mapping with the keys {', '.join(_KEYS)}; this is {_kind(content)}."
        )
    for key in content:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no key {key!r}.{hint} Known: {', '.join(_KEYS)}.")
    name = _name(content.get("name"))
    notebooks, seeds = _notebooks(content.get("notebooks", [1, 3])), _seeds(content.get("seeds"))
    fixed = _fixed(content)
    axes = _axes(content, fixed)
    _refuse_many(axes, "product" in content, len(seeds), many)
    if "product" in content:
        given = [
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        ]
    else:
        given = [{}] + [{knob: value} for knob, values in axes.items() for value in values]
    points, preset = _points(given, list(axes), fixed, notebooks, elsewhere)
    grid = Grid(name, notebooks, seeds, fixed, points, needs_gpu=preset.needs_gb > 0)
    runs = {Run(grid.run_name(point, seeds[0])).name for point in points}
    if len(runs) < len(points):
        raise ValueError(
            "two points would have the same run name: give a value as a number or as text, not as "
            "both."
        )
    return grid


def _refuse_many(axes: dict[str, list], product: bool, seeds: int, many: bool) -> None:
    sizes = [len(values) for values in axes.values()]
    runs = seeds * (math.prod(sizes) if product else 1 + sum(sizes))
    if runs > _MOST_RUNS and not many:
        counted = " x ".join(map(str, sizes)) if product else f"{sum(sizes):,} values"
        raise ValueError(
            f"{counted} and {seeds} seed{'s' * (seeds > 1)} make {runs:,} runs, more than "
            f"{_MOST_RUNS:,}. Vary less, or say "
            "--yes if that many are meant."
        )


def _name(name: object) -> str:
    if name is None:
        raise ValueError("`name:` is missing: the runs are called <name>-<point>-seed-<seed>.")
    Run(name)
    if len(name) > _LONGEST_NAME:
        raise ValueError(
            f"name: {name!r} has {len(name)} characters; {_LONGEST_NAME} leave room for point and "
            "seed."
        )
    return name


def _notebooks(numbers: object) -> list[str]:
    """Two digits each, in order. YAML reads 01 as the integer 1, and 08 as text."""
    wrong = not isinstance(numbers, list) or any(
        isinstance(n, bool) or not isinstance(n, int | str) for n in numbers
    )
    if wrong:
        raise ValueError(
            f"notebooks: {numbers!r} is not a list of their numbers, such as [01, 03, 05]."
        )
    chosen = sorted({str(number).zfill(2) for number in numbers})
    if not {"01", "03"} <= set(chosen):
        raise ValueError(
            f"notebooks: {', '.join(chosen) or 'none'}: a sweep trains each run anew, which takes "
            "01 and 03."
        )
    pipeline.defaults(chosen)  # names what is not there
    return chosen


def _seeds(seeds: object) -> list[int]:
    if not isinstance(seeds, list) or not seeds:
        raise ValueError(
            f"seeds: {'missing' if seeds is None else repr(seeds)}: give a list, such as [1, 2, 3]."
        )
    for seed in seeds:
        check_seed(seed)
    if len(set(seeds)) < len(seeds):
        raise ValueError(
            f"seeds: {max(seeds, key=seeds.count)} is there twice; the same run again tells "
            "nothing."
        )
    return seeds


def _fixed(content: dict) -> dict:
    fixed = content.get("fixed") or {}
    if not isinstance(fixed, dict):
        raise ValueError(
            f"fixed: give parameters and their values, such as {{max_steps: 25}}; this is "
            f"{_kind(fixed)}."
        )
    _refuse_names(fixed, "fixed")
    for name, value in fixed.items():
        _refuse_value(name, value)
    fixed, preset = (
        _from_here({name: _number(value) for name, value in fixed.items()}),
        content.get("preset"),
    )
    if preset is None:
        return fixed
    presets.resolve(str(preset), this_machine())  # names what is not known
    return fixed | {"preset": str(preset)}


def _axes(content: dict, fixed: dict) -> dict[str, list]:
    """The knobs and their values."""
    kinds = [kind for kind in ("one_at_a_time", "product") if kind in content]
    if len(kinds) != 1:
        raise ValueError(
            "give the knobs under one_at_a_time (each alone) or product (every combination): one "
            "of the two."
        )
    axes = content[kinds[0]]
    if not isinstance(axes, dict) or not axes:
        raise ValueError(
            f"{kinds[0]}: give knobs, each with its values, such as {{beta: [0, 0.02]}}; this is "
            f"{_kind(axes)}."
        )
    _refuse_names(axes, kinds[0])
    for knob, values in axes.items():
        if not isinstance(values, list) or not values:
            what = "it has none" if values in (None, []) else f"this is {_kind(values)}"
            raise ValueError(f"{knob}: give a list of the values to try, such as [1, 2]; {what}.")
        if knob in fixed:
            raise ValueError(f"{knob} is both fixed and varied: take it out of one of the two.")
        for value in values:
            _refuse_value(knob, value)
    return {knob: [_number(value) for value in values] for knob, values in axes.items()}


def _refuse_names(names: dict, where: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise ValueError(
                f"{where}: {name!r} is not the name of a parameter; if it is meant as text, put "
                "it in quotes."
            )
        if name in _ELSEWHERE:
            raise ValueError(
                f"{where}: {name} has a place of its own, `{_ELSEWHERE[name]}:`, beside {where}."
            )


def _refuse_value(name: str, value: object) -> None:
    try:
        json.dumps(value)
    except TypeError:
        raise ValueError(
            f"{name}: {value} is {_kind(value)} to YAML; if it is meant as text, put it in quotes."
        ) from None


def _kind(value: object) -> str:
    names = {
        "NoneType": "empty",
        "list": "a list",
        "dict": "a mapping",
        "str": f"the text {value!r}",
        "date": "a date",
    }
    return names.get(type(value).__name__, repr(value))


# --- Points ---------------------------------------------------------------------------------------


def _points(
    given: list[dict], knobs: list[str], fixed: dict, notebooks: list[str], elsewhere: bool
) -> tuple[list[Point], presets.Preset]:
    """The points, each checked, and the settings of the first.

    Where that is given no knob, it is the base point, and a value of a knob that it already has is
    that point, not another.
    """
    usual = pipeline.defaults(notebooks)
    points, seen, base, first, checked = [], {}, None, None, []
    for chosen in given:
        label = ", ".join(f"{knob}={value}" for knob, value in chosen.items()) or "the base point"
        try:
            parameters = fixed | _from_here(chosen)
            pipeline.check("sweep", notebooks, parameters, elsewhere)
            others = {
                name: value
                for name, value in parameters.items()
                if name == "source" or name not in presets.SETTINGS
            }
            if others not in checked:  # the same file need not be looked at for every point
                pipeline.check_parameters(others)
                checked.append(others)
            settings, resolved = _resolved(parameters, usual)
        except ValueError as error:
            raise ValueError(f"point {label}: {error}" if chosen else str(error)) from None
        identity = _identity(resolved)
        if not chosen:
            base = identity
        shared = bool(chosen) and identity == base
        key = (identity, *chosen) if shared else identity  # each knob may name the base once
        if key in seen:
            raise ValueError(
                f"point {label} is the same as {seen[key]}: a value is given twice, or is the "
                "preset's own."
            )
        seen[key] = label
        if not shared:
            # A knob that is no parameter is refused by the first point that gives it; the base does
            # not.
            values = {
                knob: resolved.get(knob) if chosen.get(knob) is None else chosen[knob]
                for knob in knobs
            }
            points.append(
                Point(
                    _slug(chosen),
                    _from_here(chosen),
                    {knob: _plain(value) for knob, value in values.items()},
                )
            )
            first = first or settings
    return points, first


def _identity(resolved: dict) -> str:
    """Settings as text, by which two points are one: 0 and 0.0 are the same value, 1 and
    True are not.
    """
    return json.dumps(
        {name: float(value) if type(value) is int else value for name, value in resolved.items()},
        sort_keys=True,
    )


def _resolved(parameters: dict, usual: dict) -> tuple[presets.Preset, dict]:
    """Every parameter as the notebooks will have it; two points that agree in all of them
    are one.
    """
    overrides = {name: value for name, value in parameters.items() if name in presets.SETTINGS}
    settings = presets.resolve(parameters.get("preset", "auto"), this_machine(), **overrides)
    return settings, usual | parameters | {
        name: getattr(settings, name) for name in presets.SETTINGS
    }


def _plain(value: object) -> object:
    """A value as a cell of a table."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | dict) else value


def _slug(given: dict) -> str:
    """What a point is called: `base`, or its knobs and their values, readable; not always fit for a
    run name.
    """
    return "-".join(f"{knob}-{_plain(value)}" for knob, value in given.items()) or "base"


def _run_name(sweep: str, point: str, seed: int) -> str:
    whole = f"{sweep}-{point}-seed-{seed}"
    if len(whole) <= 64 and re.fullmatch(r"[A-Za-z0-9._-]+", point) and ".." not in point:
        return whole
    end = f"-{hashlib.sha256(point.encode()).hexdigest()[:8]}-seed-{seed}"
    start = f"{sweep}-{re.sub('[^A-Za-z0-9_]+', '-', point)}"
    return start[: 64 - len(end)].rstrip("-") + end
