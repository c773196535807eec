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
    "docs/book/*.md",
    "notebooks/*.md",
    "notebooks/*.ipynb",
    "benchmarks/results/*.md",
    "helpers/*.md",
    "helpers/*/*.md",
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


def test_the_readme_leads_to_every_page():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 260
    prose = [line for line in FENCED.sub("", text).splitlines() if line[:1] not in ("|", "[", "!")]
    assert max(map(len, prose)) <= 128
    for page in [*PROJECT.glob("docs/*.md"), *PROJECT.glob("notebooks/*.ipynb")]:
        assert f"]({page.relative_to(PROJECT)}" in text, f"{page.name} is more than a click away"


def test_the_table_of_notebooks_has_all_of_them():
    row = re.compile(r"^\| \[\d\d [^\]]+\]\(notebooks/(\S+)\) .*\| (\d|–) \|", re.MULTILINE)
    rows = row.findall(README.read_text(encoding="utf-8"))
    paths = sorted(PROJECT.glob("notebooks/*.ipynb"))
    assert [name for name, _ in rows] == [path.name for path in paths]
    for (_, told), path in zip(rows, paths, strict=True):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        exercises = sum("exercise" in cell["metadata"].get("tags", []) for cell in cells)
        assert told == (str(exercises) if exercises else "–"), path.name


# What people search for, and the page that answers it.
SEARCHED = [
    ("reward stays 0", "troubleshooting"),
    ("out of memory", "troubleshooting"),
    ("OOM", "troubleshooting"),
    ("--resume", "troubleshooting"),
    ("FAQ", "troubleshooting"),
    ("data formats", "data"),
    ("custom reward", "rewards"),
    ("GGUF", "export-and-serving"),
    ("12 GB", "presets"),
    ("reward_std", "troubleshooting"),
    ("vLLM", "export-and-serving"),
    ("multi-GPU", "multi-gpu"),
    ("wandb", "monitoring"),
    ("Colab", "installation"),
    ("dataset", "data"),
    ("hyperparameter", "presets"),
    ("deploy", "export-and-serving"),
]


@pytest.mark.parametrize(("words", "page"), SEARCHED)
def test_what_people_search_for_is_on_a_page_that_the_readme_leads_to(words, page):
    text = (PROJECT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert words.lower() in text.lower()
    assert f"](docs/{page}.md" in README.read_text(encoding="utf-8")


def test_the_tests_that_ci_names_are_there():
    named = re.findall(r"tests/[\w/.]+", (PROJECT / ".ci" / "run").read_text(encoding="utf-8"))
    assert len(named) > 5 and [path for path in named if not (PROJECT / path).exists()] == []
