"""The page that `report` writes: the facts of a run and its notebooks' outputs, in one file."""

import re

import nbformat
import pytest
from finished import change

from helpers.runs import Run

PIXEL = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0:~\x9bU"
    b"\0\0\0\nIDATx\x9cc\xf8\x0f\0\1\1\1\0\x1b\xb6\xeeV\0\0\0\0IEND\xaeB`\x82"
)


def page_of(cli, run: Run) -> str:
    code, out, _ = cli("report", "--run", run.name)
    assert code == 0 and out.startswith(run.show("report.html"))
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    # the page loads nothing from the network and runs no script
    assert not re.search(r'src="(?!data:)', page) and "default-src 'none'" in page
    return page


def executed_copy(run: Run, number: str, output: str, ended: str) -> None:
    """Write a notebook into the run, as papermill leaves it."""
    cells = [
        nbformat.v4.new_code_cell(
            "the_code = 1",
            outputs=[nbformat.v4.new_output("stream", name="stdout", text=output)],
        ),
        nbformat.v4.new_markdown_cell(f"### Exercise {number}.1: Guess"),
        nbformat.v4.new_code_cell(
            "check()",
            metadata={"tags": ["exercise"]},
            outputs=[nbformat.v4.new_output("stream", name="stdout", text="Not answered yet")],
        ),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"papermill": {"end_time": ended}})
    nbformat.write(notebook, run.path(f"notebooks/{number}_any.ipynb"))


def test_the_report_shows_the_facts_and_then_the_notebooks_without_code(run, cli):
    for number in ("02", "04", "05"):
        executed_copy(run, number, f"shown by {number}", "2100-01-01T00:00:00.123456")
    whole = page = page_of(cli, run)
    for part in (
        "<h1",
        "32 steps and merged.",
        "Training raised sampled accuracy",
        "39d12b00ee4c3ef50872",
        "shown by 04",
        "shown by 05",
    ):
        assert part in page, part
        page = page[page.index(part) :]
    assert "no figures" not in whole, "notebook 04 shows them below"
    for absent in ("the_code", "Exercise", "Not answered", "shown by 02", "from transformers"):
        assert absent not in page, absent


def test_outdated_notebooks_are_replaced_by_the_figures(run, cli):
    executed_copy(run, "05", "of another model", "2000-01-01T00:00:00.123456")
    run.path("figures/reward.png").write_bytes(PIXEL)
    page = page_of(cli, run)
    assert "of another model" not in page and page.count('src="data:image/png;base64,') == 1
    code, out, _ = cli("report", "--run", "told")
    assert code == 0 and "note: " in out and "--run told --only 04,05" in out


def test_an_unfinished_run_names_the_next_notebook(run, cli):
    change(run, "manifest.json", lambda manifest: manifest.pop("training"))
    code, _, err = cli("report", "--run", "told")
    assert code == 2 and "03_grpo_training" in err
    code, _, err = cli("report", "--run", "nobody")
    assert code == 2 and ": told." in err
    assert not Run("nobody").folder.exists()


@pytest.mark.slow
def test_the_report_of_the_executed_notebooks(executed, cli):
    page = page_of(cli, executed)
    assert re.search(r"(Training (raised|lowered)|The change in) sampled accuracy", page)
    assert "Did it help?" in page and "exact McNemar" in page
    assert page.count("<img") > 8 and "Measurement(folder" not in page
