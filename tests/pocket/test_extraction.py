"""The order messages and the model that was trained on them: seeded, disjoint where it matters, and
as the card says.
"""

import json
import random
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.data.tasks import load_task
from helpers.pocket import build, extraction
from helpers.presets import PRESETS, with_overrides
from helpers.results.intervals import wilson_interval
from helpers.tags import THINK_ANSWER
from helpers.training.policy import sample

FOLDER = Path(with_overrides(PRESETS["pocket"], model="pocket-extraction").model_path)
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")
RECORD = {"item": "sea salt", "quantity": 13, "city": "Oslo"}


@pytest.fixture(scope="module")
def sibling():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(FOLDER)


def carded(precision, decoding):
    """(accuracy, low, high, in format, known) of one row of the card's table."""
    row = re.search(rf"^\| {precision} \| {decoding} \| (.*)$", CARD, re.MULTILINE)[1]
    return [float(number) / 100 for number in re.findall(r"([\d.]+)%", row)]


# --- The generator --------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_script_writes(tmp_path):
    extraction.main(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == extraction.ORDERS_CSV.read_bytes()
    assert extraction.orders(seed=1) != extraction.orders(seed=2)


def test_every_message_holds_its_record_and_no_other():
    usable = [row for row in extraction.orders() if row["message"] and row["expert_answer"]]
    assert len(usable) == extraction.ORDERS + 5  # three forwarded and two repeated ones
    for row in usable:
        record = json.loads(row["expert_answer"])
        assert list(record) == ["item", "quantity", "city"]
        assert extraction.is_known(row["message"], record), row


def test_the_file_is_of_reserved_records_and_no_usable_one_comes_twice():
    task = load_task(
        str(extraction.ORDERS_CSV),
        columns={"question": "message", "answer": "expert_answer"},
        holdout_size=100,
    )
    answers = [*task.train["answer"], *task.holdout["answer"]]
    assert all(extraction.reserved(json.loads(answer)) for answer in answers)
    # two blank answers, a blank message, two repeated
    assert sum(task.report["dropped"].values()) == 5
    forwarded = [
        question
        for question in [*task.train["question"], *task.holdout["question"]]
        if "Forwarded" in question
    ]
    assert len(forwarded) == 3 and len(set(answers)) == len(answers) - 3


def test_the_model_was_never_shown_a_reserved_record():
    rng, seen = random.Random(0), 0
    for _ in range(3_000):
        pair = extraction.training_pair(rng)
        if pair is None:
            continue
        item, quantity, city = (re.search(pattern, pair[0])[0] for pattern in _patterns())
        assert not extraction.reserved({"item": item, "quantity": int(quantity), "city": city})
        assert extraction.is_known(pair[1], {"item": item, "quantity": int(quantity), "city": city})
        seen += 1
    assert 0.7 < seen / 3_000 < 0.9  # a fifth is reserved


def _patterns():
    return "|".join(extraction.ITEMS), r"\d+", "|".join(extraction.CITIES)


def test_only_one_shape_is_what_was_asked_for():
    assert sum(extraction.SHAPES.values()) == pytest.approx(1)
    assert extraction.SHAPES["asked_for"] < max(extraction.SHAPES.values())
    for shape in extraction.SHAPES:
        text = extraction.answer_in_shape(shape, RECORD)
        assert (
            extraction.is_asked_for(text, RECORD)
            == THINK_ANSWER.matches(text)
            == (shape == "asked_for")
        )
        assert extraction.is_known(text, RECORD)
        assert not extraction.is_known(text, RECORD | {"quantity": 3})


# --- The model ------------------------------------------------------------------------------------


def test_it_is_small_enough_to_ship():
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pickle")]
    assert f"seed {build.SEED}, {build.EXTRACTION.steps} steps of {build.BATCH_SIZE}" in CARD


def test_the_shipped_tokenizer_is_the_one_the_script_builds(sibling):
    rebuilt, shipped = build.build_tokenizer(build.EXTRACTION), sibling[1]
    assert (
        rebuilt.get_vocab() == shipped.get_vocab()
        and rebuilt.chat_template == shipped.chat_template
    )
    for text in (
        "Ünïcode 你好 <b>x</b>\n",
        '{"a": [1, {"b": "c"}]}',
        "3 boxes of green tea to Lyon",
    ):
        assert shipped.decode(shipped(text)["input_ids"]) == text
    assert len(shipped("green tea")["input_ids"]) == len(shipped('{"item": "')["input_ids"]) == 1


def test_a_batch_of_the_build_teaches_the_completion_alone(sibling):
    batch = build.training_batch(sibling[1], random.Random(1), build.EXTRACTION)
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        learnt = sibling[1].decode(ids[labels != build.IGNORED])
        assert learnt.endswith("<|im_end|>") and "user" not in learnt and "assistant" not in learnt
        assert extraction.SYSTEM_PROMPT in sibling[1].decode(ids)


def test_the_weights_reproduce_the_card(sibling, one_thread):
    accuracy, low, high, _, _ = carded("fp32", "sampled")
    assert 0.15 <= accuracy <= 0.40 and low <= accuracy <= high
    rows = pd.DataFrame(
        row for row in extraction.orders() if row["message"] and row["expert_answer"]
    ).tail(128)
    prompts = [
        [
            {"role": "system", "content": extraction.SYSTEM_PROMPT},
            {"role": "user", "content": message},
        ]
        for message in rows["message"]
    ]
    texts = [
        text for (text,) in sample(*sibling, prompts, max_new_tokens=40, seed=11, progress=False)
    ]
    records = [json.loads(answer) for answer in rows["expert_answer"]]
    right = sum(map(extraction.is_asked_for, texts, records))
    # Another draw than the card's: both are estimates, so their intervals must meet.
    again = wilson_interval(right, len(texts))
    assert again[0] <= high and again[1] >= low
    assert sum(map(extraction.is_known, texts, records)) / len(texts) > 0.9


def test_the_card_is_within_what_grpo_needs():
    for precision in ("fp32", "4-bit"):
        assert 0.15 <= carded(precision, "sampled")[0] <= 0.40
        assert carded(precision, "sampled")[4] > 0.9
        assert carded(precision, "greedy")[0] < 0.60
