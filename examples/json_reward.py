"""A reward for answers in JSON, with or without a schema.

Name it by its file, as in `-p rewards=examples/json_reward.py:json_format_reward*0.5`, or bind a
schema with `functools.partial(json_format_reward, schema=SCHEMA)`.
"""

import json
import warnings
from collections.abc import Callable
from functools import partial

from helpers.judging import workers
from helpers.rewards.common import visible
from helpers.rewards.structure import fenced_blocks
from helpers.tags import THINK_ANSWER, TagFormat, completion_text


def json_format_reward(
    completions: list,
    schema: dict | None = None,
    tags: TagFormat | None = THINK_ANSWER,
    log_metric: Callable | None = None,
    **columns,
) -> list[float]:
    """1.0 if the answer block is one JSON object or array that is valid under the schema, else 0.0.

    schema: a JSON Schema; None accepts any object or array. tags: None judges the whole completion.

    A ```json fence around the document is allowed. `NaN`, comments, a repeated key and a second
    document are not JSON. `format` is checked, such as date or email; a warning names the formats
    that need a package, such as date-time. If validation takes too long, the score is 0.0, with a
    warning; the usual cause is a pattern such as (a+)+, or a schema that refers to itself. Raise
    jsonschema.SchemaError if the schema is not valid.

    >>> schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    >>> given = ['<answer>{"city": "Bonn"}</answer>', '<answer>{"city": 3}</answer>']
    >>> json_format_reward(given, schema=schema)
    [1.0, 0.0]
    """
    documents = []
    for completion in completions:
        text = completion_text(completion)
        documents.append(json_document((tags.extract_answer(text) or "") if tags else text))
    if schema is None:
        return [float(document != "") for document in documents]
    from jsonschema.validators import validator_for

    validator = validator_for(schema)
    validator.check_schema(schema)
    unchecked = formats_of(schema) - set(validator.FORMAT_CHECKER.checkers)
    if unchecked:
        warnings.warn(
            f"json_format_reward does not check the format {', '.join(sorted(unchecked))}. "
            "`pip install jsonschema[format]` brings most of them; or use `pattern`.",
            stacklevel=2,
        )
    rows = [(json.dumps(schema), document) for document in documents]
    log = log_metric and partial(log_metric, "json_format_reward/out_of_time")
    return [score or 0.0 for score in workers.scores_in_time("schema", rows, log)]


def formats_of(schema: object) -> set[str]:
    """Return the values of `format` in a schema and in the schemas inside it.

    >>> formats_of({"items": [{"type": "string", "format": "date"}], "format": 3})
    {'date'}
    """
    inside = schema.values() if isinstance(schema, dict) else schema
    if not isinstance(schema, (dict, list)):
        return set()
    formats = set().union(*map(formats_of, inside))
    own = schema.get("format") if isinstance(schema, dict) else None
    return formats | {own} if isinstance(own, str) else formats


def json_document(text: str) -> str:
    """Return the text of one JSON object or array, without its fence; "" if the text is not JSON or
    is longer than 10,000 characters.

    >>> json_document("```json\\n[1]\\n```"), json_document("[NaN]"), json_document("4")
    ('[1]\\n', '', '')
    """
    if len(text) > 10_000:
        return ""
    text = text.strip()
    blocks = fenced_blocks(text) if text[:3] in ("```", "~~~") and text[-3:] == text[:3] else []
    if len(blocks) == 1 and blocks[0][0] in ("", "json"):
        text = blocks[0][1]
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return ""
    return text if isinstance(value, (dict, list)) else ""


def _refuse(name: str):
    raise ValueError(f"{name} is not JSON")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict:
    """Return the object. Raise ValueError if a key is repeated, because parsers differ in which
    value counts.
    """
    keys = {visible(key) for key, _ in pairs}
    return dict(pairs) if len(keys) == len(pairs) else _refuse("a key twice")
