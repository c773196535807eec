"""The published recipes: each resolves, fits its card and leaves nothing open; the row of one that
was run; a folder with a test file.
"""

from dataclasses import replace

import pytest

from benchmarks import published
from helpers import PROJECT
from helpers.agents import check_environment
from helpers.own_code import load_own
from helpers.settings import SETTINGS

RECIPES = published.recipes()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_fits_its_card_and_leaves_no_setting_to_a_preset(name):
    one = RECIPES[name]
    said = published.plan(one)
    assert any(line.startswith("  at most") for line in said), "the estimate"
    assert {f"  {name}: {value}" for name, value in (one.stated | one.ours).items()} <= set(said)
    left = SETTINGS.keys() - (one.stated | one.ours).keys()
    assert left == {"max_pixels"}, "a preset may change, and the file must not"


def test_the_environment_of_alphabet_sort_is_one():
    one = RECIPES["alphabet-sort-4b"].parameters["environment"]
    game = load_own("environment", PROJECT / one, "…")()
    assert check_environment(type(game)) == []


def test_a_row_says_where_theirs_lies():
    greedy = {"accuracy": 1080 / 1319, "ci95": (0.797, 0.838), "n": 1319}
    evaluation = {"baseline": {"greedy": {"accuracy": 0.603}}, "trained": {"greedy": greedy}}
    one = RECIPES["verl-gsm8k-1.5b"]
    said = "77.9 | 81.9 | 79.7 to 83.8 | 60.3 | 1,319 | below | a GPU |"
    assert published.row(one, evaluation, "a GPU") == f"| verl-gsm8k-1.5b | {said}"
    assert "| within |" in published.row(replace(one, published=79.8), evaluation, "a GPU")
    with pytest.raises(ValueError, match="1319 questions were evaluated"):
        published.row(RECIPES["rasbt-math500-no-kl"], evaluation, "a GPU")
