"""The slides of a route: the cells of the committed notebooks that are tagged for it, through
nbconvert's SlidesExporter.

A cell stands on a slide of a route if it has the route's tag (`route-90`, `route-half-day`,
`route-two-days`). Its metadata `slideshow` have `slide_type`, which JupyterLab sets: `slide` begins
a slide, `-` goes on with it, `fragment` waits for a key. `show`, which is ours, takes a part of a
cell: the paragraphs of a text by number (a heading is one), or a program's `input` or `output`
alone. `figure`, ours too, is `beside` in the cell that begins a slide whose words stand to the
right of a high figure. Without a route's tag, a cell stands on no slide of it, whatever its type.

The deck is one file that asks no network for anything: reveal.js is written into it, and there is
no mathematics on it, so no MathJax. The notebooks' relative links would lead nowhere from there, so
they are left as words.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbformat import NotebookNode, v4
from traitlets.config import Config

from helpers.commands.teach import NOTEBOOKS
from helpers.runs import atomic_write, refuse_to_replace

ROUTES = {"90": "90 minutes", "half-day": "half a day", "two-days": "two days"}
REVEAL = ("pyreveal", "1.0.0")  # carries reveal.js 6.0.1; only its files are read
END = """## Three things to take home

- Attack a reward before it trains.
- Look at completions, not only at curves.
- Measure on questions that never earned anything.

