"""The published recipes: that they resolve, say what they leave out and fit their card; their data;
the verdict; the page.
"""

import json
from dataclasses import replace

import pytest

from benchmarks import published
from helpers import presets
from helpers.data.tasks import load_task
from helpers.results.intervals import wilson_interval

RECIPES = published.recipes()
ONE_AND_A_HALF = RECIPES["verl-gsm8k-1.5b"]


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
    assert one.left_to_preset == {}, "a preset may change, and the file must not"


@pytest.mark.parametrize(
    ("field", "changed", "said"),
    [
        ("card", {"gpu": "NVIDIA L4", "gpu_memory_gb": 10}, "an estimated .* of NVIDIA L4's"),
        ("stated", {"num_generations": 7}, "not whole groups of num_generations=7"),
    ],
)
def test_a_recipe_that_cannot_run_on_its_card_is_refused(field, changed, said):
    one = replace(ONE_AND_A_HALF, **{field: getattr(ONE_AND_A_HALF, field) | changed})
    with pytest.raises(ValueError, match=said):
        published.plan(one)


def test_the_test_file_of_a_folder_is_the_holdout(tmp_path):
    for name, numbers in (("train", range(10, 50)), ("test", range(50, 58))):
        rows = [json.dumps({"question": f"{n}?", "answer": f"#### {n}"}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    task = load_task(str(tmp_path), holdout_size=8)
    assert sorted(task.holdout["answer"]) == [str(n) for n in range(50, 58)]
    assert len(task.train) == 40


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["verl-gsm8k-1.5b"], "needs an NVIDIA GPU with 80 GB and none is visible; --dry-run"),
        (["verl-gsm8k-1.5b", "--dry-run", "--data", "."], "lacks a train or a test file"),
        (["verl-gsm8k-15b"], "there is no recipe 'verl-gsm8k-15b'. Did you mean 'verl-gsm8k-1.5b'"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(tmp_path, monkeypatch, asked, said):
    (tmp_path / "train.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="error: ") as ended:
        published.main(["--recipe", *asked])
    assert said in str(ended.value)


def row(name: str, right: int) -> dict[str, str]:
    greedy = {"accuracy": right / 1319, "ci95": wilson_interval(right, 1319), "n": 1319}
    evaluation = {"baseline": {"greedy": {"accuracy": 0.603}}, "trained": {"greedy": greedy}}
    return published.row(replace(RECIPES[name], published=77.9), evaluation, "a GPU")


def test_a_row_sets_the_greedy_accuracy_beside_theirs():
    rows = [row("verl-gsm8k-1.5b", right) for right in (1028, 1080, 990)]
    assert [one["theirs lies"] for one in rows] == ["within", "below", "above"]
    said = ["verl-gsm8k-1.5b", "77.9", "77.9", "75.6 to 80.1", "60.3", "1,319", "within", "a GPU"]
    assert list(rows[0].values()) == said


def test_the_page_counts_as_reproduced_only_what_is():
    nothing = published.page({})
    assert "No row has been reproduced, because none has been run yet." in nothing
    assert nothing.count(published.NOT_RUN) == len(RECIPES) and published.read_page(nothing) == {}
    rows = {name: row(name, n) for name, n in (("verl-gsm8k-1.5b", 1028), ("verl-gsm8k-3b", 1080))}
    text = published.page(rows)
    assert "theirs lies within our interval: verl-gsm8k-1.5b." in text
    assert published.read_page(text) == rows and text.count(published.NOT_RUN) == len(RECIPES) - 2
    committed = published.RESULTS.read_text(encoding="utf-8")
    assert published.page(published.read_page(committed)) == committed
