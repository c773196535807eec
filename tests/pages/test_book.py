"""The book: every link in it leads somewhere, and nothing on a page is fetched."""

import doctest
import json
import re
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from needed import BOOK

from helpers import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.needs(*BOOK)]
SOLUTION = "### BEGIN SOLUTION"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The site as `make book` makes it: any warning of Sphinx, such as a link that leads nowhere,
    is an error.
    """
    folder = tmp_path_factory.mktemp("site")
    where = ["-d", folder / "cache", "-c", "docs", ".", folder / "book"]
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", *where]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "book"


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(book):
    pages = sorted(book.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        read = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        for element in read.select("[href], [src]"):
            link = urlsplit(element.get("href") or element["src"])
            if link.netloc:
                assert element.name == "a", f"{page.name} fetches {element}"
            elif link.path and not link.scheme:
                assert (page.parent / unquote(link.path)).exists(), f"{page.name}: {element}"
    fetched = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")
    for path in (*pages, *book.rglob("*.css")):
        assert not fetched.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    "path", sorted(PROJECT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_is_a_page_with_its_figures_and_folded_solutions(book, path):
    text = path.read_text(encoding="utf-8")
    shown = (book / f"notebooks/{path.stem}.html").read_text(encoding="utf-8")
    title = json.loads(text)["cells"][0]["source"][0].strip().removeprefix("# ")
    assert re.findall(r"<h1>(.*?)<a", shown) == [title]
    assert "COLAB_RELEASE_TAG" not in shown and "Colab and Kaggle" not in shown
    assert shown.count('<img alt="') >= text.count(r"<img alt=\"")
    folded = "".join(re.findall(r"<details.*?</details>", shown, re.DOTALL))
    assert folded.count(SOLUTION) == shown.count(SOLUTION) == text.count(SOLUTION)


def test_a_docstring_becomes_paragraphs_code_and_examples(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT / "docs")
    import pages

    assert doctest.testmod(pages).attempted and doctest.testmod(pages).failed == 0
