"""The book: every link in it leads somewhere, nothing on a page is fetched, and it can be
searched.
"""

import doctest
import importlib.util
import json
import re
import subprocess
import sys

import pytest
from browser import browse, in_a_browser
from links import broken, loaded

from helpers import PROJECT

MISSING = [
    name
    for name in ("sphinx", "myst_nb", "furo", "latex2mathml", "ziamath")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (make book)"),
]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The site as `make book` makes it: any warning of Sphinx, such as a link that leads nowhere,
    is an error.
    """
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        folder / "cache",
        "-c",
        "docs",
        ".",
        folder / "book",
    ]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "book"


def page(book, name) -> str:
    return (book / name).read_text(encoding="utf-8")


def test_every_link_in_the_book_leads_somewhere_and_no_page_loads_anything_from_elsewhere(book):
    pages = sorted(book.rglob("*.html"))
    assert len(pages) > 40
    for each in pages:
        assert broken(each) == [] and loaded(each) == [], each
    for style in book.rglob("*.css"):
        assert not re.search(
            r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")
        ), style


@pytest.mark.parametrize(
    "path", sorted(PROJECT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_is_a_page_with_its_outputs_and_folded_solutions(book, path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = page(book, f"notebooks/{path.stem}.html")
    title = "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
    assert re.findall(r"<h1>(.*?)<a", shown) == [title]
    assert "COLAB_RELEASE_TAG" not in shown and "Colab and Kaggle" not in shown
    assert shown.count('<img alt="') >= sum(
        '<img alt="' in json.dumps(cell).replace('\\"', '"') for cell in cells
    )
    folded = re.findall(r"<details.*?</details>", shown, re.DOTALL)
    for cell in cells:
        if "solution" in cell["metadata"].get("tags", []):
            first = next(
                line for line in cell["source"] if line.startswith("### BEGIN SOLUTION")
            ).strip()
            assert sum(first in part for part in folded) and shown.count(first) == sum(
                part.count(first) for part in folded
            )


def test_formulas_are_drawn_by_the_browser_itself(book):
    shown = page(book, "notebooks/06_grpo_from_scratch.html")
    formulas = re.findall(r"<math .*?</math>", shown, re.DOTALL)
    assert len(formulas) > 70 and not any("\\" in formula for formula in formulas), (
        "a command that was not understood"
    )
    assert r"\frac" not in shown and (book / "_static" / "math.ttf").stat().st_size > 1e6


def test_a_docstring_becomes_paragraphs_code_and_examples():
    sys.path.insert(0, str(PROJECT / "docs"))
    try:
        import pages
    finally:
        sys.path.pop(0)
    assert doctest.testmod(pages).attempted and doctest.testmod(pages).failed == 0
    told = "First.\n\nkind: one `x`, or\n    two. size, kind: a_b. Note: no parameter."
    assert pages.as_rst(told, ["kind", "size"]) == (
        "First.\n\n**kind**: one ``x``, or two.\n\n**size, kind**: a\\_b. Note: no parameter.\n"
    )


@in_a_browser
def test_the_search_finds_the_pages_of_a_word_from_the_disk(book, tmp_path):
    where = (book / "search.html").as_uri() + "?q=advantage"
    options = ("--dump-dom", "--virtual-time-budget=20000")
    dumped, console = browse(where, tmp_path / "profile", *options)
    hits = re.search(r'<div id="search-results">(.*)', dumped, re.DOTALL)[1]
    assert console == [] and "notebooks/GLOSSARY.html" in hits
