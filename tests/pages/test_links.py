"""Every link of the Markdown and the notebooks leads somewhere, as GitHub shows them; and the
README is short.
"""

import json
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from helpers import PROJECT

PLACES = [
    "*.md",
    "docs/*.md",
    "notebooks/*.md",
    "notebooks/*.ipynb",
    "benchmarks/results/*.md",
    "helpers/pocket/*/*.md",
]
PAGES = sorted(path for place in PLACES for path in PROJECT.glob(place))
README = PROJECT / "README.md"
FENCED = re.compile(r"^(```+).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`|<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def text_of(path: Path) -> str:
    """A page, or the text cells of a notebook, without what stands in blocks of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return FENCED.sub("", text)


def anchors(path: Path) -> set[str]:
    """The headings as GitHub names them: of two that are alike, the second ends with -1."""
    found, seen = set(), Counter()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text_of(path), re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_of_a_page_leads_to_a_file_or_a_heading(page):
    links = LINK.findall(CODE.sub("", text_of(page)))
    missing = []
    for link in links:
        parts = urlsplit(link)
        target = page.parent / unquote(parts.path) if parts.path else page
        there = parts.scheme or (
            target.exists() and (not parts.fragment or unquote(parts.fragment) in anchors(target))
        )
        if not there:
            missing.append(link)
    assert missing == []


def test_the_readme_is_one_screen_and_a_half_and_leads_to_every_page():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 95
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!["))]
    assert max(map(len, prose)) <= 128
    for page in [*PROJECT.glob("docs/*.md"), *PROJECT.glob("notebooks/*.ipynb")]:
        if page.name != "contents.md":  # of the book
            assert f"]({page.relative_to(PROJECT)})" in text, (
                f"{page.name} is more than a click away"
            )


def test_both_tables_of_notebooks_have_all_of_them():
    row = re.compile(r"^\| \[(\d\d [^\]]+)\]\([./]*notebooks/(\S+)\) \|", re.MULTILINE)
    short, long = (
        row.findall(path.read_text(encoding="utf-8"))
        for path in (README, PROJECT / "docs" / "notebooks.md")
    )
    assert short == long
    assert [name for _, name in short] == sorted(
        path.name for path in PROJECT.glob("notebooks/*.ipynb")
    )


def test_the_tests_that_ci_names_are_there():
    named = re.findall(r"tests/[\w/.]+", (PROJECT / ".ci" / "run").read_text(encoding="utf-8"))
    assert len(named) > 5 and [path for path in named if not (PROJECT / path).exists()] == []
