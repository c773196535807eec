"""What the book does to its sources, as an extension of Sphinx: notebooks, docstrings and
formulas.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
from importlib import resources
from pathlib import Path

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx

LONG = 30  # lines; what was printed beyond it, such as a transcript or a log, is folded
# in the cell that only matters there
_COLAB = '{"COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"} & set(os.environ)'
_CI = re.compile(r"^\[!\[CI\].*\n", re.MULTILINE)  # a badge that comes from GitHub
_HEADING = re.compile(r"^(?=#+ )", re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)


def setup(app: Sphinx) -> dict:
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("build-finished", _finish)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_formula, None), block_renderers=(_formula, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    # the table of contents stands beside it: GitHub would show it as code
    if docname == app.config.root_doc:
        source[0] = _CI.sub("", source[0])
        source[0] += "\n" + (Path(app.confdir) / "book" / "contents.md").read_text(encoding="utf-8")
    elif app.env.doc2path(docname).suffix == ".ipynb":
        source[0] = json.dumps(as_page(json.loads(source[0])))


def as_page(notebook: dict) -> dict:
    """A notebook as the book shows it: folded what Jupyter folds, and long outputs; one title; no
    cell for Colab.

    myst-nb folds by tags, Jupyter by metadata. A second `#` heading would be a second title, so
    from there on all headings go down by one.
    """
    cells, shift, titled = [], "", False
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts = _FENCED.split(text)
            if any(part.startswith("# ") or "\n# " in part for part in parts[::2]):
                shift, titled = "#" if titled else "", True
            cell["source"] = "".join(
                part if i % 2 else _HEADING.sub(shift, part) for i, part in enumerate(parts)
            )
        elif _COLAB in text:
            continue
        else:
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), *_folds(cell)]
        cells.append(cell)
    return notebook | {"cells": cells}


def _folds(cell: dict) -> list[str]:
    folded = cell["metadata"].get("jupyter", {})
    if folded.get("source_hidden") and folded.get("outputs_hidden"):
        return ["hide-cell"]
    if folded.get("source_hidden"):
        return ["hide-input"]
    return (
        ["hide-output"]
        if folded.get("outputs_hidden") or any(_lines(each) > LONG for each in cell["outputs"])
        else []
    )


def _lines(output: dict) -> int:
    """The lines of a text; 0 of a figure, of a table, and of a page, such as the completions that
    fold by themselves.
    """
    data = output.get("data", {})
    return (
        0
        if "text/html" in data
        else "".join(output.get("text", data.get("text/plain", ""))).count("\n")
    )


def _docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = as_rst("\n".join(lines), _parameters(obj)).split("\n")


def _parameters(obj: object) -> list[str]:
    try:
        return list(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        return []


def as_rst(docstring: str, parameters: list[str]) -> str:
    """The plain text of a docstring as reStructuredText: `code`, examples, and what is said of each
    parameter on its own line.

    >>> as_rst("See `x`. size: in *bytes*.", ["size"])
    'See ``x``.\\n\\n**size**: in \\\\*bytes\\\\*.\\n'
    """
    names = "|".join(map(re.escape, parameters)) or "(?!)"
    begins = re.compile(rf"(?:^|(?<=[.)])\s+)((?:{names})(?:, (?:{names}))*): ")
    blocks = []
    for block in docstring.strip("\n").split("\n\n"):
        if block.startswith(">>>"):
            blocks.append(block)
            continue
        text, *told = begins.split(" ".join(line.strip() for line in block.splitlines()))
        blocks += [_escaped(text)] if text else []
        blocks += [
            f"**{_escaped(name)}**: {_escaped(said)}"
            for name, said in zip(told[::2], told[1::2], strict=True)
        ]
    return "\n\n".join(blocks) + "\n"


def _escaped(text: str) -> str:
    parts = re.split(r"(?<!`)`([^`]+)`(?!`)", text)
    return "".join(
        f"``{part}``" if i % 2 else re.sub(r"([\\*_`|<>])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def _formula(translator: nodes.NodeVisitor, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    formula = latex2mathml.converter.convert(node.astext(), display="block" if block else "inline")
    translator.body.append(f'<div class="formula">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def _finish(app: Sphinx, error: Exception | None) -> None:
    """The first page under the name that a server looks for, and a font for formulas: without one,
    indices are misplaced.
    """
    if error is None and app.builder.format == "html":
        book = Path(app.outdir)
        shutil.copyfile(book / f"{app.config.root_doc}.html", book / "index.html")
        font = resources.files("ziamath.fonts") / "STIXTwoMath-Regular.ttf"
        (book / "_static" / "math.ttf").write_bytes(font.read_bytes())
