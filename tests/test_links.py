"""Every link of the Markdown and the notebooks leads somewhere, as GitHub shows them; and the
README is short.
"""

import re

import pytest
from links import broken

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_of_a_page_leads_to_a_file_or_a_heading(page):
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    (tmp_path / "there.md").write_text(
        "# A title\n\n## pass@k, again\n\n## A title\n\n```\n# no heading\n```\n"
    )
    good = (
        "[a](there.md) [b](there.md#passk-again) [c](there.md#a-title-1) `[d](code.md)` "
        "[e](https://x.example) [f](#here)"
    )
    bad = "[h](gone.md) [i](there.md#no-heading) ![j](gone.png) [k](#gone)"
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n{good}\n\n```\n[g](fenced.md)\n```\n{bad}\n")
    assert broken(page) == [
        "page.md: gone.md",
        "page.md: there.md#no-heading",
        "page.md: gone.png",
        "page.md: #gone",
    ]


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


def test_the_long_table_of_notebooks_has_those_of_the_short_one():
    row = re.compile(
        r"^\| \[(\d\d [^\]]+)\]\([./]*notebooks/(\S+)\) \|.*\| ([^|]+) \|$", re.MULTILINE
    )
    short, long = (
        row.findall(path.read_text(encoding="utf-8"))
        for path in (README, PROJECT / "docs" / "notebooks.md")
    )
    assert short == long
    assert [name for _, name, _ in short] == sorted(
        path.name for path in PROJECT.glob("notebooks/*.ipynb")
    )
