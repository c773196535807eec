"""How long is each section of the notebooks? Reads a run's executed notebooks: `python -m
benchmarks.sections --run demo`.

Writes benchmarks/results/sections.md, and the seconds into the timetables of notebooks/TEACHING.md.
Measured are the seconds of the machine, which papermill leaves in the executed copies; words and
lines are counted; the minutes of an exercise are its own.
"""

import argparse
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers import PROJECT
from helpers.commands.teach import NOTEBOOKS
from helpers.runs import Run

RESULTS = PROJECT / "benchmarks" / "results" / "sections.md"
GUIDE = NOTEBOOKS / "TEACHING.md"
# the slow end of 175 to 300, the range of most adults for English non-fiction (Brysbaert 2019)
WORDS_A_MINUTE = 175
_TITLE = re.compile(r"^(#{1,2}) (.+)$")
_MINUTES = re.compile(r"^\*\*(\d+) minutes?, (?:easy|medium|hard)\.\*\*", re.MULTILINE)
_STOP = re.compile(  # **In** [03](…), *the first section* to *the last*.
    r"^### (?P<number>[\d.]+) · .+\n\n\*\*In\*\* \[(?P<notebook>\d\d)\].*?"
    r"\*(?P<first>[^*]+)\*(?: to \*(?P<last>[^*]+)\*)?\.$",
    re.MULTILINE,
)
_ROW = re.compile(  # | 0:05 | 10 | [1.1](…) | runs all of 01 | exercises | machine |
    r"^(\| \d+:\d\d \| \d+ \| \[(?P<stop>[\d.]+)\]\([^)]*\) \| (?P<doing>[^|]*)\|[^|]*\|)[^|]*\|$",
    re.MULTILINE,
)
# and programs to copy
_FOLDED = re.compile(r"<details>.*?</details>|^```.*?^```", re.DOTALL | re.MULTILINE)
_TOGETHER = "**together**"
_COLUMNS = (
    "| section | machine, s | words | reading, min | lines of code | exercises, min "
    "|\n|---|---|---|---|---|---|"
)
_HEAD = """# The sections of the notebooks

`python -m benchmarks.sections --run {run}`, on {machine}. The machine's seconds are measured: papermill notes when
each cell begins and ends, and the first section includes the start of the kernel. Words are those of the text, without what is
folded away; reading them takes the minutes given at {speed} words a minute, the slow end of the 175 to 300 that most adults
read of English non-fiction ([Brysbaert 2019](https://doi.org/10.1016/j.jml.2019.104047)). No minutes are given for reading
code, of which the lines are counted. The minutes of the exercises are those that the notebooks state; nobody has measured them.
"""


@dataclass
class Section:
    """What stands under a heading of the first or the second level."""

    title: str
    seconds: float | None = 0.0  # of the machine; None where they were not measured
    words: int = 0
    lines: int = 0  # of code that is not folded away
    minutes: int = 0  # that its exercises state

    @property
    def reading(self) -> float:
        """Minutes."""
        return self.words / WORDS_A_MINUTE


def sections(notebook: NotebookNode) -> list[Section]:
    """The sections of a notebook in its order, those without a word or a cell left out.

    The seconds are 0 in a notebook that papermill has not executed. What comes before the first
    cell, the start of the kernel, counts for the first section.
    """
    found = [Section("")]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for title, text in _parts(cell.source):
                if title:
                    found.append(Section(title))
                found[-1].words += len(re.findall(r"\w+(?:['’.,]\w+)*", _FOLDED.sub("", text)))
                found[-1].minutes += sum(map(int, _MINUTES.findall(text)))
        elif "injected-parameters" not in cell.metadata.get("tags", []):
            folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
            found[-1].lines += (
                0 if folded else sum(bool(line.strip()) for line in cell.source.splitlines())
            )
        found[-1].seconds += cell.metadata.get("papermill", {}).get("duration") or 0.0
    found = [section for section in found if section.words or section.lines]
    found[0].seconds += _start(notebook)
    return found


def _parts(source: str) -> Iterator[tuple[str, str]]:
    """A cell's text, cut before each heading that stands outside a block of code: (title
    or "", text).
    """
    title, lines, fenced = "", [], False
    for line in source.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (match := _TITLE.match(line)):
            yield title, "\n".join(lines)
            title, lines = match[2], []
        else:
            lines.append(line)
    yield title, "\n".join(lines)


def _start(notebook: NotebookNode) -> float:
    """Seconds until papermill came to the first cell."""
    times = [
        about.get("papermill", {}).get("start_time")
        for about in (notebook.metadata, notebook.cells[0].metadata)
    ]
    began, first = (datetime.fromisoformat(time) if time else None for time in times)
    return (first - began).total_seconds() if began and first else 0.0


