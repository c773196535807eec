"""The generator of pictures: its answers are in the pictures, and no picture is on both sides."""

import itertools
import random
from collections import Counter

import pytest

from helpers.data import pictures
from helpers.data.tasks import load_task


def seen(picture, cell) -> set:
    """Return the names of the colors in a cell of a picture."""
    row, column = cell
    side = pictures.CELL
    box = (side * column, side * row, side * column + side, side * row + side)
    names = {rgb: name for name, rgb in pictures.COLORS.items()}
    return {names.get(rgb) for _, rgb in picture.crop(box).getcolors()} - {None}


@pytest.mark.parametrize("kind", pictures.KINDS)
def test_the_answer_is_in_the_picture(kind):
    rng = random.Random(5)
    for _ in range(200):
        problem = pictures.picture_problem(rng, kind)
        scene, asked, named = problem["scene"], problem["asked"], problem["named"]
        assert named in problem["question"]
        cells_named = [cell for cell, color_and_shape in scene.items() if named in color_and_shape]
        assert sorted(cells_named) == sorted(asked), "the question is about these cells only"
        if kind == "left":
            ((row, column),) = asked
            assert scene[row, column - 1][1] == problem["answer"]
        elif kind == "color":
            assert scene[asked[0]][0] == problem["answer"]
        else:
            assert str(len(asked)) == problem["answer"]
        picture = pictures.draw_scene(scene)
        assert picture.size == (32, 32)
        for cell in itertools.product(range(pictures.GRID), repeat=2):
            assert seen(picture, cell) == ({scene[cell][0]} if cell in scene else set())


def test_shapes_look_different_in_every_color():
    drawn = {
        (color, shape): pictures.draw_scene({(0, 0): (color, shape)}).tobytes()
        for color in pictures.COLORS
        for shape in pictures.SHAPES
    }
    assert len(set(drawn.values())) == 16


def test_counts_are_unbalanced_and_the_other_answers_are_not():
    rng = random.Random(1)
    for kind, number_of_answers, low, high in (
        ("count", 3, 0.65, 0.75),
        ("left", 4, 0.22, 0.3),
        ("color", 4, 0.22, 0.3),
    ):
        answers = Counter(pictures.picture_problem(rng, kind)["answer"] for _ in range(1000))
        [(_, most)] = answers.most_common(1)
        assert len(answers) == number_of_answers
        assert low < most / 1000 < high


def test_the_source_is_seeded_and_no_picture_is_on_both_sides():
    sizes = {"train_size": 300, "holdout_size": 60}
    task = load_task("pictures/shapes", seed=1, **sizes)
    again, other = (load_task("pictures/shapes", seed=seed, **sizes) for seed in (1, 2))
    assert task.train.equals(again.train) and task.report == again.report
    assert task.report["fingerprint"] != other.report["fingerprint"]
    # the same question about many pictures is not a duplicate
    assert (len(task.train), len(task.holdout)) == (300, 60)
    assert not set(task.train["image"]) & set(task.holdout["image"])
    assert all(
        pictures.is_reserved(pictures.open_picture(image)) for image in task.holdout["image"]
    )
