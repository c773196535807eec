"""Write the project's address wherever a copy is needed: `make address URL=https://github.com/YOU/NAME`.

In pyproject.toml, CITATION.cff, the cell of each notebook that clones the project in Colab, and the
README: its `git clone`, its badges, and a Colab badge for each notebook. A second call replaces the
address of the first.
"""

import argparse
import re
import sys
from pathlib import Path

from helpers import PROJECT

# The badges are files of the project, so that a page fetches nothing; only CI's comes from GitHub.
# docs/pages.py leaves that one out of the book.
COLAB = "[![Open in Colab]({badges}badge-colab.svg)](https://colab.research.google.com/github/{slug}/blob/main/notebooks/{name})"
CI = "[![CI]({url}/actions/workflows/ci.yml/badge.svg)]({url}/actions/workflows/ci.yml)"
BADGES = "docs/static/"


def write(project: Path, url: str) -> None:
    """Write the address into the files of a checkout. Raise ValueError if it is no repository's."""
    if not re.fullmatch(r"https://[\w.-]+/[\w.-]+/[\w.-]+", url):
        raise ValueError(f"{url!r} is not an address such as https://github.com/YOU/NAME")
    slug = url.split("/", 3)[3]
    _change(project / "pyproject.toml", r'^Repository = ".*"', f'Repository = "{url}"')
    cited = project / "CITATION.cff"
    _change(cited, r"^repository-code:.*\n", "")
    cited.write_text(
        cited.read_text(encoding="utf-8") + f"repository-code: {url}\n", encoding="utf-8"
    )
    for notebook in sorted(project.glob("notebooks/*.ipynb")):
        _change(notebook, r'(?<=REPOSITORY\\"\) or \\")[^"\\]*', url)

    readme = project / "README.md"
    text = readme.read_text(encoding="utf-8")
    text = re.sub(r"\S+ grpo-notebooks && cd", f"{url} grpo-notebooks && cd", text)
    text = re.sub(
        r"<!-- no address -->.*?<!-- end of no address -->\n\n", "", text, flags=re.DOTALL
    )
    text = re.sub(
        r"^\[!\[(?:CI|Open in Colab)\].*\n", "", text, flags=re.MULTILINE
    )  # of an earlier call
    text = re.sub(r" \[!\[Open in Colab\][^)]*\)\]\([^)]*\)", "", text)
    last = "<!-- end of badges -->"
    first = COLAB.format(badges=BADGES, slug=slug, name="00_quickstart.ipynb")
    text = text.replace(last, f"{CI.format(url=url)}\n{first}\n{last}")
    text = re.sub(
        r"^\| (\[\d\d [^\]]+\]\(notebooks/(\S+)\)) \|",
        lambda row: f"| {row[1]} {COLAB.format(badges=BADGES, slug=slug, name=row[2])} |",
        text,
        flags=re.MULTILINE,
    )
    readme.write_text(text, encoding="utf-8")


def _change(path: Path, pattern: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(pattern, lambda _: new, text, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", default="", help="such as https://github.com/YOU/NAME")
    try:
        write(PROJECT, parser.parse_args().url)
    except ValueError as error:
        sys.exit(f"{error}: make address URL=https://github.com/YOU/NAME")
