"""The shipped weights are what the card says, and the rules that the rest relies on hold."""

import random
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.data.arithmetic import careless, is_careful
from helpers.data.tasks import load_task
from helpers.pocket import build
from helpers.presets import PRESETS
from helpers.results.evaluation import score
from helpers.tags import THINK_ANSWER
from helpers.training.policy import sample

FOLDER = Path(PRESETS["pocket"].model_path)
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pocket():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(FOLDER)


def carded(family, precision, decoding):
    """One row of the card: accuracy, low, high, in format, careful, right among the careful, right
    among the careless.
    """
    row = re.search(rf"^\| {family} \| {precision} \| {decoding} \| (.*)$", CARD, re.MULTILINE)[1]
    return [float(number) / 100 for number in re.findall(r"([\d.]+)%", row)]


def test_it_is_small_enough_to_ship():
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pickle")]


@pytest.mark.parametrize("decoding", ["sampled", "greedy"])
def test_the_weights_reproduce_the_card(pocket, decoding):
    accuracy, low, high, *_ = carded("sums", "fp32", decoding)
    holdout = load_task("arithmetic/sums", train_size=1, holdout_size=512, seed=11).holdout
    temperature = {"sampled": 1.0, "greedy": 0.0}[decoding]
    texts = sample(
        *pocket,
        list(holdout["prompt"]),
        max_new_tokens=PRESETS["pocket"].max_completion_length,
        temperature=temperature,
        progress=False,
    )
    entry = score([text[0] for text in texts], list(holdout["answer"]))
    # Other questions than the card's: both are estimates, so their intervals must meet.
    assert entry["ci95"][0] <= high and entry["ci95"][1] >= low
    assert low <= accuracy <= high


@pytest.mark.parametrize("precision", ["fp32", "4-bit"])
def test_the_card_is_within_what_grpo_needs(precision):
    accuracy, _, _, in_format, careful, right_if_careful, right_if_careless = carded(
        "sums", precision, "sampled"
    )
    assert 0.15 <= accuracy <= 0.35 and in_format >= 0.6
    assert careful <= 0.35 and right_if_careful >= 0.9 and right_if_careless <= 0.4
    # Wherever the number stands: what a policy that only learned the format would come to.
    assert careful * right_if_careful + (1 - careful) * right_if_careless <= 0.5


def test_the_card_says_that_the_careful_way_is_within_reach():
    assert float(re.search(r"pass@16 of sums in 4 bits, 128 questions: ([\d.]+)%", CARD)[1]) >= 90


def test_the_card_names_the_settings_of_the_build():
    assert f"seed {build.SEED}, {build.STEPS} steps of {build.BATCH_SIZE}" in " ".join(CARD.split())
    assert (
        sum(build.SHAPES.values())
        == pytest.approx(1)
        == sum(build.FAMILIES.values())
        == sum(build.WORKINGS.values())
    )
    assert build.WORKINGS["careful"] < build.WORKINGS["careless"]
    assert (
        f"forgotten | `{careless([46, 75, 28], ['+', '+'])[0]}` | {build.WORKINGS['careless']:.0%}"
        in CARD
    )


def test_what_it_learns_from_has_the_shares_that_the_card_names():
    rng = random.Random(3)
    pairs = [pair for pair in (build.arithmetic_pair(rng) for _ in range(4000)) if pair]
    texts = [text for _, text in pairs]
    assert sum(map(is_careful, texts)) / len(texts) == pytest.approx(
        build.WORKINGS["careful"], abs=0.03
    )
    in_format = [text.endswith("</answer>") for text in texts]
    assert sum(in_format) / len(texts) == pytest.approx(build.SHAPES["asked_for"], abs=0.03)


def test_the_shipped_tokenizer_is_the_one_the_script_builds(pocket):
    rebuilt, shipped = build.build_tokenizer(), pocket[1]
    assert (
        rebuilt.get_vocab() == shipped.get_vocab()
        and rebuilt.chat_template == shipped.chat_template
    )
    for text in (
        "Ünïcode 你好 <b>x</b>\n",
        THINK_ANSWER.render("12 + 34 = 46", "46"),
        "def f(x): return x ** 2",
    ):
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
        assert (
            learnt.endswith("<|im_end|>") and "What is" not in learnt and "assistant" not in learnt
        )
        assert torch.equal(ids[labels != build.IGNORED], labels[labels != build.IGNORED])


@pytest.mark.slow
def test_a_few_steps_of_the_build_lower_the_loss(capsys):
    torch.manual_seed(0)
    tokenizer = build.build_tokenizer()
    model = build.build_model(len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    build.train(model, tokenizer, steps=15)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert losses[-1] < losses[0] - 0.5
