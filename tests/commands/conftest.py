"""Fixtures for the tests of the commands."""

from pathlib import Path

import nbformat
import pytest


@pytest.fixture
def notebook(tmp_path):
    """A function that writes NN_tiny.ipynb with a cell of parameters and the given code cells, and
    returns its path. A pair is a cell and its tag.
    """

    def write(number: str, *cells: str | tuple[str, str]) -> Path:
        tagged = [cell if isinstance(cell, tuple) else (cell, "") for cell in cells]
        made = [
            nbformat.v4.new_code_cell(source, metadata={"tags": [tag] * bool(tag)})
            for source, tag in [('run = "demo"\nnumber = 1', "parameters"), *tagged]
        ]
        names = {"name": "python3", "display_name": "Python 3", "language": "python"}
        about = {"kernelspec": names, "language_info": {"name": "python"}}
        path = tmp_path / f"{number}_tiny.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=about), path)
        return path

    return write
