"""The shape of a completion: the tags, JSON, a code block; and that no document can hurt the one
who reads it.
"""

import json
import subprocess

import jsonschema
import pytest

from helpers import PROJECT
from helpers.rewards import (
    code_format_reward,
    format_reward,
    incremental_format_reward,
    json_format_reward,
    soft_format_reward,
    substantial_format_reward,
)
from helpers.tags import THINK_ANSWER


def said(answer: str) -> str:
    return THINK_ANSWER.render("so", answer)


# --- All or nothing, and its softer sisters -------------------------------------------------------


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        (said("4"), 1.0),
        (f"\n{said('')}\n", 1.0),
        (said("4") + ".", 0.0),
        ("so " + said("4"), 0.0),
        (said("4") * 2, 0.0),
        ("<think>so</think>4", 0.0),
        ("<answer>4</answer>", 0.0),
        ("<answer>4</answer><think>so</think>", 0.0),
        ("", 0.0),
    ],
)
def test_the_format_reward_is_all_or_nothing(completion, earned):
    assert format_reward([completion]) == [earned]
    assert earned or substantial_format_reward([completion]) == [0.0]


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        (said("4"), 1.0),
        (said(""), 1.0),
        ("Sure! " + said("4") + " Bye.", 1.0),
        ("<think>so</think> it is <answer>4</answer>", 1.0),
        (said("3") + said("4"), 1.0),
        ("<think>a</think>" + said("4"), 1.0),
        ("<answer>3</answer>" + said("4"), 1.0),
        ("<answer>4", 0.0),
        ("<answer>4</answer>", 0.0),
        ("<think>so</think>4", 0.0),
        ("<think>so</think><answer>4", 0.0),
        ("<answer>4</answer><think>so</think>", 0.0),
        ("<think>so<answer>4</answer></think>", 0.0),
        ("<think>so</think><think>so</think>", 0.0),
        ("<think>so</think><answer><think></answer>", 0.0),
        ("<THINK>so</THINK><ANSWER>4</ANSWER>", 0.0),
        ("<think>" * 1000 + "</answer>" * 1000, 0.0),
        ("", 0.0),
    ],
)
def test_the_soft_format_is_both_blocks_in_order_anywhere(completion, earned):
    assert soft_format_reward([completion]) == [earned]


@pytest.mark.parametrize(
    ("reasoning", "answer", "earned"),
    [
        ("2 + 2", "4", 1.0),
        ("x", "x", 1.0),
        ("ja", "答", 1.0),
        ("a", "-5.", 1.0),
        ("", "", 0.5),
        ("so", "", 0.5),
        ("", "4", 0.5),
        ("so", " \n", 0.5),
        ("...", "4", 0.5),
        ("so", "…", 0.5),
        ("so", "\N{ZERO WIDTH SPACE}", 0.5),
        ("so", "_", 0.5),
    ],
)
def test_blocks_with_nothing_in_them_earn_half(reasoning, answer, earned):
    assert substantial_format_reward([THINK_ANSWER.render(reasoning, answer)]) == [earned]


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        ("", 0.0),
        ("4", 0.0),
        ("<think>so", 0.25),
        ("<think>so</think>", 0.5),
        ("<think>so</think>4", 0.5),
        ("<think>so</think><answer>4", 0.75),
        ("<think>so</think><answer>4</answer>", 1.0),
        ("before <think>so</think> between <answer>4</answer> \n", 1.0),
        ("<answer>4</answer>", 0.5),
        # A tag out of its place earns nothing.
        ("</think><think><answer>4</answer>", 0.75),
        ("</answer><answer></think><think>", 0.25),
        ("<answer>4</answer><think>so</think>", 0.5),
        # A tag that is there twice earns nothing.
        ("<think><think>so</think><answer>4</answer>", 0.75),
        ("<think>so</think><answer>4</answer></answer>", 0.75),
        ("<think>so</think><answer>4</answer>" * 2, 0.0),
        ("<think>" * 50, 0.0),
        # Text after the end costs a thousandth a character, a quarter at most.
        (said("4") + "x", 0.999),
        (said("4") + " ok ", 0.998),
        (said("4") + "x" * 250, 0.75),
        (said("4") + "x" * 100_000, 0.75),
        ("</answer>" + "x" * 300, 0.0),
        ("<answer>4</answer>" + "x" * 300, 0.25),
        # Only what follows a closed answer is trailing.
        ("<think>so</think>" + "x" * 300, 0.5),
        ("<think>so</think><answer>" + "x" * 300, 0.75),
    ],
)
def test_each_tag_in_its_place_earns_a_quarter(completion, earned):
    assert incremental_format_reward([completion]) == [pytest.approx(earned, abs=1e-9)]


# --- JSON -----------------------------------------------------------------------------------------

