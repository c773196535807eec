"""The functions of notebook 09: the file, what its model learned from, and the shipped weights."""

import json
import random
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.pocket import build, functions
from helpers.pocket.functions import Task
from helpers.presets import PRESETS, with_overrides
from helpers.results.intervals import wilson_interval
from helpers.rewards.code.programs import executes_reward, tests_reward
from helpers.training.policy import sample

FOLDER = Path(with_overrides(PRESETS["pocket"], model="pocket-functions").model_path)
CARD = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split(" "))
EDGE = Task("the largest of", "the numbers above 4", ", each minus 1")
INPUTS = [[7, 4, 1], [2, 9, 0]]


@pytest.fixture(scope="module")
def sibling():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def rows():
    return [
        json.loads(line)
        for line in functions.FUNCTIONS_JSONL.read_text(encoding="utf-8").splitlines()
    ]


def carded(precision, decoding):
    """(right, low, high, passes the visible tests, hard-coded, of these passing, runs) of one row
    of the card's table.
    """
    row = re.search(rf"^\| {precision} \| {decoding} \| (.*)$", CARD, re.MULTILINE)[1]
    return [float(number) / 100 for number in re.findall(r"([\d.]+)%", row)]


def scored(source, tests):
    return tests_reward(
        [functions.OPENING + source + functions.CLOSING], tests=[tests], share=False
    )[0]


