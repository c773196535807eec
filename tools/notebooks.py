"""Execute committed notebooks and stamp them: `make notebooks`, `make notebooks ONLY=04`.

The stamp, `metadata.stamp` of a notebook, says of which code its outputs are (a hash), when, at
which commit, on which machine and with which packages it ran, and for how long. The README's table
of notebooks takes its dates from the stamps, and `tests/pages/test_stamps.py` compares both with
the cells.
"""

import argparse
import ast
import hashlib
import json
import re
import subprocess
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from helpers import PROJECT
from helpers.environment import this_machine

PACKAGES = ("torch", "transformers", "trl", "unsloth", "peft", "bitsandbytes")
NOTEBOOKS = PROJECT / "notebooks"


def hash_of_code(notebook: dict) -> str:
    """Return a hash of what the code cells compute: comments do not count, nor does the cell for
    Colab, which does nothing elsewhere and holds the address that `make address` writes.
    """
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    code = [ast.dump(ast.parse(cell)) for cell in cells if not cell.startswith("# In Colab")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


def execute(path: Path) -> None:
    """Execute a notebook in place, as Jupyter does, and stamp it. A cell that fails raises, and
    leaves the file as it was.
    """
    notebook = nbformat.read(path, as_version=4)
    began = time.monotonic()
    NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    seconds = time.monotonic() - began
    git = ["git", "-C", str(PROJECT), "rev-parse", "--short=12", "HEAD"]
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    notebook.metadata["stamp"] = {
        "code": hash_of_code(notebook),
        "after_commit": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "date": str(date.today()),
        "seconds": round(seconds),
        "machine": f"{this_machine().cores} cores" + (f" of {model[1]}" if model else ""),
        "packages": {name: version(name) for name in PACKAGES},
    }
    nbformat.write(notebook, path)
    print(f"{path.name}: {seconds:.0f} s", flush=True)


def readme_with_stamps(text: str) -> str:
    """Return the README with each stamp's date, and the exercises counted, in its table."""

    def row(found: re.Match) -> str:
        notebook = json.loads((NOTEBOOKS / found["name"]).read_text(encoding="utf-8"))
        if "stamp" not in notebook["metadata"]:
            return found[0]
        headings = [
            line for cell in notebook["cells"] for line in "".join(cell["source"]).splitlines()
        ]
        exercises = sum(line.startswith("### Exercise ") for line in headings)
        return f"{found['start']}| {exercises or '–'} | {notebook['metadata']['stamp']['date']} |"

    pattern = r"^(?P<start>\| \[\d\d [^\]]+\]\(notebooks/(?P<name>[^)]+)\).*)\| [^|]+ \| [\d-]+ \|$"
    return re.sub(pattern, row, text, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="04, or 0[1-3]; default: all")
    for path in sorted(NOTEBOOKS.glob(f"{parser.parse_args().only}*.ipynb")):
        execute(path)
    readme = PROJECT / "README.md"
    readme.write_text(readme_with_stamps(readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
