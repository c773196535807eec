"""Each notebook's outputs are those of its own cells: the stamp that `make notebooks` writes."""

import json
from collections import defaultdict

import pytest

from helpers import PROJECT
from tools.notebooks import NOTEBOOKS, hash_of_code, readme_with_stamps

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name[:2])
def test_the_cells_are_those_that_were_executed(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"]["stamp"]["code"] == hash_of_code(notebook), (
        f"the code of {path.name} has changed since it was executed: make notebooks ONLY={path.name[:2]}"
    )


def test_a_changed_cell_is_noticed_and_a_comment_or_an_address_is_not():
    notebook = json.loads(PATHS[0].read_text(encoding="utf-8"))
    before = hash_of_code(notebook)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    set_up, parameters = "".join(code[0]["source"]), "".join(code[1]["source"])
    assert ' or "" or ' in set_up
    code[0]["source"] = set_up.replace(' or "" or ', ' or "https://github.com/me/it" or ')
    code[1]["source"] = f"{parameters}\n# a comment"
    assert hash_of_code(notebook) == before
    code[1]["source"] = f"{parameters}\nmore = 1"
    assert hash_of_code(notebook) != before


def test_no_two_notebooks_show_the_same_figure_or_table():
    shown = defaultdict(set)
    for path in PATHS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                for kind in ("image/png", "text/html"):
                    if kind in data:
                        shown["".join(data[kind])].add(path.name)
    assert shown and all(len(names) == 1 for names in shown.values())


def test_the_table_of_the_readme_is_that_of_the_stamps():
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert text.count("(notebooks/") >= len(PATHS)
    assert readme_with_stamps(text) == text
