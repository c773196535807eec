"""The teaching guide against the notebooks it leads through: times, names, exercises, what is to be
seen, commands.
"""

import html
import re
import shlex
from functools import cache

import nbformat
import pytest

from benchmarks import sections as measuring
from benchmarks.sections import GUIDE, RESULTS
from helpers.__main__ import parse
from helpers.commands.slides import END, REVEAL, deck
from helpers.commands.teach import BESIDE, NOTEBOOKS, exercises

TEXT = GUIDE.read_text(encoding="utf-8")
NOTEBOOK = {
    path.name[:2]: nbformat.read(path, as_version=4) for path in sorted(NOTEBOOKS.glob("*.ipynb"))
}
SECTIONS = {number: measuring.sections(notebook) for number, notebook in NOTEBOOK.items()}
STOPS = measuring.stops(TEXT)
ROUTES = {
    "90 minutes": (90, 0),
    "Half a day": (240, 25),
    "Two days: the first": (450, 90),
    "Two days: the second": (450, 90),
}
SLIDES = {
    "90 minutes": "90",
    "Half a day": "half-day",
    "Two days: the first": "two-days",
    "Two days: the second": "two-days",
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


def number(stop: str) -> str:
    return re.sub(r"\[([^]]+)\].*", r"\1", stop)


@cache
def of_exercise(wanted: str) -> tuple[int, str]:
    """The minutes that an exercise states, and the section in which it stands."""
    notebook = NOTEBOOK[f"{int(wanted.partition('.')[0]):02}"]
    (found,) = [
        exercise
        for exercise in exercises(notebook)
        if exercise.title.startswith(f"Exercise {wanted}: ")
    ]
    above = "\n".join(
        cell.source for cell in notebook.cells[: found.check] if cell.cell_type == "markdown"
    )
    return int(found.level.split()[0]), re.findall(r"^##? (.+)$", above, re.MULTILINE)[-1]


def of_stop(stop: str) -> list[measuring.Section]:
    if stop not in STOPS:
        return []
    notebook, first, last = STOPS[stop]
    wanted = measuring.within([section.title for section in SECTIONS[notebook]], first, last)
    return [section for section in SECTIONS[notebook] if section.title in wanted]


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
def test_a_stop_has_room_for_its_machine_its_text_and_its_exercises(route):
    for start, minutes, stop, _, asked, machine in rows(route):
        wanted = [of_exercise(one) for one in asked.split(", ") if one]
        found = of_stop(number(stop))
        assert {title for _, title in wanted} <= {section.title for section in found}, (
            f"{start}: exercises of another stop"
        )
        needed = sum(minutes for minutes, _ in wanted) + sum(section.reading for section in found)
        needed += float(machine.removesuffix(" s").lstrip("< ") or 0) / 60
        assert needed <= int(minutes), f"{start}, stop {stop}: {needed:.1f} min do not fit"


@each_route
def test_a_class_that_is_late_gets_the_minutes_back(route):
    table = {number(stop): int(minutes) for _, minutes, stop, *_ in rows(route)}
    cuts = re.findall(r"^\| (\d+) min \| (.+?) \|", part(route), re.MULTILINE)
    assert [late for late, _ in cuts] == ["10", "20", "30"]
    for late, told in cuts:
        saved = re.findall(r"([\d.]+) \((\d+)(?: of (\d+))?\)", told)
        assert len(saved) == len(told.split(", ")) and sum(
            int(minutes) for _, minutes, _ in saved
        ) >= int(late)
        for stop, minutes, of in saved:
            assert table[stop] == int(of or minutes) and int(minutes) <= table[stop]


def test_the_seconds_are_those_that_were_measured():
    assert measuring.with_seconds(TEXT, measuring.stored()) == TEXT, (
        "python -m benchmarks.sections writes them into the guide"
    )
    assert re.search(r"runs all of 03[^|]*\|[^|]*\| \d+ s \|", TEXT)


def test_the_measured_sections_are_those_of_the_notebooks():
    stored = measuring.stored()
    assert {name: [*of] for name, of in stored.items()} == {
        name: [one.title for one in of] for name, of in SECTIONS.items()
    }
    for part_of, found in zip(
        RESULTS.read_text(encoding="utf-8").split("\n## ")[1:], SECTIONS.values(), strict=True
    ):
        counted = dict(re.findall(r"^\| (.+?) \| (?:[\d.]+|–) \| (\d+) \|", part_of, re.MULTILINE))
        for section in found:
            assert abs(section.words - int(counted[section.title])) <= 20, (
                f"{section.title}: measure it again"
            )
    assert all(
        sum(stored[number].values()) > 1 for number in re.findall(r"runs all of (\d\d)", TEXT)
    ), "each starts a kernel"


@each_route
def test_the_tasks_on_the_slides_are_those_of_the_route(route):
    tasks = re.findall(
        r"^### Exercise ([\d.]+)",
        "\n".join(cell.source for cell in deck(SLIDES[route]).cells),
        re.MULTILINE,
    )
    asked = [one for *_, asked, _ in rows(route) for one in asked.split(", ") if one]
    # in two days there is no room for all
    assert tasks == asked if "days" not in route else set(tasks) & set(asked)


# --- The stops ------------------------------------------------------------------------------------


def test_the_stops_go_through_every_section_once_in_order():
    for name, found in SECTIONS.items():
        visited = [
            section.title
            for stop, (notebook, *_) in STOPS.items()
            if notebook == name
            for section in of_stop(stop)
        ]
        assert visited == [section.title for section in found], name


@each_route
def test_a_route_names_stops_that_are_there_and_runs_what_it_says(route):
    titles = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    for start, _, stop, doing, _, _ in rows(route):
        if stop in ("break", "lunch"):
            continue
        assert re.search(r"\(#([^)]+)\)", stop)[1] in slugs, f"{start}: {stop}"
        if named := re.search(r"runs all of (\d\d)", doing):
            assert STOPS[number(stop)][0] == named[1]


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_says_what_to_say_see_ask_and_mend(stop):
    told = lines(stop)
    assert [*told] == [
        field for field in ("In", "Do", "Say", "See", "Ask", "If") if field in told
    ], "in this order"
    assert {"In", "Say", "See", "Ask", "If"} <= {*told}
    assert told["Ask"].count("?") >= 1 and "→" in told["Ask"], "a question with its answer"
    assert 10 <= len(told["Say"].split()) <= 70


@pytest.mark.parametrize("stop", STOPS)
def test_what_is_to_be_seen_stands_in_the_notebook(stop):
    told, (notebook, *_) = lines(stop), STOPS[stop]
    seen, all_of_it = shown(notebook), shown(notebook) + sources(notebook)
    quoted = re.findall(r"`([^`]+)`", told["See"])
    assert quoted or stop == "3.1", "that of 3.1 is a figure"
    assert [text for text in quoted if squeezed(text) not in seen] == [], "no output has this"
    others = re.findall(r"`([^`]+)`", told["Say"] + told["Ask"] + told["If"])
    elsewhere = (
        r'^python -m|^run = "spare"|Error$|^is not there$|^This cell has been run '
        r"before$|^other data$|^Adapter"
    )
    others = [text for text in others if not re.search(elsewhere, text)]
    assert [text for text in others if squeezed(text) not in all_of_it] == []


@cache
def lines(stop: str) -> dict[str, str]:
    """{"Say": …, "Ask": …} of a stop."""
    (title,) = re.findall(rf"^### ({re.escape(stop)} · .+)$", TEXT, re.MULTILINE)
    fields = re.split(r"^\*\*(In|Do|Say|See|Ask|If):?\*\* ?", part(title), flags=re.MULTILINE)
    return dict(zip(fields[1::2], fields[2::2], strict=True))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@cache
def shown(notebook: str) -> str:
    """What the stored outputs of a notebook say, tables too, in one line."""
    found = []
    for output in (
        output for cell in NOTEBOOK[notebook].cells for output in cell.get("outputs", [])
    ):
        data = output.get("data", {})
        tables = re.sub(
            r"<style.*?</style>|<[^>]+>", " ", data.get("text/html", ""), flags=re.DOTALL
        )
        found += [output.get("text", ""), html.unescape(tables), data.get("text/plain", "")]
    return squeezed(" ".join(found))


@cache
def sources(notebook: str) -> str:
    return squeezed(" ".join(cell.source for cell in NOTEBOOK[notebook].cells))


# --- The commands ---------------------------------------------------------------------------------


def commands() -> list[str]:
    blocks = "\n".join(
        re.findall(r"^```bash\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    ).splitlines()
    inline = re.findall(r"`(python -m helpers [^`]+)`", TEXT)
    return [
        *dict.fromkeys(
            [line.partition("#")[0].strip() for line in blocks if "python -m helpers" in line]
            + inline
        )
    ]


@pytest.mark.parametrize("command", commands())
def test_a_command_is_one_that_is_there(command):
    assert parse(shlex.split(command)[3:]).command


def test_the_last_slide_says_what_the_close_says_and_the_guide_tells_where_to_turn_to():
    told = re.sub(r"\W+", " ", part("Close")).lower()
    assert [
        line
        for line in END.splitlines()[2:]
        if re.sub(r"\W+", " ", line).strip().lower() not in told
    ] == []
    begun = [
        cell for cell in deck("two-days").cells if cell.metadata.slideshow.slide_type == "slide"
    ]
    first = {
        cell.metadata.slideshow.data.place[:2]: number
        for number, cell in reversed([*enumerate(begun, start=1)])
    }
    wanted = re.findall(
        r"for 6\.1 .*?to slide (\d+), for 3\.1 .*?to slide (\d+), and for 8\.1.*?to slide (\d+)",
        TEXT,
    )
    assert [[*map(int, numbers)] for numbers in wanted] == [[first["06"], first["03"], first["08"]]]


def test_the_package_for_the_slides_is_the_pinned_one():
    assert f"pip install {'=='.join(REVEAL)} " in TEXT


def test_it_is_for_no_student_and_says_what_nobody_has_measured():
    assert GUIDE.name not in BESIDE
    assert "nobody has taught these routes yet" in TEXT
