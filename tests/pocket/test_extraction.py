"""The order messages and the model that was trained on them: seeded, disjoint where it matters, and
as the card says.
"""

import json
import random
import re

import pytest

from helpers.data.tasks import load_task
from helpers.pocket import extraction
from helpers.tags import THINK_ANSWER

RECORD = {"item": "sea salt", "quantity": 13, "city": "Oslo"}


# --- The generator --------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_script_writes(tmp_path):
    extraction.main(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == extraction.ORDERS_CSV.read_bytes()
    assert extraction.orders(seed=1) != extraction.orders(seed=2)


def test_the_file_is_of_reserved_records_and_no_usable_one_comes_twice():
    columns = {"question": "message", "answer": "expert_answer"}
    task = load_task(str(extraction.ORDERS_CSV), columns=columns, holdout_size=100)
    answers = [*task.train["answer"], *task.holdout["answer"]]
    assert all(extraction.reserved(json.loads(answer)) for answer in answers)
    # two blank answers, a blank message, two repeated
    assert sum(task.report["dropped"].values()) == 5
    assert len(set(answers)) == len(answers) - 3, "three forwarded messages"


def test_the_model_was_never_shown_a_reserved_record():
    rng = random.Random(0)
    pairs = [pair for pair in (extraction.training_pair(rng) for _ in range(3_000)) if pair]
    assert 0.7 < len(pairs) / 3_000 < 0.9  # a fifth is reserved
    patterns = "|".join(extraction.ITEMS), r"\d+", "|".join(extraction.CITIES)
    for message, completion in pairs:
        item, quantity, city = (re.search(pattern, message)[0] for pattern in patterns)
        record = {"item": item, "quantity": int(quantity), "city": city}
        assert not extraction.reserved(record) and extraction.is_known(completion, record)


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


def test_the_weights_reproduce_the_card(reproduced):
    rows = [row for row in extraction.orders() if row["message"] and row["expert_answer"]][-128:]
    records = [json.loads(row["expert_answer"]) for row in rows]
    system = {"role": "system", "content": extraction.SYSTEM_PROMPT}
    prompts = [[system, {"role": "user", "content": row["message"]}] for row in rows]

    def right(number: int, text: str) -> bool:
        return extraction.is_asked_for(text, records[number])

    cells = ("fp32", "sampled")
    texts = reproduced("extraction", cells, prompts, right, max_new_tokens=40, seed=11)
    assert sum(map(extraction.is_known, texts, records)) / len(texts) > 0.9
