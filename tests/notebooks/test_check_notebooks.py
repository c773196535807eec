"""The check of committed notebooks: each kind of bad one is refused in a sentence that names file
and cell.
"""

from pathlib import Path

import nbformat
import pytest
from check_notebooks import MACHINE_PATH, PROJECT, main, problems
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Writes a clean notebook of a text cell and two code cells, with what is given put in; returns
    its name.
    """
    monkeypatch.chdir(tmp_path)

    def write(*outputs, source="print(4)", counts=(1, 2), metadata=None) -> Path:
        printed = new_output("stream", name="stdout", text="4\n")
        cells = [
            new_markdown_cell("# A sum"),
            new_code_cell("2 + 2", execution_count=counts[0], outputs=[printed]),
            new_code_cell(source, execution_count=counts[1], outputs=list(outputs)),
        ]
        metadata = {"language_info": {"name": "python"}} if metadata is None else metadata
        nbformat.write(new_notebook(cells=cells, metadata=metadata), "sum.ipynb")
        return Path("sum.ipynb")

    return write


def told(text: str):
    return new_output("stream", name="stdout", text=text)


def shown(kind: str, data):
    return new_output("display_data", data={kind: data})


TRACEBACK = new_output(
    "error", ename="ValueError", evalue="no rows", traceback=["ValueError: no rows"]
)
WARNING = new_output("stream", name="stderr", text="FutureWarning: soon\n")
# as chance may spell it
SAID = shown("text/html", '<img alt="It rises." src="data:image/png;base64,iVBORw0KGgo/tmp/AAAA">')


@pytest.mark.parametrize(
    "outputs", [[], [told("runs/demo\n")], [SAID], [shown("text/html", "<b>4</b>")]]
)
def test_a_clean_notebook_passes(notebook, outputs):
    assert problems(notebook(*outputs)) == []


CELL = "sum.ipynb, cell 3: "
NO_ALT = f"{CELL}a figure has no alt text"
TWO = ['<img alt="It rises." src="x.png">\n', "<IMG ALT='' SRC='y.png'>"]


@pytest.mark.parametrize(
    ("output", "changes", "sentence"),
    [
        (TRACEBACK, {}, f"{CELL}a traceback is stored, ValueError: 'no rows'"),
        (WARNING, {}, f"{CELL}it wrote to stderr, 'FutureWarning: soon"),
        (
            told("saved /home/bea/runs\n"),
            {},
            f"{CELL}its output names a path of one machine, '/home",
        ),
        (shown("text/html", "<td>/tmp/x/y</td>"), {}, "path of one machine, '/tmp/x/y'"),
        (shown("application/json", {"path": "C:\\Users\\b\\runs"}), {}, "path of one machine"),
        (shown("image/png", "iVBORw0KGgo"), {}, NO_ALT),
        (shown("image/svg+xml", "<svg/>"), {}, NO_ALT),
        (shown("text/html", '<img src="data:image/png;base64,iVBORw0KGgo">'), {}, NO_ALT),
        (shown("text/html", '<img alt=" " src="x.png">'), {}, NO_ALT),
        (shown("text/html", TWO), {}, NO_ALT),
        (
            told("4"),
            {"source": "open('/Users/bea/mine.csv')"},
            f"{CELL}its source names a path of one machine, '/Users/bea/mine.csv'",
        ),
        (told("4"), {"counts": (1, None)}, "sum.ipynb: its cells were not all run once"),
        (told("4"), {"counts": (2, 1)}, "sum.ipynb: its cells were not all run once"),
        (told("4"), {"counts": (1, 3)}, "sum.ipynb: its cells were not all run once"),
        (told("4"), {"metadata": {}}, "sum.ipynb: metadata.language_info has no name"),
    ],
)
def test_what_is_wrong_is_named_with_its_notebook_and_cell(notebook, output, changes, sentence):
    (problem,) = problems(notebook(told("4"), output, **changes))
    assert problem.startswith("sum.ipynb") and sentence in problem


PATHS = [
    *("/home/anna/x", "/Users/anna/x", "/root/x", "/tmp/x", "/content/x", "file:///tmp/x"),
    *("C:\\Users\\anna", "d:/Users/anna", str(PROJECT), f"{PROJECT}/runs", f'"{PROJECT}"'),
]
NO_PATHS = [
    *("runs/demo/tmp/x", "../tmp/x", "~/tmp/x", "https://example.org/home/anna/x"),
    *("/tmp", "<think>/answer", "C:\\data", "and/or"),
]


@pytest.mark.parametrize("text", PATHS + NO_PATHS)
def test_a_path_of_a_machine_is_seen_and_nothing_else(text):
    assert bool(MACHINE_PATH.search(f"saved to {text} now")) == (text in PATHS)


def test_the_command_prints_every_problem_of_every_notebook_and_fails(notebook, capsys):
    clean, bad = notebook(), notebook(TRACEBACK, WARNING).rename("bad.ipynb")
    assert main([notebook()]) == 0 and capsys.readouterr().out == ""
    assert main([clean, bad, "absent.ipynb"]) == 1
    printed = [line[:18] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["bad.ipynb, cell 3:", "bad.ipynb, cell 3:", "absent.ipynb: this"]
