"""The published recipes: each resolves, fits its card and leaves nothing open; the page has what
was run and nothing else; a folder with a test file.
"""

import json
from dataclasses import replace

import pytest

from benchmarks import published
from helpers import PROJECT
from helpers.agents import check_environment
from helpers.data.tasks import load_task
from helpers.own_code import named

RECIPES = published.recipes()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_and_fits_its_card(name):
    one = RECIPES[name]
    said = published.plan(one)
    assert any(line.startswith("  at most") for line in said), "the estimate"
    assert {f"  {name}: {value}" for name, value in (one.stated | one.ours).items()} <= set(said)
    left = one.left_to_preset.keys() - {"max_pixels"}  # none of them has pictures
    assert not left, "a preset may change, and the file must not"


def test_each_recipe_says_whether_this_card_can_how_long_and_what_is_missing(monkeypatch):
    monkeypatch.setattr(published, "mismatches", lambda machine: [("vllm", "0.31.0", None)])
    lines = dict(zip(RECIPES, published.doctor(published.this_machine()), strict=True))
    assert all("missing: packages: vllm; an NVIDIA GPU" in line for line in lines.values())
    assert "test.json, MATH-500 itself" in lines["rasbt-math500-no-kl"]
    assert "15.2 → 47.4 %" in lines["rasbt-math500-no-kl"]
    monkeypatch.setattr(published, "mismatches", lambda machine: [])
    one = RECIPES["verl-gsm8k-3b"]
    small = replace(one.machine, gpu="a T4", gpu_memory_gb=15, compute_capability=7.5)
    for machine, said in ((one.machine, "nothing, this card can"), (small, "a T4 has 15 GB")):
        monkeypatch.setattr("helpers.presets.vllm_obstacle", lambda machine: None)
        lines = dict(zip(RECIPES, published.doctor(machine), strict=True))
        assert said in lines["verl-gsm8k-3b"]
    assert 0.1 < one.hours < 24


def test_the_names_of_alphabet_sort_earn_by_their_order():
    one = RECIPES["alphabet-sort-4b"].parameters["environment"]
    game = named("environment", PROJECT / one, "…")()
    assert check_environment(type(game)) == []

    def played(change) -> float:
        asked, listed = game.reset(seed=1), []
        by = 0 if "by first name" in asked else 1
        new = asked.partition("after the name.\n")[2]
        for turn in range(3):
            new = new.split("\n")
            listed = sorted(listed + new, key=lambda name: (name.split()[by], name))
            shown = [name + " // new name!" * (turn > 0 and name in new) for name in listed]
            new = game.sort(names="\n".join(change(shown))).partition("\n")[2]
        return game.get_reward()

    assert played(lambda names: names) == 1.0
    assert played(lambda names: names[::-1]) < 0.6
    assert played(lambda names: []) == 0.0
    assert game.sort(names="") == "There are no more names."


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
