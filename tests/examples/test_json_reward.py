"""The reward of examples/json_reward.py: which documents score, hostile documents, and invalid
schemas.
"""

import doctest
import json
from functools import partial

import jsonschema
import pytest

from examples import json_reward
from examples.json_reward import json_format_reward
from helpers.tags import THINK_ANSWER


def said(answer: str) -> str:
    return THINK_ANSWER.render("so", answer)


WITHOUT_TAGS = partial(json_format_reward, tags=None)
CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
KEY_TWICE = [
    '{"a": 1, "a": 2}',
    '{"a": 1, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '[{"b": {"a": 1, "a": 2}}]',
]


def texts(reward, *rows) -> list[tuple]:
    return [(reward, text, earned) for text, earned in rows]


TABLE = [
    *texts(json_format_reward, (said('{"a": [1, 2.5, null, true, "x"]}'), 1), (said("[]"), 1)),
    *texts(json_format_reward, (said(' \n{"a": 1}\n '), 1), (said('{"a": "```"}'), 1)),
    *texts(json_format_reward, (said('```json\n{"a": 1}\n```'), 1), (said("```JSON\n[1]\n```"), 1)),
    *texts(json_format_reward, (said("```\n[1]\n```"), 1), (said("```python\n[1]\n```"), 0)),
    *texts(json_format_reward, (said("```json\n[1]\n```\n```json\n[2]\n```"), 0)),
    *texts(json_format_reward, (said("Here: [1]"), 0), (said("[1] Done."), 0), (said("{} {}"), 0)),
    *texts(json_format_reward, (said("[NaN]"), 0), (said("[-Infinity]"), 0), (said("{'a': 1}"), 0)),
    *texts(json_format_reward, (said("[1,]"), 0), (said("[1 // one\n]"), 0), (said("[01]"), 0)),
    *texts(json_format_reward, *[(said(text), 0) for text in KEY_TWICE]),
    *texts(json_format_reward, (said('[{"a": 1}, {"a": 2}]'), 1), (said("~~~json\n[1]\n~~~"), 1)),
    *texts(json_format_reward, (said("4"), 0), (said('"four"'), 0), (said("null"), 0), ("[1]", 0)),
    *texts(WITHOUT_TAGS, ("[1]", 1), (said("[1]"), 0)),
    *texts(partial(json_format_reward, schema=CITY), (said('{"city": "Bonn"}'), 1)),
    *texts(partial(json_format_reward, schema=CITY), (said('```\n{"city": "Bonn"}\n```'), 1)),
    *texts(partial(json_format_reward, schema=CITY), (said('{"city": 3}'), 0), (said("[]"), 0)),
    *texts(partial(json_format_reward, schema={}), (said('{"city": 3}'), 1)),
]


@pytest.mark.parametrize(("reward", "text", "earned"), TABLE)
def test_the_score_of_a_document(reward, text, earned):
    assert reward([text]) == [earned]


def test_the_examples_hold():
    assert doctest.testmod(json_reward).failed == 0


TWICE = [{"$ref": "#"}, {"$ref": "#"}]
KEY, LONG = r"^(a|aa)+\1$", "a" * 5000 + "!"


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"properties": {"a": {"oneOf": TWICE}}}, '{"a":' * 25 + "1" + "}" * 25),
        ({"properties": {"a": {"pattern": KEY}}}, json.dumps({"a": LONG})),
        ({"patternProperties": {KEY: {}}, "additionalProperties": False}, json.dumps({LONG: 1})),
    ],
    ids=["oneOf", "pattern", "names"],
)
def test_a_document_that_takes_too_long_loses_only_its_own_score(schema, document):
    given = [said(document), said("{}"), said(f" {document}")]
    with pytest.warns(UserWarning, match="2 of 3") as caught:
        assert json_format_reward(given, schema=schema) == [0.0, 1.0, 0.0]
    assert len(caught) == 1


@pytest.mark.parametrize("completions", [[said("[]")], []], ids=["one", "none"])
@pytest.mark.parametrize("schema", [{"type": "strin"}, {"required": "city"}, {"minimum": "1"}])
def test_an_invalid_schema_is_refused(schema, completions):
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
def test_hostile_json_scores_0(document, schema):
    assert json_format_reward([said(document), said("[1]")], schema=schema) == [0.0, 1.0]


@pytest.mark.parametrize(
    "rule",
    [{"multipleOf": 0.5}, {"multipleOf": 2}, {"maximum": 5}, {"type": "integer"}, {"const": 7}],
)
def test_a_number_out_of_range_does_not_break_the_schema(rule):
    numbers = ["9" * 4000, "1e999", "-1e999", "1e308", "0.1", "1e-400"]
    documents = [said(f"[{number}]") for number in numbers]
    assert set(json_format_reward(documents, schema={"items": rule})) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("format", "valid", "invalid"),
    [("date", "2024-02-29", "2023-02-29"), ("email", "a@b.org", "a"), ("ipv4", "10.0.0.1", "10.0")],
)
def test_a_format_of_the_schema_is_checked(format, valid, invalid):
    schema = {"items": {"format": format}}
    given = [said(json.dumps([text])) for text in (valid, invalid)]
    assert json_format_reward(given, schema=schema) == [1.0, 0.0]


def test_a_format_that_cannot_be_checked_is_named():
    schema = {"properties": {"at": {"type": "string", "format": "no-such-format"}}}
    with pytest.warns(UserWarning, match="no-such-format"):
        assert json_format_reward([said('{"at": "x"}')], schema=schema) == [1.0]
