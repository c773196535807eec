"""What a policy passes to a tool, judged by the schema that it was shown.

jsonschema judges. The sentences are ours, because a policy reads them and learns from them:
jsonschema's speak of schemas ("'5' is not of type 'integer'").
"""

from collections.abc import Callable
from functools import cache
from math import inf

_SHOWN = 60  # characters of a value in a sentence
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


@cache
def _validator():
    """The class that judges a value: JSON Schema, beside whose `type`, `enum` and `anyOf`
    Transformers' `nullable` counts as well, which is how it writes `| None`. NaN is no number, for
    no comparison of a reward sees it.

    jsonschema takes a second to import, and most trainings have no tools.
    """
    from jsonschema import Draft4Validator, Draft202012Validator
    from jsonschema.validators import extend

    types = Draft4Validator.TYPE_CHECKER  # later drafts take 1.0 for a whole number

    def or_null(keyword: str) -> Callable:
        check = Draft202012Validator.VALIDATORS[keyword]

        def checked(validator, wanted, value, schema):
            if value is not None or not schema.get("nullable"):
                yield from check(validator, wanted, value, schema)

        return checked

    return extend(
        Draft202012Validator,
        {keyword: or_null(keyword) for keyword in ("type", "enum", "anyOf")},
        type_checker=types.redefine(
            "number", lambda _, value: types.is_type(value, "number") and abs(value) < inf
        ),
    )


def misfit(tool: str, schema: dict, arguments: dict) -> str | None:
    """The first thing that is wrong with a call, in one short sentence; None if nothing is.

    schema: the `parameters` of the tool's schema; see `protocol.schema_of`.

    >>> schema = {"properties": {"row": {"type": "integer"}}, "required": ["row"]}
    >>> misfit("read", schema, {"row": "3"})
    "read: row must be a whole number, not '3'."
    >>> misfit("read", schema, {"column": 3})
    "read takes no 'column'; it takes row."
    """
    properties = schema["properties"]
    for name in arguments:
        if name not in properties:
            takes = ", ".join(properties) or "nothing"
            return f"{tool} takes no {shown(name)}; it takes {takes}."
    for name in schema.get("required", []):
        if name not in arguments:
            return f"{tool} needs {name}: {_wanted(properties[name])}."
    for name, value in arguments.items():
        try:
            fits = _validator()(properties[name]).is_valid(value)
        except (RecursionError, ValueError):  # too deep or too long for jsonschema to print
            fits = False
        if not fits:
            return f"{tool}: {name} must be {_wanted(properties[name])}, not {shown(value)}."
    return None


def _wanted(schema: dict) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" in schema:
        return " or ".join(map(_wanted, schema["anyOf"]))
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds) or "given"
    return f"{wanted}, each {_wanted(schema['items'])}" if schema.get("items") else wanted


def shown(value: object, most: int = _SHOWN) -> str:
    """A value of a policy in a sentence: its repr, cut after `most` characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # a thousand brackets, or five thousand digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}…"