def table(notebook: list[Section]) -> str:
    """The rows of a notebook, and their sum."""
    total = Section(_TOGETHER)
    for section in notebook:
        for name in ("words", "lines", "minutes"):
            setattr(total, name, getattr(total, name) + getattr(section, name))
        total.seconds = (
            None
            if section.seconds is None or total.seconds is None
            else total.seconds + section.seconds
        )
    return "\n".join(map(_row, [*notebook, total]))


def _row(section: Section) -> str:
    seconds = "–" if section.seconds is None else f"{section.seconds:.1f}"
    counted = f"{section.words} | {section.reading:.1f} | {section.lines} | {section.minutes or ''}"
    return f"| {section.title} | {seconds} | {counted} |"


# --- The guide ------------------------------------------------------------------------------------


def stops(text: str) -> dict[str, tuple[str, str, str]]:
    """The stops of the guide: {"3.4": ("03", the first of its sections, the last)}, without those
    that are in no notebook.
    """
    found = {match["number"]: match for match in _STOP.finditer(text)}
    return {
        number: (match["notebook"], match["first"], match["last"] or match["first"])
        for number, match in found.items()
    }


def within(titles: list[str], first: str, last: str) -> list[str]:
    """The titles from the first to the last. ValueError for one that is not there."""
    return titles[titles.index(first) : titles.index(last) + 1]


def with_seconds(text: str, measured: dict[str, dict[str, float]]) -> str:
    """The guide with the machine's seconds in its timetables: of a whole notebook, of a stop's
    sections, or none.

    measured: {"03": {title of a section: seconds}}. Whether all is run, or the stop alone, the
    fourth column says.
    """
    known = stops(text)

    def filled(row: re.Match) -> str:
        seconds = None
        if row["stop"] in known:
            number, first, last = known[row["stop"]]
            titles = [*measured[number]]
            if "runs all" in row["doing"]:
                seconds = sum(measured[number].values())
            elif "runs along" in row["doing"]:
                seconds = sum(measured[number][title] for title in within(titles, first, last))
        return (
            f"{row[1]} |"
            if seconds is None
            else f"{row[1]} {'< 1' if seconds < 1 else f'{seconds:.0f}'} s |"
        )

    return _ROW.sub(filled, text)


def stored() -> dict[str, dict[str, float]]:
    """What benchmarks/results/sections.md has: for each notebook the seconds of its sections, nan
    where none were measured.
    """
    found = {}
    for part in RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [
            line.strip("| ").split(" | ")
            for line in part.splitlines()
            if re.match(r"\| .+ \| ([\d.]+|–) \| ", line)
        ]
        found[part[:2]] = {
            title: float(seconds.replace("–", "nan"))
            for title, seconds, *_ in rows
            if title != _TOGETHER
        }
    return found


# --- The table ------------------------------------------------------------------------------------


def main() -> None:
    """Read a run and write benchmarks/results/sections.md and the timetables of the guide."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--run", default="demo", metavar="NAME", help="a run of all notebooks (default: demo)"
    )
    parser.add_argument(
        "--on", metavar="MACHINE", help="what it ran on, if that is not this machine"
    )
    given = parser.parse_args()
    run = Run(given.run)
    machine = given.on or f"{os.cpu_count()} cores, {platform.machine()}, no GPU"
    text = _HEAD.format(run=given.run, machine=machine, speed=WORDS_A_MINUTE)
    for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")):
        found, seconds = (
            sections(nbformat.read(path, as_version=4)),
            measured(run.folder / "notebooks" / path.name),
        )
        for section in found:
            section.seconds = seconds.get(section.title)
        text += f"\n## {path.stem}\n\n{_COLUMNS}\n{table(found)}\n"
    RESULTS.write_text(text, encoding="utf-8")
    GUIDE.write_text(with_seconds(GUIDE.read_text(encoding="utf-8"), stored()), encoding="utf-8")
    print(text)


def measured(path: Path) -> dict[str, float]:
    """The seconds of an executed notebook by section; empty, and said, where it is not there or has
    not come to its end.
    """
    if path.exists():
        notebook = nbformat.read(path, as_version=4)
        if all(
            cell.metadata.get("papermill", {}).get("status") == "completed"
            for cell in notebook.cells
        ):
            return {section.title: section.seconds for section in sections(notebook)}
    print(f"{path.stem} was not executed to its end in this run: its seconds are left out")
    return {}


if __name__ == "__main__":
    main()
