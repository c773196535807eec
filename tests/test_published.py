"""The published recipes: each resolves, fits its card and leaves nothing open; the page has what
was run and nothing else; a folder with a test file.
"""

import json

import pytest

from benchmarks import published
from helpers.data.tasks import load_task

RECIPES = published.recipes()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_and_fits_its_card(name):
    one = RECIPES[name]
    said = published.plan(one)
    assert any(line.startswith("  at most") for line in said), "the estimate"
    assert {f"  {name}: {value}" for name, value in (one.stated | one.ours).items()} <= set(said)
    assert one.left_to_preset == {}, "a preset may change, and the file must not"


def test_the_test_file_of_a_folder_is_the_holdout(tmp_path):
    for name, numbers in (("train", range(10, 50)), ("test", range(50, 58))):
        rows = [json.dumps({"question": f"{n}?", "answer": f"#### {n}"}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    task = load_task(str(tmp_path), holdout_size=8)
    assert sorted(task.holdout["answer"]) == [str(n) for n in range(50, 58)]
    assert len(task.train) == 40


def test_the_page_is_made_of_the_rows_that_have_been_run():
    greedy = {"accuracy": 1080 / 1319, "ci95": (0.797, 0.838), "n": 1319}
    evaluation = {"baseline": {"greedy": {"accuracy": 0.603}}, "trained": {"greedy": greedy}}
    name = "verl-gsm8k-1.5b"
    rows = {name: published.row(RECIPES[name], evaluation, "a GPU")}
    assert rows[name]["theirs lies"] == "below" and rows[name]["95 % interval"] == "79.7 to 83.8"
    text = published.page(rows)
    assert published.read_page(text) == rows
    assert text.count(published.NOT_RUN) == len(RECIPES) - 1
    committed = published.RESULTS.read_text(encoding="utf-8")
    assert published.page(published.read_page(committed)) == committed