**What would you reward at home, and how would you cheat it?**"""
_TEMPLATE = Path(__file__).with_name("slides.html.j2")
_INPUT, _OUTPUT = "input", "output"
_TYPES = ("slide", "-", "fragment")
_TITLE = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)
_COLUMN = re.compile(r"(?<=<th>)[^<]+")
_RELATIVE = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")
_FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)


def deck(route: str, source: Path = NOTEBOOKS) -> NotebookNode:
    """One notebook that holds the slides of a route in the order of the notebooks, between a title
    and a last word.

    ValueError, with notebook and cell from 1, for a slide type that a deck does not have, for
    `show` that is no part of its cell, and for a route without a slide.
    """
    cells, titles = [], []
    for path in sorted(source.glob("[0-9][0-9]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        heading = title = _heading(notebook.cells[0], "")
        for number, cell in enumerate(notebook.cells, start=1):
            if f"route-{route}" in cell.metadata.get("tags", []):
                try:
                    cells += _parts(cell, path.name[:2], _heading(cell, heading))
                except ValueError as error:
                    raise ValueError(f"{path.name}, cell {number}: {error}") from None
                titles.append(f"{path.name[:2]} {title}".replace(" ", "\N{NO-BREAK SPACE}"))
            heading = _heading(cell, heading, last=True)
    if not cells:
        raise ValueError(f"no cell of the notebooks is tagged route-{route}.")
    return v4.new_notebook(
        cells=[_title(route, [*dict.fromkeys(titles)]), *cells, _end()],
        metadata={"title": f"GRPO, {ROUTES[route]}", "language_info": {"name": "python"}},
    )


def make(route: str, to: Path) -> int:
    """Write the deck of a route as one file of HTML, whole or not at all; returns the number of its
    slides.

    ValueError as `deck`, without reveal.js, and where the file has no place or is there and no
    deck.
    """
    if to.is_dir() or not to.parent.is_dir():
        raise ValueError(
            f"{to} is no place for the slides: name a file in a folder that is there, such as "
            "--to slides.html."
        )
    refuse_to_replace(to, 'content="python -m helpers slides"')
    made = deck(route)
    # The exporter's own style names colors of JupyterLab's pages.
    config = {
        "CSSHTMLHeaderPreprocessor": {"style": "default"},
        "TagRemovePreprocessor": {"remove_input_tags": [_OUTPUT]},
    }
    exporter = SlidesExporter(template_file=str(_TEMPLATE), config=Config(config))
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = (
        exporter.exclude_anchor_links
    ) = True
    page, _ = exporter.from_notebook_node(
        made, {"reveal": {name: _reveal(f"reveal.{name}") for name in ("js", "css")}}
    )
    with atomic_write(to) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return sum(cell.metadata.slideshow.slide_type == "slide" for cell in made.cells)


def _title(route: str, notebooks: list[str]) -> NotebookNode:
    text = (
        f"# GRPO, {ROUTES[route]}\n\nA language model, and rewards that a program can "
        f"check.\n\n{' · '.join(notebooks)}"
    )
    return v4.new_markdown_cell(text, metadata=_slideshow("slide", ""))


def _end() -> NotebookNode:
    return v4.new_markdown_cell(END, metadata=_slideshow("slide", ""))


def _slideshow(kind: str, place: str, figure: str = "below") -> NotebookNode:
    """Of a cell on a slide; its page shows `data-place` in a corner, and its style goes by
    `data-figure`.
    """
    return NotebookNode(
        slideshow=NotebookNode(slide_type=kind, data=NotebookNode(place=place, figure=figure))
    )


def _heading(cell: NotebookNode, before: str, last: bool = False) -> str:
    """The first heading of a text, or its last, without a notebook's number; for another cell the
    one before.
    """
    found = _TITLE.findall(cell.source) if cell.cell_type == "markdown" else []
    return re.sub(r"^\d+ · ", "", found[-1 if last else 0]) if found else before


def _parts(cell: NotebookNode, number: str, heading: str) -> list[NotebookNode]:
    """What of a cell stands on its slide, and before it the heading of its section, where a slide
    would begin without one.
    """
    about, place = cell.metadata.get("slideshow", {}), f"{number} · {heading}"
    kind, show, figure = (
        about.get("slide_type", "-"),
        about.get("show"),
        about.get("figure", "below"),
    )
    if kind not in _TYPES:
        raise ValueError(
            f"its slide type is {kind!r}, and a cell that a route shows is one of: "
            f"{', '.join(_TYPES)}."
        )
    made = _text(cell, show) if cell.cell_type == "markdown" else _program(cell, show)
    if kind != "slide" or (cell.cell_type == "markdown" and made.source.startswith("#")):
        made.metadata |= _slideshow(kind, place, figure)
        return [made]
    made.metadata |= _slideshow("-", place)
    return [
        v4.new_markdown_cell(f"## {heading}", metadata=_slideshow("slide", place, figure)),
        made,
    ]


def _text(cell: NotebookNode, show: list[int] | None) -> NotebookNode:
    return v4.new_markdown_cell(_RELATIVE.sub(r"\1", _shown(cell.source, show)))


def _program(cell: NotebookNode, show: str | None) -> NotebookNode:
    if show not in (None, _INPUT, _OUTPUT):
        raise ValueError(
            f"`show` is {show!r}; of a program it is {_INPUT}, {_OUTPUT}, or left out."
        )
    outputs = [] if show == _INPUT else cell.outputs
    for output in outputs:
        # the names of columns are long, and may be broken
        if "text/html" in output.get("data", {}):
            output.data["text/html"] = _COLUMN.sub(
                lambda found: found[0].replace("_", "_<wbr>"), output.data["text/html"]
            )
    return v4.new_code_cell(cell.source, outputs=outputs, metadata={"tags": [show] if show else []})


def _shown(source: str, numbers: list[int] | None) -> str:
    """A text without what is folded in it: all of it, or some of its paragraphs, counted from 0."""
    found = [part for part in re.split(r"\n\s*\n", _FOLDED.sub("", source)) if part.strip()]
    if numbers is None:
        return "\n\n".join(found)
    if not isinstance(numbers, list) or not all(
        type(number) is int and 0 <= number < len(found) for number in numbers
    ):
        raise ValueError(
            f"`show` is {numbers!r}; of this text it is a list of numbers from 0 to "
            f"{len(found) - 1}."
        )
    return "\n\n".join(found[number] for number in numbers)


def _reveal(name: str) -> str:
    package, pin = REVEAL
    try:
        return Path(
            metadata.distribution(package).locate_file(f"{package}/revealjs/dist/{name}")
        ).read_text(encoding="utf-8")
    except metadata.PackageNotFoundError:
        raise ValueError(
            "reveal.js, which turns the pages, is not installed: `python -m pip install "
            f"{package}=={pin}`, or `make optional`."
        ) from None
