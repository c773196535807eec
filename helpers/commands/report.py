"""`python -m helpers report`: write one HTML page about a run, to send to a colleague.

The page has the facts of the model card and then the text and outputs of the executed notebooks,
without their code. Figures are embedded, so it needs no other file and no network.
"""

import argparse
import html
import re

import nbformat
from nbconvert import HTMLExporter

from helpers.results import card
from helpers.runs import Run

# The notebooks that show results, by their first two characters: the quickstart, 04 and 05, and the
# lessons that train.
_RESULTS = ("00", "04", "05", "07", "09", "10", "11")
# A policy wrote some of the text. Besides escaping it, the page forbids the browser to run scripts
# and to load anything.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{name}: GRPO run</title>
<style>
body {{ max-width: 60rem; margin: auto; padding: 1rem; font-family: sans-serif; line-height: 1.5 }}
table, pre {{ display: block; overflow-x: auto; font-size: 0.85rem }}
td, th {{ padding: 0 0.5rem }}
img {{ max-width: 100% }}
.anchor-link {{ display: none }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
# Characters that a completion may contain and that the page replaces: control characters except
# tabs and line ends, because a terminal that shows the file would obey them, and characters that
# change the direction of the text after them.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("--run", default="demo", metavar="NAME", help="the run (default: demo)")


def main(parsed: argparse.Namespace) -> int:
    """Write report.html into the run folder and print where it is; return 0."""
    run = Run(parsed.run)
    facts = card.read_facts(run)

    # put the facts first; they show the figures only if no notebook does
    shown = _cells_with_results(run, facts.manifest["training"]["written"])
    figures = None if shown else card.figures_of(run)
    first = nbformat.v4.new_markdown_cell(card.markdown(facts, figures))

    # export to HTML
    exporter = HTMLExporter(
        template_name="basic",
        exclude_input=True,
        exclude_output_prompt=True,
        embed_images=True,
    )
    whole = nbformat.v4.new_notebook(cells=[first, *shown])
    body, _ = exporter.from_notebook_node(whole, {"metadata": {"path": str(run.folder)}})
    body = _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", body)
    page = _PAGE.format(name=html.escape(run.name), body=body)
    # a completion may contain half a surrogate pair, which UTF-8 cannot encode
    run.path("report.html").write_text(page, encoding="utf-8", errors="replace")

    print(run.show("report.html"))
    if not shown:
        print(
            "note: the page has only the facts and the figures. To add the output of notebooks 04 "
            f"and 05, execute them as a batch: python -m helpers run --run {run.name} --only 04,05"
        )
    return 0


def _cells_with_results(run: Run, trained: str) -> list:
    """Return the cells of the run's notebooks that show results, without exercises. Only notebooks
    that were executed without an error since the training count.

    trained: the time of the training, in UTC and in ISO format, as in the notebooks. The first 19
        characters are the date and the time in seconds, which sort as text.
    """
    cells = []
    for path in sorted(run.folder.glob("notebooks/*.ipynb")):
        if path.name[:2] not in _RESULTS:
            continue
        notebook = nbformat.read(path, as_version=4)
        executed = notebook.metadata.get("papermill", {}).get("end_time") or ""
        is_older = executed[:19] < trained[:19]
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        has_failed = any(output.output_type == "error" for output in outputs)
        if is_older or has_failed:
            continue
        for cell in notebook.cells:
            is_exercise = {"exercise", "solution"} & set(cell.metadata.get("tags", []))
            if not is_exercise and not cell.source.startswith("### Exercise"):
                cells.append(cell)
    return cells
