"""The embedded models: the shipped weights are what their cards say, and they and their data are
what the scripts build.
"""

import hashlib
import json
import random
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.results.evaluation import score
from helpers.results.intervals import wilson_interval
from helpers.rewards.code.rewards import tests_reward
from helpers.training.policy import sample
from tools.pocket import build, extraction, functions, games

FOLDERS = {
    task: PROJECT / "helpers" / "pocket" / recipe.folder for task, recipe in build.RECIPES.items()
}
each = pytest.mark.parametrize("task", build.RECIPES)


def shipped(task: str) -> tuple:
    """The shipped model of a task in 32 bits and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(FOLDERS[task], dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(FOLDERS[task])


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


# --- What the models do ---------------------------------------------------------------------------


def carded(task: str, *cells: str) -> list[float]:
    """The shares in one row of a card's table, from 0 to 1; its head says what they are."""
    card = (FOLDERS[task] / "README.md").read_text(encoding="utf-8")
    begin = re.escape("| " + " | ".join(cells) + " |")
    row = re.search(f"^{begin} (.*)$", card, re.MULTILINE)[1]
    return [float(number) / 100 for number in re.findall(r"([\d.]+)%", row)]


def reproduced(task: str, cells: tuple, prompts: list, is_right, **sampling) -> list[str]:
    """Sample a shipped model, and find it right as often as the row of its card says.

    is_right takes the number of a prompt and the text. Other questions than the card's: both are
    estimates, so their intervals must meet. Returns the texts.
    """
    accuracy, low, high, *_ = carded(task, *cells)
    found = sample(*shipped(task), prompts, progress=False, **sampling)
    texts = [text for (text,) in found]
    right = sum(is_right(number, text) for number, text in enumerate(texts))
    again = wilson_interval(right, len(prompts))
    assert low <= accuracy <= high and again[0] <= high and again[1] >= low
    return texts


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("decoding", "temperature"), [("sampled", 1.0), ("greedy", 0.0)])
def test_the_model_of_sums_is_as_its_card_says(decoding, temperature):
    holdout = load_task("arithmetic/sums", train_size=1, holdout_size=512, seed=11).holdout
    answers = list(holdout["answer"])
    reproduced(
        "arithmetic",
        ("sums", "fp32", decoding),
        list(holdout["prompt"]),
        lambda number, text: score([text], answers[number : number + 1])["accuracy"],
        max_new_tokens=PRESETS["pocket"].max_completion_length,
        temperature=temperature,
    )


@pytest.mark.usefixtures("one_thread")
def test_the_model_of_orders_is_as_its_card_says():
    rows = [row for row in extraction.orders() if row["message"] and row["expert_answer"]][-128:]
    system = {"role": "system", "content": extraction.SYSTEM_PROMPT}
    reproduced(
        "extraction",
        ("fp32", "sampled"),
        [[system, {"role": "user", "content": row["message"]}] for row in rows],
        lambda number, text: extraction.is_asked_for(
            text, json.loads(rows[number]["expert_answer"])
        ),
        max_new_tokens=40,
        seed=11,
    )


@pytest.mark.usefixtures("one_thread")
def test_the_model_of_functions_is_as_its_card_says():
    """It works out as many, and looks as many up."""
    rows = functions.functions()[:128]
    system = {"role": "system", "content": functions.SYSTEM_PROMPT}
    asked = [functions.question(row["text"], row["test_list"]) for row in rows]
    cells = ("fp32", "sampled")
    texts = reproduced(
        "functions",
        cells,
        [[system, {"role": "user", "content": question}] for question in asked],
        lambda number, text: tests_reward(
            [text], tests=[rows[number]["challenge_test_list"]], share=False
        )[0],
        max_new_tokens=40,
        seed=11,
    )
    low, high = wilson_interval(sum(map(functions.is_hard_coded, texts)), len(texts))
    assert low <= carded("functions", *cells)[4] <= high


@pytest.mark.usefixtures("one_thread")
def test_the_model_of_games_keeps_track_of_the_two_numbers():
    """The skill that GRPO builds on is there: after each reply the two are the right ones."""
    model, tokenizer = shipped("games")
    rng, right, seen = random.Random(11), 0, 0
    between = tokenizer("Between ")["input_ids"]
    for _ in range(40):
        question, said = games.good_episode(rng)
        ids, labels = build._conversation(tokenizer, build.GAMES, question, said)
        with torch.no_grad():
            best = model(input_ids=torch.tensor([ids])).logits[0].argmax(-1).tolist()
        for at, token in enumerate(ids):
            if [token] == between and labels[at] == token:
                right += all(best[place - 1] == ids[place] for place in (at + 1, at + 3))
                seen += 1
    assert seen > 100 and right / seen > 0.97
