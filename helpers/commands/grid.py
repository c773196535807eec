"""The grid of a sweep: a YAML file read, checked and turned into points. `sweep.py` runs them.

    name: knobs                 # the runs are called <name>-<point>-seed-<seed>
    preset: pocket              # optional, like `run --preset`
    notebooks: [01, 03]         # optional; 05 adds the accuracies
    seeds: [1, 2, 3]
    fixed: {max_steps: 25}      # optional: parameters of every run
    one_at_a_time:              # each knob alone; all share the base point, which is run once
      learning_rate: [3.0e-4, 1.0e-3]
      num_generations: [4, 8, 16]

or, in place of `one_at_a_time`, `product: {beta: [0, 0.02], lora_rank: [8, 16]}`, every
combination.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, Field, JsonValue, ValidationError

from helpers import presets
from helpers.commands import arguments, pipeline
from helpers.environment import this_machine
from helpers.runs import Run, check_seed

Values = Annotated[list[JsonValue], Field(min_length=1)]
Knobs = Annotated[dict[str, Values], Field(min_length=1)]
_ELSEWHERE = {"run": "name", "seed": "seeds", "preset": "preset"}  # parameters with their own keys
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


class GridFile(BaseModel, extra="forbid"):
    """What a grid file may say."""

    name: str = Field(max_length=32)  # a run's name, of 64 characters, holds point and seed too
    preset: str | None = None
    notebooks: list[int] = [1, 3]  # YAML reads 01 as an integer and 08 as text; pydantic takes both
    seeds: list[int] = Field(min_length=1)
    fixed: dict[str, JsonValue] = {}
    one_at_a_time: Knobs | None = None
    product: Knobs | None = None


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

    @property
    def tasks(self) -> list[tuple[Point, int]]:
        """Every point with every seed: a run each."""
        return [(point, seed) for point in self.points for seed in self.seeds]

    def parameters(self, point: Point, seed: int) -> dict:
        """What a run is given."""
        return self.fixed | point.given | {"seed": seed}

    def command(self, point: Point, seed: int) -> list[str]:
        """What makes a run, after `python -m helpers`; given again, it goes on with what was
        interrupted, or does nothing.
        """
        name, only = self.run_name(point, seed), ",".join(self.notebooks)
        command = ["run", "--once", "--fresh", "--run", name, "--only", only]
        for key, value in self.parameters(point, seed).items():
            command += ["-p", f"{key}={json.dumps(value)}"]
        return command

    def run_name(self, point: Point, seed: int) -> str:
        """`<name>-<point>-seed-<seed>`; a point's name that does not fit, or is no part of a run
        name, ends in a hash.
        """
        whole = f"{self.name}-{point.name}-seed-{seed}"
        if len(whole) <= 64 and re.fullmatch(r"[A-Za-z0-9._-]+", whole) and ".." not in whole:
            return whole
        end = f"-{hashlib.sha256(point.name.encode()).hexdigest()[:8]}-seed-{seed}"
        start = f"{self.name}-{re.sub('[^A-Za-z0-9_]+', '-', point.name)}"
        return start[: 64 - len(end)].rstrip("-") + end


def read_grid(path: Path, elsewhere: bool = False) -> Grid:
    """Read a grid and check all that can be checked before anything runs: its keys, its parameters,
    and every point's settings.

    elsewhere: it may run on other machines, so this one need not be able to. ValueError, beginning
    with the file's name, for everything that is wrong with its content.
    """
    try:
        file = GridFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        return _checked(file, elsewhere)
    except ValidationError as error:
        said = "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
        known = ", ".join(GridFile.model_fields)
        raise ValueError(f"{path.name}: {said}. A grid has the keys {known}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def _checked(file: GridFile, elsewhere: bool) -> Grid:
    Run(file.name)  # refuses what cannot begin a run's name
    for seed in file.seeds:
        check_seed(seed)
    notebooks = [f"{number:02}" for number in sorted(set(file.notebooks))]
    if not {"01", "03"} <= set(notebooks):
        raise ValueError(
            f"notebooks: {', '.join(notebooks)}: a sweep trains each run anew, which takes 01 and "
            "03."
        )
    if (file.one_at_a_time is None) == (file.product is None):
        raise ValueError(
            "give the knobs under one_at_a_time (each alone) or product (every combination): one "
            "of the two."
        )
    knobs = file.one_at_a_time or file.product
    for name, key in _ELSEWHERE.items():
        if name in knobs or name in file.fixed:
            raise ValueError(f"{name} has a place of its own, `{key}:`.")
    fixed = _from_here({name: _number(value) for name, value in file.fixed.items()})
    if file.preset is not None:
        fixed["preset"] = file.preset
    axes = {knob: [_number(value) for value in values] for knob, values in knobs.items()}
    preset = presets.resolve(fixed.get("preset", "auto"), this_machine())
    base = pipeline.defaults(notebooks) | presets.as_settings(preset)
    base |= {name: value for name, value in fixed.items() if value is not None}
    if file.product:
        combinations = itertools.product(*axes.values())
        choices = [dict(zip(axes, values, strict=True)) for values in combinations]
    else:  # a value that the base point has already is no other point
        choices = [{}] + [
            {knob: value}
            for knob, values in axes.items()
            for value in values
            if value not in (None, base.get(knob))
        ]
    points = [_point(chosen, list(axes), base) for chosen in choices]
    for point in points:
        try:
            pipeline.check("sweep", notebooks, fixed | point.given, elsewhere=elsewhere)
        except (ValueError, OSError) as error:
            raise ValueError(f"point {point.name}: {error}") from None
    grid = Grid(file.name, notebooks, file.seeds, fixed, points, preset.needs_gb > 0)
    names = [grid.run_name(*task) for task in grid.tasks]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise ValueError(f"a seed or a value is given twice: there are two runs {twice}.")
    return grid


def _point(chosen: dict, knobs: list[str], base: dict) -> Point:
    """The point with the chosen values; a knob that is absent or None has the base's."""
    values = {
        knob: _plain(base.get(knob) if chosen.get(knob) is None else chosen[knob]) for knob in knobs
    }
    name = "-".join(f"{knob}-{_plain(value)}" for knob, value in chosen.items()) or "base"
    return Point(name, _from_here(chosen), values)


def _number(value: JsonValue) -> JsonValue:
    """Text such as 1e-3, in which YAML 1.1 does not see the number, as that number."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _from_here(parameters: dict) -> dict:
    """Parameters with the paths of files made to hold from anywhere, as `run -p` takes them."""
    return {
        name: arguments.absolute(value) if isinstance(value, str) else value
        for name, value in parameters.items()
    }


def _plain(value: JsonValue) -> JsonValue:
    """A value as a cell of a table."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | dict) else value
