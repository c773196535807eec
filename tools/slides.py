"""`python -m tools.slides`: the slides of a route, which are the cells of the committed notebooks
that are tagged for it, through nbconvert's SlidesExporter.

A cell stands on a slide of a route if it has the route's tag (`route-90`, `route-half-day`,
`route-two-days`). Its metadata `slideshow` have `slide_type`, which JupyterLab sets: `slide` begins
a slide, `-` goes on with it, `fragment` waits for a key. `show`, which is ours, takes a part of a
cell: the paragraphs of a text by number from 0 (a heading is one), or a program's `input` or
`output` alone. `figure`, ours too, is `beside` in the cell that begins a slide whose words stand to
the right of a high figure. Without a route's tag, a cell stands on no slide of it, whatever its
type.

The deck is one file that asks no network for anything: reveal.js is written into it, and there is
no mathematics on it, so no MathJax. The notebooks' relative links would lead nowhere from there, so
they are left as words.
"""

import argparse
import re
import sys
from importlib import metadata
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbformat import NotebookNode, v4
from traitlets.config import Config

from helpers.runs import atomic_write
from tools.teach import NOTEBOOKS

ROUTES = {"90": "90 minutes", "half-day": "half a day", "two-days": "two days"}
REVEAL = "pyreveal"  # the optional package that carries reveal.js; only its files are read
END = """## Three things to take home

- Attack a reward before it trains.
- Look at completions, not only at curves.
- Measure on questions that never earned anything.

**What would you reward at home, and how would you cheat it?**"""
_TEMPLATE = Path(__file__).with_name("slides.html.j2")
_TITLE = re.compile(r"^#{1,3} (?:\d+ · )?(.+)$", re.MULTILINE)  # without a notebook's number
_COLUMN = re.compile(r"(?<=<th>)[^<]+")
_RELATIVE = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")
_FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)


def main(typed: list[str] | None = None) -> None:
    """Write the deck of a route as one file of HTML, whole or not at all."""
    parser = argparse.ArgumentParser(prog="python -m tools.slides")
    parser.add_argument(
        "--route", required=True, choices=list(ROUTES), help="see notebooks/TEACHING.md"
    )
    parser.add_argument(
        "--to",
        default="slides.html",
        metavar="PAGE",
        help="the file to write (default: slides.html)",
    )
    parsed = parser.parse_args(typed)
    folder = Path(metadata.distribution(REVEAL).locate_file(f"{REVEAL}/revealjs/dist"))
    reveal = {name: (folder / f"reveal.{name}").read_text("utf-8") for name in ("js", "css")}
    slides = deck(parsed.route)
    # The exporter's own style names colors of JupyterLab's pages.
    config = {
        "CSSHTMLHeaderPreprocessor": {"style": "default"},
        "TagRemovePreprocessor": {"remove_input_tags": ["output"]},
    }
    exporter = SlidesExporter(template_file=str(_TEMPLATE), config=Config(config))
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    exporter.exclude_anchor_links = True
    page, _ = exporter.from_notebook_node(slides, {"reveal": reveal})
    # the names of columns are long, and may be broken
    page = _COLUMN.sub(lambda match: match[0].replace("_", "_<wbr>"), page)
    with atomic_write(Path(parsed.to)) as temporary:
        temporary.write_text(page, encoding="utf-8")
    number = sum(cell.metadata.slideshow.slide_type == "slide" for cell in slides.cells)
    print(
        f"{parsed.to}: {number} slides; arrows and space turn them, F shows them on the whole "
        "screen, ?print-pdf prints them"
    )


def deck(route: str, source: Path = NOTEBOOKS) -> NotebookNode:
    """One notebook that holds the slides of a route in the order of the notebooks, between a title
    and a last word.
    """
    cells = []
    for path in sorted(source.glob("[0-9][0-9]_*.ipynb")):
        heading = ""
        for cell in nbformat.read(path, as_version=4).cells:
            # a text may have several headings: it begins in the section of the first
            headings = _TITLE.findall(cell.source) if cell.cell_type == "markdown" else []
            if f"route-{route}" in cell.metadata.get("tags", []):
                cells += _parts(cell, path.name[:2], (headings or [heading])[0])
            heading = headings[-1] if headings else heading
    title = f"GRPO, {ROUTES[route]}"
    first = f"# {title}\n\nA language model, and rewards that a program can check."
    return v4.new_notebook(
        cells=[
            v4.new_markdown_cell(first, metadata=_slideshow("slide", "")),
            *cells,
            v4.new_markdown_cell(END, metadata=_slideshow("slide", "")),
        ],
        metadata={"title": title, "language_info": {"name": "python"}},
    )


def _slideshow(kind: str, place: str, figure: str = "below") -> NotebookNode:
    """The metadata of a cell on a slide: the page shows `data-place` in a corner, and its style
    depends on `data-figure`.
    """
    return NotebookNode(
        slideshow=NotebookNode(slide_type=kind, data=NotebookNode(place=place, figure=figure))
    )


def _parts(cell: NotebookNode, number: str, heading: str) -> list[NotebookNode]:
    """What of a cell stands on its slide, and before it the heading of its section, where a slide
    would begin without one.
    """
    about, place = cell.metadata.get("slideshow", {}), f"{number} · {heading}"
    kind, show = about.get("slide_type", "-"), about.get("show")
    figure = about.get("figure", "below")
    if cell.cell_type == "markdown":
        # without what is folded in it and without relative links: all of it, or some paragraphs
        source = _RELATIVE.sub(r"\1", _FOLDED.sub("", cell.source))
        parts = [part for part in re.split(r"\n\s*\n", source) if part.strip()]
        shown = parts if show is None else [parts[number] for number in show]
        shown_cell = v4.new_markdown_cell("\n\n".join(shown))
    else:
        outputs = [] if show == "input" else cell.outputs
        tags = [show] if show else []
        shown_cell = v4.new_code_cell(cell.source, outputs=outputs, metadata={"tags": tags})
    if kind != "slide" or (cell.cell_type == "markdown" and shown_cell.source.startswith("#")):
        shown_cell.metadata |= _slideshow(kind, place, figure)
        return [shown_cell]
    shown_cell.metadata |= _slideshow("-", place)
    begin = _slideshow("slide", place, figure)
    return [v4.new_markdown_cell(f"## {heading}", metadata=begin), shown_cell]


if __name__ == "__main__":
    try:
        main()
    except metadata.PackageNotFoundError:
        sys.exit(f"error: {REVEAL} is not installed: `python -m tools.optional`")
