"""The published recipes: that they resolve, say what they leave out and fit their card; their data;
the verdict; the page.
"""

import json
from dataclasses import replace

import pytest

from benchmarks import published
from helpers import presets
from helpers.data.tasks import load_task

RECIPES = published.recipes()
ONE_AND_A_HALF = RECIPES["verl-gsm8k-1.5b"]


# --- Recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_fits_its_card_and_says_what_it_cannot_set(name):
    one = RECIPES[name]
    said = published.plan(one)
    assert any(line.startswith("  at most") for line in said), "the estimate"
    given = {setting: value for setting, value in one.parameters.items() if setting != "preset"}
    assert given | one.cannot_be_set == one.stated | one.ours
    assert {f"  {name}: {value}" for name, value in (one.stated | one.ours).items()} <= set(said)
    for name in given.keys() & {*presets.SETTINGS}:
        assert given[name] in (None, getattr(one.settings, name)), name
    assert one.left_to_preset == {}, (
        "what enters a training is in the file, not in a preset that may change"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"card": ONE_AND_A_HALF.card | {"gpu": "NVIDIA L4", "gpu_memory_gb": 10}},
            "needs an estimated .* of NVIDIA L4's",
        ),
        (
            {"stated": ONE_AND_A_HALF.stated | {"num_generations": 7}},
            "not whole groups of num_generations=7",
        ),
    ],
)
def test_a_recipe_that_cannot_run_on_its_card_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        published.plan(replace(ONE_AND_A_HALF, **change))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train": "question"}, "lacks a train or a test file"),
        ({"train": "problem", "test": "problem"}, "no column 'question'"),
        ({}, "could not be fetched"),
    ],
)
def test_a_dry_run_refuses_data_that_the_recipe_cannot_take(tmp_path, files, said):
    for name, column in files.items():
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps({column: "What is 1 + 1?", "answer": "2"}) + "\n", encoding="utf-8"
        )
    with pytest.raises(SystemExit, match="error: ") as ended:
        published.main(["--recipe", "verl-gsm8k-1.5b", "--dry-run", "--data", str(tmp_path)])
    assert said in str(ended.value)


def test_the_test_file_of_a_folder_is_the_holdout(tmp_path):
    for name, numbers in (("train", range(10, 50)), ("test", range(50, 58))):
        rows = [json.dumps({"question": f"{n}?", "answer": f"#### {n}"}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    task = load_task(str(tmp_path), holdout_size=8)
    assert sorted(task.holdout["answer"]) == [str(n) for n in range(50, 58)]
    assert len(task.train) == 40


# --- The table ------------------------------------------------------------------------------------


def evaluation(right: int, n: int) -> dict:
    from helpers.results.intervals import wilson_interval

    trained = {"accuracy": right / n, "ci95": list(wilson_interval(right, n)), "n": n}
    return {
        "baseline": {"accuracy": 0.1, "greedy": {"accuracy": 0.603, "ci95": [0.5, 0.7], "n": n}},
        "trained": {"accuracy": 0.2, "ci95": [0.1, 0.3], "n": n, "greedy": trained},
    }


@pytest.mark.parametrize(("right", "lies"), [(1028, "within"), (1080, "below"), (990, "above")])
def test_a_row_sets_the_greedy_accuracy_beside_theirs(right, lies):
    found = published.row(ONE_AND_A_HALF, evaluation(right, 1319), "a GPU")
    assert (found["theirs, %"], found["before, %"], found["questions"], found["on"]) == (
        "77.9",
        "60.3",
        "1,319",
        "a GPU",
    )
    assert found["ours, %"] == f"{100 * right / 1319:.1f}" and found["theirs lies"] == lies
    if right == 1028:
        assert found["95 % interval"] == "75.6 to 80.1"


def test_the_page_counts_as_reproduced_only_what_is():
    nothing = published.page({})
    assert "No row has been reproduced, because none has been run yet." in nothing
    assert nothing.count(published.NOT_RUN) == len(RECIPES) and published.read_page(nothing) == {}
    rows = {
        name: published.row(
            replace(RECIPES[name], published=77.9), evaluation(right, 1319), "a GPU"
        )
        for name, right in (("verl-gsm8k-1.5b", 1028), ("verl-gsm8k-3b", 1080))
    }
    text = published.page(rows)
    assert "theirs lies within our interval: verl-gsm8k-1.5b." in text
    assert published.read_page(text) == rows and text.count(published.NOT_RUN) == len(RECIPES) - 2
    only_below = published.page({"verl-gsm8k-3b": rows["verl-gsm8k-3b"]})
    assert "theirs lies within our interval: none." in only_below


def test_the_page_in_the_repository_is_up_to_date():
    text = published.RESULTS.read_text(encoding="utf-8")
    assert published.page(published.read_page(text)) == text


# --- The command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("verl-gsm8k-1.5b", "needs an NVIDIA GPU with 80 GB and none is visible; --dry-run"),
        ("verl-gsm8k-15b", "there is no recipe 'verl-gsm8k-15b'. Did you mean 'verl-gsm8k-1.5b'?"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(asked, said):
    with pytest.raises(SystemExit, match="error: ") as ended:
        published.main(["--recipe", asked])
    assert said in str(ended.value)