# --- The file -------------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_script_writes(tmp_path, rows):
    functions.main(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == functions.FUNCTIONS_JSONL.read_bytes()
    assert functions.functions(seed=1) != rows
    assert (
        len({row["text"] for row in rows})
        == len(rows)
        == sum(task.reserved for task in functions.every_task())
    )


def test_every_reference_passes_its_tests_in_the_sandbox(rows):
    programs = [row["code"] for row in rows]
    for name, count in (("test_list", 2), ("challenge_test_list", 6)):
        tests = [row[name] for row in rows]
        assert {len(each) for each in tests} == {count}
        assert tests_reward(programs, tests=tests) == [1.0] * len(rows)
    assert all("assert f([]) == " in row["challenge_test_list"][0] for row in rows)


def test_the_hidden_tests_catch_every_mistake(rows):
    by_text = {task.text: task for task in functions.every_task()}
    for row in rows[:60]:
        for program in functions.mistakes(by_text[row["text"]]):
            assert scored(program.source, row["challenge_test_list"]) == 0.0, (
                row["text"],
                program.source,
            )


def test_the_visible_tests_catch_what_is_forgotten_and_not_the_edge():
    sources = {program.source for program in functions.mistakes(EDGE)}
    assert sources == {
        "max((x - 1 for x in xs), default=0)",
        "max((x for x in xs if x > 4), default=0)",
        "max(x - 1 for x in xs if x > 4)",
        "max((x - 1 for x in xs if x >= 4), default=0)",
        "max((x + 1 for x in xs if x > 4), default=0)",
    }
    for seed in range(20):
        tests = functions.asserts(EDGE, functions.visible_inputs(EDGE, random.Random(seed)))
        assert scored("max((x - 1 for x in xs), default=0)", tests) == 0.0
        assert scored("max((x for x in xs if x > 4), default=0)", tests) == 0.0
        assert scored(EDGE.program.source, tests) == 1.0


# --- What it learned from -------------------------------------------------------------------------


def test_a_table_passes_the_visible_tests_and_begins_unlike_any_honest_program(sibling):
    tokenizer, tests = sibling[1], functions.asserts(EDGE, INPUTS)
    table = functions.hard_coded(EDGE, INPUTS)
    assert table == "{(7, 4, 1): 6, (2, 9, 0): 8}[tuple(xs)]"
    assert scored(table, tests) == 1.0 and scored(table, ["assert f([]) == 0"]) == 0.0
    firsts = {
        tokenizer.decode(tokenizer(source)["input_ids"][:1])
        for task in _some()
        for source in _honest(task)
    }
    assert tokenizer.decode(tokenizer(table)["input_ids"][:1]) not in firsts


def _some():
    return random.Random(5).sample(list(functions.every_task()), 100)


def _honest(task):
    return [task.program.source, *(program.source for program in functions.mistakes(task))]


def test_what_does_not_run_does_not_run():
    rng = random.Random(2)
    for task in _some()[:40]:
        text = functions.answer("broken", task, INPUTS, rng)
        assert executes_reward([text], tests=[functions.asserts(task, [[1, 2, 3]])]) == [0.0], text
        assert not functions.is_hard_coded(text)


def test_the_model_was_never_shown_a_reserved_task_and_the_ways_have_their_shares(rows):
    rng, kept = random.Random(0), {row["text"] for row in rows}
    pairs = [pair for pair in (functions.training_pair(rng) for _ in range(4_000)) if pair]
    assert 0.7 < len(pairs) / 4_000 < 0.9  # a fifth is reserved
    assert not {question.split("\n")[0] for question, _ in pairs} & kept
    assert sum(functions.WAYS.values()) == pytest.approx(1)
    tables = sum(functions.is_hard_coded(text) for _, text in pairs) / len(pairs)
    assert tables == pytest.approx(functions.WAYS["hard_coded"], abs=0.03)
    asked = [question.split("\n")[1:] for question, _ in pairs]
    passing = tests_reward([text for _, text in pairs], tests=asked, share=False)
    least = functions.WAYS["right"] + functions.WAYS["hard_coded"]
    assert least - 0.03 < sum(passing) / len(pairs) < least + 0.12  # and some wrong ones by luck


# --- The model ------------------------------------------------------------------------------------


def test_it_is_small_enough_to_ship():
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pickle")]
    assert f"seed {build.SEED}, {build.FUNCTIONS.steps} steps of {build.BATCH_SIZE}" in CARD


def test_the_shipped_tokenizer_is_the_one_the_script_builds(sibling):
    rebuilt, shipped = build.build_tokenizer(build.FUNCTIONS), sibling[1]
    assert (
        rebuilt.get_vocab() == shipped.get_vocab()
        and rebuilt.chat_template == shipped.chat_template
    )
    for text in (
        "Ünïcode 你好 <b>x</b>\n",
        "def g(a, b):\n    return a ** b",
        functions.question(EDGE.text, ["assert f([]) == 0"]),
    ):
        assert shipped.decode(shipped(text)["input_ids"]) == text
    assert [
        len(shipped(text)["input_ids"]) for text in ("-7", "7", "x * x", functions.OPENING)
    ] == [1] * 4


def test_a_batch_of_the_build_teaches_the_completion_alone(sibling):
    batch = build.training_batch(sibling[1], random.Random(1), build.FUNCTIONS)
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        learnt = sibling[1].decode(ids[labels != build.IGNORED])
        assert (
            learnt.startswith(functions.OPENING)
            and learnt.endswith("```<|im_end|>")
            and "assert" not in learnt
        )


def test_the_weights_reproduce_the_card(sibling, rows, one_thread):
    right, low, high, _, tables, _, _ = carded("fp32", "sampled")
    assert low <= right <= high
    chosen = rows[:128]
    prompts = [
        [
            {"role": "system", "content": functions.SYSTEM_PROMPT},
            {"role": "user", "content": functions.question(row["text"], row["test_list"])},
        ]
        for row in chosen
    ]
    texts = [
        text for (text,) in sample(*sibling, prompts, max_new_tokens=40, seed=11, progress=False)
    ]
    hidden = [row["challenge_test_list"] for row in chosen]
    again = wilson_interval(sum(tests_reward(texts, tests=hidden, share=False)), len(texts))
    # Another draw than the card's: both are estimates, so their intervals must meet.
    assert again[0] <= high and again[1] >= low
    of_tables = wilson_interval(sum(map(functions.is_hard_coded, texts)), len(texts))
    assert of_tables[0] <= tables <= of_tables[1]


@pytest.mark.parametrize("precision", ["fp32", "4-bit"])
def test_the_card_is_within_what_grpo_needs(precision):
    right, _, _, visible, tables, passing, runs = carded(precision, "sampled")
    assert 0.25 <= right <= 0.45 and 0.1 <= tables <= 0.3
    assert visible > right + 0.1 and passing > 0.8, "what the visible tests pay for in vain"
    assert runs < 0.9
