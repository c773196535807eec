"""What the tests of the commands share."""

from pathlib import Path

import nbformat
import pytest


@pytest.fixture
def notebook(tmp_path):
    """Writes NN_tiny.ipynb with these code cells, after one of parameters, and returns its path; a
    pair is a cell with its tag.
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