CITY = {
    "type": "object",
    "required": ["city"],
    "properties": {"city": {"type": "string"}},
    "additionalProperties": False,
}
JSON = [
    ('{"a": [1, 2.5, null, true, "x"]}', 1.0),
    ("[]", 1.0),
    (' \n{"a": 1}\n ', 1.0),
    ('```json\n{"a": 1}\n```', 1.0),
    ("```JSON\n[1]\n```", 1.0),
    ("```\n[1]\n```", 1.0),
    ('["' + "\\ud800" + '"]', 1.0),
    ('["Zürich"]', 1.0),
    ('{"a": "```"}', 1.0),
    ("```python\n[1]\n```", 0.0),
    ("```json\n[1]\n```\n```json\n[2]\n```", 0.0),
    ("Here: [1]", 0.0),
    ("[1] That is all.", 0.0),
    ("{} {}", 0.0),
    ("[1]\n[2]", 0.0),
    ("[NaN]", 0.0),
    ("[-Infinity]", 0.0),
    ("{'a': 1}", 0.0),
    ("{a: 1}", 0.0),
    ("[1,]", 0.0),
    ("[1 // one\n]", 0.0),
    ("4", 0.0),
    ('"four"', 0.0),
    ("null", 0.0),
    ("", 0.0),
    ("[01]", 0.0),
    ('["\0"]', 0.0),
]


@pytest.mark.parametrize(("document", "earned"), JSON)
def test_json_is_one_object_or_array_and_nothing_around_it(document, earned):
    assert json_format_reward([said(document), document]) == [earned, 0.0]
    assert json_format_reward([said(document), document], tags=None) == [0.0, earned]


@pytest.mark.parametrize(
    ("document", "schema", "earned"),
    [
        ('{"city": "Bonn"}', CITY, 1.0),
        ('```json\n{"city": "Bonn"}\n```', CITY, 1.0),
        ('{"city": 3}', CITY, 0.0),
        ('{"city": 3}', {"properties": {"city": {"type": "integer"}}}, 1.0),
        ('{"city": 3}', {}, 1.0),
        ('{"City": "Bonn"}', CITY, 0.0),
        ('{"city": "Bonn", "land": "NRW"}', CITY, 0.0),
        ('[{"city": "Bonn"}]', CITY, 0.0),
        ("{}", CITY, 0.0),
    ],
)
def test_a_schema_has_to_be_fulfilled(document, schema, earned):
    assert json_format_reward([said(document)], schema=schema) == [earned]


def test_a_document_that_a_schema_cannot_judge_in_time_earns_nothing_and_that_is_told():
    schema = {"properties": {"a": {"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    slow = said('{"a":' * 25 + "1" + "}" * 25)
    with pytest.warns(UserWarning, match="2 of 3 completions could not be judged by the schema"):
        assert json_format_reward([slow, said("{}"), slow], schema=schema) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("completions", [[said("[]")], []], ids=["one", "none"])
@pytest.mark.parametrize("schema", [{"type": "strin"}, {"required": "city"}, {"minimum": "1"}])
def test_a_schema_that_is_none_is_refused(schema, completions):
    with pytest.raises(jsonschema.SchemaError):
        json_format_reward(completions, schema=schema)


@pytest.mark.parametrize(
    "document",
    [
        "[" * 100_000,
        "[" * 40_000,
        "[" * 20_000 + "]" * 20_000,
        '{"a":' * 9_000 + "1" + "}" * 9_000,
        "[" + "9" * 10_000 + "]",
        "[1" + " " * 60_000 + "]",
        "```json\n" * 6_000,
        "```" + " " * 20_000,
        "\ud800",
    ],
    ids=[
        "deep",
        "less deep",
        "balanced",
        "objects",
        "integer",
        "long",
        "fences",
        "spaces",
        "surrogate",
    ],
)
@pytest.mark.parametrize("schema", [None, {"items": {"$ref": "#"}}], ids=["free", "recursive"])
def test_hostile_json_scores_nothing(document, schema):
    assert json_format_reward([said(document), said("[1]")], schema=schema) == [0.0, 1.0]


@pytest.mark.parametrize(
    "rule",
    [{"multipleOf": 0.5}, {"multipleOf": 2}, {"maximum": 5}, {"type": "integer"}, {"const": 7}],
)
def test_a_number_out_of_range_does_not_break_the_schema(rule):
    numbers = ["9" * 4000, "1e999", "-1e999", "1e308", "0.1", "1e-400"]
    documents = [said(f"[{number}]") for number in numbers]
    assert set(json_format_reward(documents, schema={"items": rule})) <= {0.0, 1.0}


# --- Code -----------------------------------------------------------------------------------------


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        (fenced("print(1)"), 1.0),
        ("Sure:\n" + fenced("x = 1") + "\nThat is it.", 1.0),
        (fenced("def f():\n    return '```'"), 1.0),
        (fenced("x = 1", "Python"), 1.0),
        (fenced("x = 1\r"), 1.0),
        (fenced(r"x = '\d'"), 1.0),
        ("  ```python\nx = 1\n  ```  ", 1.0),
        (fenced("return 1"), 1.0),  # parsed, not compiled
        (fenced("print("), 0.5),
        (fenced("x = = 1"), 0.5),
        (fenced("if x:\nprint(1)"), 0.5),
        (fenced("fn main() {}"), 0.5),
        (fenced(""), 0.5),
        (fenced("# nothing\n\n"), 0.5),
        (fenced("x = 1") + "\n" + fenced("y = 2"), 0.0),
        (fenced("x = 1") + "\n" + fenced("y", "text"), 0.0),
        (fenced("x = 1", "js"), 0.0),
        (fenced("x = 1", "python3"), 0.0),
        (fenced("x = 1", ""), 0.0),
        (fenced("x = 1\n" + "#" * 40_000), 1.0),
        (fenced("x = 1\n" + "#" * 60_000), 0.0),  # too long to be read
        ("```python\nx = 1", 0.0),
        ("```python x = 1 ```", 0.0),
        ("`x = 1`", 0.0),
        ("x = 1", 0.0),
        ("", 0.0),
    ],
)
def test_code_is_one_fenced_block_that_parses(completion, earned):
    assert code_format_reward([completion]) == [earned]


