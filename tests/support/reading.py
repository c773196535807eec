"""The notebooks as tests read them: their cells, what these printed, what they define."""

import ast
from pathlib import Path

import nbformat

from helpers.commands.notebooks import NOTEBOOKS


def notebook(number: str) -> Path:
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path


def cells(path: Path) -> list:
    """The cells of code."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def said(path: Path, line: str = "") -> str:
    """What a notebook printed, with its tables as text; or what the one cell with a line did."""
    chosen = [cell for cell in cells(path) if line in cell.source]
    assert not line or len(chosen) == 1, line
    outputs = [output for cell in chosen for output in cell.outputs]
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
    )


def defined(number: str, *lines: str, **names) -> dict:
    """What the cells with these lines of a notebook define, given what it imports from `helpers` and
    the names that they take over from its other cells.
    """
    code = cells(notebook(number))[1:]  # the first one is for Colab
    found = {}
    for cell in code:
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "helpers":
                exec(ast.unparse(node), found)
    found |= names
    for cell in code:
        if any(line in cell.source for line in lines):
            exec(cell.source, found)
    return found
