"""The pocket models: the shipped weights are what their cards say, and they and their data are
what the scripts build.
"""

import hashlib
import random
import re

import pytest
from transformers import AutoTokenizer

from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.results.evaluation import score
from helpers.training.sampling import sample
from tools.pocket import build, extraction, functions

FOLDERS = {
    task: PROJECT / "helpers" / "pocket" / recipe.folder for task, recipe in build.RECIPES.items()
}
each = pytest.mark.parametrize("task", build.RECIPES)


# --- What the scripts build -----------------------------------------------------------------------


@each
def test_it_is_small_enough_to_ship_and_its_card_names_the_settings_of_the_build(task):
    files = [path for path in FOLDERS[task].iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pickle")]
    card = " ".join((FOLDERS[task] / "README.md").read_text(encoding="utf-8").split())
    recipe = build.RECIPES[task]
    steps = f"({recipe.steps}|{recipe.steps:,}) steps of {recipe.batch_size}"
    assert re.search(rf"seed {build.SEED}, {steps}", card)


@each
def test_the_shipped_tokenizer_is_the_one_the_script_builds(task):
    recipe = build.RECIPES[task]
    built, shipped = build.build_tokenizer(recipe), AutoTokenizer.from_pretrained(FOLDERS[task])
    assert built.get_vocab() == shipped.get_vocab()
    assert built.chat_template == shipped.chat_template
    response = build.RESPONSE_TEMPLATE if task == "games" else None
    assert getattr(built, "response_template", None) == response
    for text in ("Ünïcode 你好 <b>x</b>\n", "def f(x): return x ** 2", '{"a": [1, {"b": "c"}]}'):
        assert shipped.decode(shipped(text)["input_ids"]) == text


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        ("arithmetic", "e6ef3c03703d70f1"),
        ("extraction", "86b93516176a6a0c"),
        ("functions", "d576a39d55d91407"),
        ("games", "2e411bacaff020ac"),
    ],
)
def test_the_models_are_built_from_the_batches_that_they_were_built_from(task, digest):
    recipe = build.RECIPES[task]
    batch = next(build.training_batches(build.build_tokenizer(recipe), random.Random(3), recipe))
    drawn = b"".join(batch[key].numpy().tobytes() for key in ("input_ids", "labels"))
    assert hashlib.sha256(drawn).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("write", "data"),
    [(extraction.main, extraction.ORDERS_CSV), (functions.main, functions.FUNCTIONS_JSONL)],
)
def test_the_shipped_data_is_what_the_script_writes(tmp_path, write, data):
    write(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == data.read_bytes()


# --- What a model does ----------------------------------------------------------------------------


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("decoding", "temperature"), [("sampled", 1.0), ("greedy", 0.0)])
def test_the_model_of_sums_is_as_its_card_says(model, tokenizer, decoding, temperature):
    """On other questions than the card's: both are estimates, so their intervals must meet."""
    card = (FOLDERS["arithmetic"] / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| sums \| fp32 \| {decoding} \| (.*)$", card, re.MULTILINE)[1]
    accuracy, low, high, *_ = (float(share) / 100 for share in re.findall(r"([\d.]+)%", row))
    holdout = load_task("arithmetic/sums", train_size=1, holdout_size=512, seed=11).holdout
    given = {"max_new_tokens": PRESETS["pocket"].max_completion_length}
    asked = list(holdout["prompt"])
    found = sample(model, tokenizer, asked, temperature=temperature, **given)
    again = score([text for (text,) in found], list(holdout["answer"]))["ci95"]
    assert low <= accuracy <= high and again[0] <= high and again[1] >= low