@pytest.mark.parametrize(
    ("language", "code", "earned"),
    [
        ("rust", "fn main() {}", 1.0),
        ("c++", "int x = ;", 1.0),
        ("objective-c", "id x;", 1.0),
        ("rust", "", 0.5),
        ("sql", "--", 0.5),
    ],
)
def test_another_language_needs_its_fence_and_is_not_parsed(language, code, earned):
    assert code_format_reward(
        [fenced(code, language), fenced(code), fenced(code, "")], language=language
    ) == [earned, 0.0, 0.0]


def test_with_tags_the_answer_block_is_judged():
    block = f"\n{fenced('x = 1')}\n"
    texts = [said(block), fenced("x = 1"), f"<think>{block}</think><answer>x</answer>"]
    assert code_format_reward(texts, tags=THINK_ANSWER) == [1.0, 0.0, 0.0]


BOMBS = {
    "parentheses": ["(" * n + ")" * n for n in (50_000, 20_000, 201, 150)],
    "minus": ["-" * n + "1" for n in (100_000, 40_000, 3_000)],
    "attributes": ["a" + ".b" * n for n in (20_000, 5_000)],
    "calls": ["a" + "()" * 20_000, "a" + "[0]" * 15_000],
    "words": [
        "not " * 12_000 + "1",
        "lambda:" * 7_000 + "1",
        "await " * 8_000 + "x",
        "1 if 1 else " * 4_000 + "1",
    ],
    "operators": ["1" + "+1" * 20_000, "1" + "**1" * 15_000, "a" + "<a" * 20_000, "9" * 40_000],
    "blocks": [
        "if 1: x\n" + "elif 1: x\n" * 4_000,
        "\n".join(" " * i + "if 1:" for i in range(150)) + "x",
    ],
    "strings": ["f'" + "{" * 20_000, "f'{" * 20_000, "''" * 20_000, '"' * 20_000],
    "null": ["x = 1\0", "\0" * 1000],
    "surrogates": ["x = '\ud800'", "\udfff"],
    "mark": ["\ufeffx = 1", "# coding: no-such-codec\nx = 1", "# -*- coding: utf-16 -*-\nx"],
}


def test_hostile_code_gets_a_score_and_the_process_lives(python):
    # In a process of its own: what would crash the interpreter must not take the other tests with
    # it.
    script = (
        "import sys, json, threading; from helpers.rewards import code_format_reward as reward\n"
        "texts, scores = json.load(sys.stdin), []\n"
        "score = lambda: scores.append(reward(texts))\n"
        # a thread's stack is another
        "score(); thread = threading.Thread(target=score); thread.start(); thread.join()\n"
        "print(json.dumps(scores))"
    )
    texts = [fenced(code) for codes in BOMBS.values() for code in [*codes, "x = 1"]]
    done = subprocess.run(
        [python, "-c", script], input=json.dumps(texts), capture_output=True, text=True, cwd=PROJECT
    )
    assert done.returncode == 0, done.stderr[-500:]
    scores, in_thread = json.loads(done.stdout)
    assert scores == in_thread and not done.stderr
    for text, score in zip(texts, scores, strict=True):
        assert score in ((1.0,) if text == fenced("x = 1") else (0.0, 0.5, 1.0)), text[:80]


def test_code_is_never_run_nor_warned_about(tmp_path, capfd, recwarn):
    trace = tmp_path / "ran"
    attacks = [
        f"open({str(trace)!r}, 'w')",
        "import os; os._exit(3)",
        "raise SystemExit",
        "1 / 0",
        "import no_such_module",
        "class A(print('ran')): pass",
        "@print\ndef f(x=print('ran')): ...",
        r"'\d' is 'x'; 1()",
    ]
    assert code_format_reward([fenced(code) for code in attacks]) == [1.0] * len(attacks)
    assert not trace.exists() and not recwarn.list and capfd.readouterr() == ("", "")
