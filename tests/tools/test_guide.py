"""The teaching guide against the notebooks it leads through: times, sections, exercises, what is to
be seen, commands.
"""

import html
import re
import shlex
from functools import cache

import nbformat
import pytest

from helpers.__main__ import parse
from tools.teach import NOTEBOOKS

TEXT = (NOTEBOOKS / "TEACHING.md").read_text(encoding="utf-8")
NOTEBOOK = {
    path.name[:2]: nbformat.read(path, as_version=4) for path in sorted(NOTEBOOKS.glob("*.ipynb"))
}
# **In** [03](…), *the section*.
STOPS = {
    stop: (number, section)
    for stop, number, section in re.findall(
        r"^### ([\d.]+) · .+\n\n\*\*In\*\* \[(\d\d)\].*?\*([^*]+)\*\.$", TEXT, re.MULTILINE
    )
}
ROUTES = {
    "90 minutes": (90, 0),
    "Half a day": (240, 25),
    "Two days: the first": (450, 90),
    "Two days: the second": (450, 90),
}
each_route = pytest.mark.parametrize("route", ROUTES)


def part(title: str, level: int = 3) -> str:
    """What stands under a heading of the guide."""
    return re.split(
        rf"^#{{1,{level}}} ",
        TEXT.partition(f"{'#' * level} {title}\n")[2],
        maxsplit=1,
        flags=re.MULTILINE,
    )[0]


def rows(route: str) -> list[list[str]]:
    """A route's timetable: start, minutes, stop, what the class does, exercises, machine."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in part(route).splitlines()
        if line[:1] == "|"
    ]
    return [row for row in found if re.match(r"\d+:\d\d", row[0])]


# --- Times ----------------------------------------------------------------------------------------


@each_route
def test_a_route_is_told_minute_by_minute_and_takes_as_long_as_it_says(route):
    clock = 0
    for start, minutes, *_ in rows(route):
        assert start == f"{clock // 60}:{clock % 60:02}", (
            f"the row at {start} begins at {clock} min"
        )
        clock += int(minutes)
    breaks = sum(int(minutes) for _, minutes, stop, *_ in rows(route) if stop in ("break", "lunch"))
    assert (clock, breaks) == ROUTES[route]


@each_route
def test_a_route_leads_to_stops_and_exercises_that_are_there(route):
    titles = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    asked = re.findall(r"^### Exercise ([\d.]+):", "\n".join(map(text_of, NOTEBOOK)), re.MULTILINE)
    for _, _, stop, _, exercises in rows(route):
        assert stop in ("break", "lunch") or re.search(r"\(#(.+)\)", stop)[1] in anchors, stop
        assert {*re.findall(r"[\d.]+", exercises)} <= {*asked}, exercises


# --- The stops ------------------------------------------------------------------------------------


def text_of(number: str) -> str:
    return "\n".join(c.source for c in NOTEBOOK[number].cells if c.cell_type == "markdown")


def test_the_stops_go_through_the_notebooks_in_order():
    assert {number for number, _ in STOPS.values()} == {*NOTEBOOK} - {"00"}
    for number, notebook in NOTEBOOK.items():
        headings = re.findall(r"^#{1,3} (.+)$", text_of(number), re.MULTILINE)
        visited = [section for name, section in STOPS.values() if name == number]
        places = [headings.index(section) for section in visited]
        assert places == sorted(set(places)), notebook


@pytest.mark.parametrize("stop", STOPS)
def test_what_is_to_be_seen_stands_in_the_notebook(stop):
    (title,) = re.findall(rf"^### ({re.escape(stop)} · .+)$", TEXT, re.MULTILINE)
    fields = re.split(r"^\*\*(In|Do|Say|See|Ask|If):?\*\* ?", part(title), flags=re.MULTILINE)
    told = dict(zip(fields[1::2], fields[2::2], strict=True))
    assert {"In", "Say", "See", "Ask", "If"} <= {*told}
    quoted = re.findall(r"`([^`]+)`", told["See"])
    assert quoted or stop == "3.1", "that of 3.1 is a figure"
    seen = shown(STOPS[stop][0])
    assert [text for text in quoted if squeezed(text) not in seen] == [], "no output has this"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@cache
def shown(notebook: str) -> str:
    """What a class reads in the stored outputs of a notebook, tables too, in one line: an output
    with HTML shows no plain text (such as a figure's alt text), and a solution's output is hidden.
    """
    found = []
    for cell in NOTEBOOK[notebook].cells:
        if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            found += [output.get("text", ""), data.get("text/html", data.get("text/plain", ""))]
    tags = re.compile(r"<style.*?</style>|<[^>]+>", re.DOTALL)
    return squeezed(html.unescape(tags.sub(" ", " ".join(found))))


def test_a_class_sees_neither_the_text_behind_a_figure_nor_a_hidden_solution():
    seen = shown("04")
    assert "32 logged steps" in seen and "frac_reward_zero_std" in seen
    assert "The reward over the steps, with a band" not in seen
    assert "-0.175" not in seen


# --- The commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted({*re.findall(r"python -m helpers [^#`\n]+", TEXT)}))
def test_a_command_is_one_that_is_there(command):
    assert parse(shlex.split(command)[3:]).command
