"""The shipped weights are what the card says, and the rules that the rest relies on hold."""

import random
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.data.tasks import load_task
from helpers.formats import THINK_ANSWER
from helpers.pocket import build
from helpers.presets import PRESETS
from helpers.results.evaluation import score
from helpers.training.policy import sample

FOLDER = Path(PRESETS["pocket"].model_path)
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pocket():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(FOLDER)


def carded(family, precision, decoding):
    """(accuracy, low, high) of one row of the card's table."""
    row = re.search(rf"^\| {family} \| {precision} \| {decoding} \| (.*)$", CARD, re.MULTILINE)[1]
    return [float(number) / 100 for number in re.findall(r"([\d.]+)%", row)[:3]]


def test_it_is_small_enough_to_ship():
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 5_000_000
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pickle")]


@pytest.mark.parametrize("decoding", ["sampled", "greedy"])
def test_the_weights_reproduce_the_card(pocket, decoding):
    accuracy, low, high = carded("sums", "fp32", decoding)
    holdout = load_task("arithmetic/sums", train_size=1, holdout_size=512, seed=11).holdout
    temperature = {"sampled": 1.0, "greedy": 0.0}[decoding]
    texts = sample(*pocket, list(holdout["prompt"]), max_new_tokens=48, temperature=temperature, progress=False)
    entry = score([text[0] for text in texts], list(holdout["answer"]))
    # Other questions than the card's: both are estimates, so their intervals must meet.
    assert entry["ci95"][0] <= high and entry["ci95"][1] >= low
    assert low <= accuracy <= high


def test_the_card_is_within_what_grpo_needs():
    for precision in ("fp32", "4-bit"):
        assert 0.15 <= carded("sums", precision, "sampled")[0] <= 0.40
        assert carded("sums", precision, "greedy")[0] < 0.60


def test_the_card_names_the_settings_of_the_build():
    assert f"seed {build.SEED}, {build.STEPS} steps of {build.BATCH_SIZE}" in CARD
    assert sum(build.SHAPES.values()) == pytest.approx(1) == sum(build.FAMILIES.values())
    assert build.SHAPES["asked_for"] < max(build.SHAPES.values())


def test_the_shipped_tokenizer_is_the_one_the_script_builds(pocket):
    rebuilt, shipped = build.build_tokenizer(), pocket[1]
    assert rebuilt.get_vocab() == shipped.get_vocab() and rebuilt.chat_template == shipped.chat_template
    for text in ("Ünïcode 你好 <b>x</b>\n", THINK_ANSWER.render("12 + 34 = 46", "46"), "def f(x): return x ** 2"):
        assert shipped.decode(shipped(text)["input_ids"]) == text


def test_no_reserved_problem_is_trained_on(pocket):
    tokenizer, rng = pocket[1], random.Random(0)
    holdout = set(load_task("arithmetic/sums", train_size=1, holdout_size=900).holdout["question"])
    for _ in range(20):
        batch = build.training_batch(tokenizer, rng)
        for text in tokenizer.batch_decode(batch["input_ids"]):
            assert re.search(r"What is [^?]*\?", text)[0] not in holdout


def test_only_the_answer_is_learnt_from(pocket):
    batch = build.training_batch(pocket[1], random.Random(1))
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        learnt = pocket[1].decode(ids[labels != build.IGNORED])
        assert learnt.endswith("<|im_end|>") and "What is" not in learnt and "assistant" not in learnt
        assert torch.equal(ids[labels != build.IGNORED], labels[labels != build.IGNORED])


def test_a_few_steps_of_the_build_lower_the_loss(capsys):
    torch.manual_seed(0)
    tokenizer = build.build_tokenizer()
    model = build.build_model(len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    build.train(model, tokenizer, steps=15)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert losses[-1] < losses[0] - 0.5
