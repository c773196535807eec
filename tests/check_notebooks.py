"""What a committed notebook must keep to.

The outputs stay in it, so they must be those of one clean run, on no one's machine.

The hook of pre-commit runs `python tests/check_notebooks.py notebooks/*.ipynb`, which prints one
sentence per problem and then exits with 1; the tests of the notebooks call `problems`. Standard
library only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# Where this checkout lies, and where people's files lie on Linux, macOS, Windows and Colab. What
# stands before keeps out addresses (https://example.org/home/page) and relative paths (../tmp/x).
MACHINE_PATH = re.compile(
    rf"(?<![\w.~-])(?:{re.escape(str(PROJECT))}(?![\w-])|/(?:root|home/\w+|Users/\w+|tmp|content)/[^\s\"'<>]+)"
    r"|\b[A-Za-z]:[\\/]+Users[\\/]+\w+"
)
_WAY_OUT = "execute it again: make notebooks"
_IMAGE = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(["'])\s*[^"'\s]""", re.IGNORECASE)


def problems(path: Path) -> list[str]:
    """What is wrong with the notebook, one sentence each, with file and cell (from 1, text cells
    too); [] if nothing.
    """
    try:
        notebook = json.loads(Path(path).read_text(encoding="utf-8"))
        cells = notebook["cells"]
        found = [f"{path}: {sentence}" for sentence in _of_the_whole(notebook)]
        for number, cell in enumerate(cells, start=1):
            found += [f"{path}, cell {number}: {sentence}" for sentence in _of_a_cell(cell)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"{path}: this is no notebook in format 4 ({type(error).__name__}: {error})."]
    return found


def _of_the_whole(notebook: dict) -> Iterator[str]:
    if not notebook["metadata"].get("language_info", {}).get("name"):
        yield (
            "metadata.language_info has no name, without which papermill fails before it "
            "starts; save it from Jupyter."
        )
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if not any(cell["outputs"] for cell in code):
        yield f"no cell has an output, and a reader on a code host would see no result; {_WAY_OUT}"
    elif [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        yield f"its cells were not all run once, from the first to the last; {_WAY_OUT}"


def _of_a_cell(cell: dict) -> Iterator[str]:
    if match := MACHINE_PATH.search("".join(cell["source"])):
        yield (
            f"its source names a path of one machine, {match.group()!r}; make it relative to "
            "the project."
        )
    for output in cell.get("outputs", []):
        if output["output_type"] == "error":
            yield (
                f"a traceback is stored, {output['ename']}: {output['evalue'][:80]!r}; mend the "
                f"cell and {_WAY_OUT}"
            )
        elif output.get("name") == "stderr":
            yield (
                f"it wrote to stderr, {''.join(output['text']).strip()[:80]!r}; mend the cause "
                f"and {_WAY_OUT}"
            )
        elif match := MACHINE_PATH.search(_readable(output)):
            yield (
                f"its output names a path of one machine, {match.group()!r}; print it relative "
                f"to the project and {_WAY_OUT}"
            )
        if _unsaid(output):
            yield (
                "a figure has no alt text; end the cell with helpers.figures' shown(figure, "
                f"'what it shows') and {_WAY_OUT}"
            )


def _readable(output: dict) -> str:
    """What an output says in text; a picture is left out, because chance may spell a path in its
    base64.
    """
    data = output.get("data", {})
    shown = [data[kind] for kind in data if not kind.startswith("image/")]
    text = "\n".join(
        "".join(part) if isinstance(part, list) else str(part)
        for part in [output.get("text", ""), *shown]
    )
    return re.sub(r"data:image/\w+;base64,[\w+/=]*", "", text)


def _unsaid(output: dict) -> bool:
    """Whether an output has a picture that no sentence stands for."""
    data = output.get("data", {})
    html = data.get("text/html", "")
    if any(kind.startswith("image/") for kind in data):
        return True  # JupyterLab shows such a picture without alt text, whatever its metadata say
    return any(
        not _ALT.search(image)
        for image in _IMAGE.findall(html if isinstance(html, str) else "".join(html))
    )


def main(paths: list[str]) -> int:
    """The exit code: 1 where any of the notebooks has a problem, after all problems are printed."""
    found = [sentence for path in paths for sentence in problems(Path(path))]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
