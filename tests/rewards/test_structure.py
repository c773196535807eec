"""JSON documents that cannot hurt the one who reads them, and schemas that are none."""

import json

import jsonschema
import pytest

from helpers.rewards.structure import json_format_reward
from helpers.tags import THINK_ANSWER


def said(answer: str) -> str:
    return THINK_ANSWER.render("so", answer)


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
def test_a_document_that_a_schema_cannot_judge_in_time_costs_only_itself(schema, document):
    given = [said(document), said("{}"), said(f" {document}")]
    with pytest.warns(UserWarning, match="2 of 3 answers could not be judged in time") as caught:
        assert json_format_reward(given, schema=schema) == [0.0, 1.0, 0.0]
    assert len(caught) == 1


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
