"""The links of a page that lead nowhere: in the Markdown and the notebooks as GitHub shows them,
and in the book.
"""

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CODE = re.compile(r"^(```+).*?^\1|`[^`\n]+`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^(```+).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}


def broken(path: Path) -> list[str]:
    """The links of a Markdown page, a notebook or a page of the book that lead to no file beside
    it, or to no heading in it.
    """
    missing = []
    for link in links(path):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
        if not target.exists() or (
            parts.fragment and unquote(parts.fragment) not in anchors(target)
        ):
            missing.append(f"{path.name}: {link}")
    return missing


def links(path: Path) -> list[str]:
    if path.suffix == ".html":
        return [
            value
            for tag, name, value in _attributes(path)
            if (tag, name) in _LOADED | {("a", "href")}
        ]
    return [match["target"] for match in _LINK.finditer(_CODE.sub("`code`", _text(path)))]


def loaded(path: Path) -> list[str]:
    """What a page of the book has a browser load from elsewhere while it is read."""
    elsewhere = [
        value
        for tag, name, value in _attributes(path)
        if (tag, name) in _LOADED and urlsplit(value).netloc
    ]
    styles = re.findall(
        r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", path.read_text(encoding="utf-8")
    )
    return elsewhere + styles


@cache
def anchors(path: Path) -> set[str]:
    if path.suffix == ".html":
        return {value for _, name, value in _attributes(path) if name in ("id", "name")}
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _FENCED.sub("", _text(path)), re.MULTILINE):
        slug = re.sub(
            r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        ).replace(" ", "-")
        again = sum(
            each == slug or bool(re.fullmatch(rf"{re.escape(slug)}-\d+", each)) for each in found
        )
        found.add(f"{slug}-{again}" if again else slug)
    return found


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n\n".join(
        "".join(cell["source"])
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "markdown"
    )


@cache
def _attributes(path: Path) -> list[tuple[str, str, str]]:
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.extend(
                (tag, name, value)
                for name, value in attributes
                if value and not value.startswith("data:")
            )

    Reader().feed(path.read_text(encoding="utf-8"))
    return found
