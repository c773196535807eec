"""The functions of notebook 09: the file, what its model learned from, and the shipped weights."""

import json
import random

import pytest

from helpers.pocket import build, functions
from helpers.pocket.functions import Task
from helpers.results.intervals import wilson_interval
from helpers.rewards.code.programs import executes_reward, tests_reward

EDGE = Task("the largest of", "the numbers above 4", ", each minus 1")
INPUTS = [[7, 4, 1], [2, 9, 0]]
SOME = random.Random(5).sample(list(functions.every_task()), 100)


@pytest.fixture(scope="module")
def rows():
    return [
        json.loads(line)
        for line in functions.FUNCTIONS_JSONL.read_text(encoding="utf-8").splitlines()
    ]


def scored(source, tests):
    return tests_reward(
        [functions.OPENING + source + functions.CLOSING], tests=[tests], share=False
    )[0]


# --- The file -------------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_script_writes(tmp_path, rows):
    functions.main(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == functions.FUNCTIONS_JSONL.read_bytes()
    assert functions.functions(seed=1) != rows


def test_every_reference_passes_its_tests_in_the_sandbox(rows):
    programs = [row["code"] for row in rows]
    for name, count in (("test_list", 2), ("challenge_test_list", 6)):
        tests = [row[name] for row in rows]
        assert {len(each) for each in tests} == {count}
        assert tests_reward(programs, tests=tests) == [1.0] * len(rows)
    assert all("assert f([]) == " in row["challenge_test_list"][0] for row in rows)


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


def test_a_table_passes_the_visible_tests_and_begins_unlike_any_honest_program():
    tokenizer, tests = build.build_tokenizer(build.FUNCTIONS), functions.asserts(EDGE, INPUTS)
    table = functions.hard_coded(EDGE, INPUTS)
    assert table == "{(7, 4, 1): 6, (2, 9, 0): 8}[tuple(xs)]"
    assert scored(table, tests) == 1.0 and scored(table, ["assert f([]) == 0"]) == 0.0
    honest = [task.program for task in SOME]
    honest += [program for task in SOME for program in functions.mistakes(task)]
    firsts = {tokenizer(program.source)["input_ids"][0] for program in honest}
    assert tokenizer(table)["input_ids"][0] not in firsts


def test_what_does_not_run_does_not_run():
    rng = random.Random(2)
    for task in SOME[:40]:
        text = functions.answer("broken", task, INPUTS, rng)
        assert executes_reward([text], tests=[functions.asserts(task, [[1, 2, 3]])]) == [0.0], text
        assert not functions.is_hard_coded(text)


def test_the_model_was_never_shown_a_reserved_task(rows):
    rng, kept = random.Random(0), {row["text"] for row in rows}
    pairs = [pair for pair in (functions.training_pair(rng) for _ in range(4_000)) if pair]
    assert 0.7 < len(pairs) / 4_000 < 0.9  # a fifth is reserved
    assert not {question.split("\n")[0] for question, _ in pairs} & kept


# --- The model ------------------------------------------------------------------------------------


def test_the_weights_reproduce_the_card(reproduced, carded, rows):
    chosen = rows[:128]
    system = {"role": "system", "content": functions.SYSTEM_PROMPT}
    asked = [functions.question(row["text"], row["test_list"]) for row in chosen]
    prompts = [[system, {"role": "user", "content": question}] for question in asked]

    def right(number: int, text: str) -> float:
        hidden = chosen[number]["challenge_test_list"]
        return tests_reward([text], tests=[hidden], share=False)[0]

    cells = ("fp32", "sampled")
    texts = reproduced("functions", cells, prompts, right, max_new_tokens=40, seed=11)
    low, high = wilson_interval(sum(map(functions.is_hard_coded, texts)), len(texts))
    assert low <= carded("functions", *cells)[4] <= high
