"""What a policy passes to a tool, against the schema that it was shown: the first thing that does
not fit, in words.

Only what Transformers makes of annotations is known here. Left out: jsonschema, whose sentences
speak of schemas ("'5' is not of type 'integer'"); these are read by the policy, and are what it can
learn from.
"""

from __future__ import annotations

_SHOWN = 60  # characters of a value
_KINDS = {
    "integer": (
        "a whole number",
        lambda value: isinstance(value, int) and not isinstance(value, bool),
    ),
    "number": (
        "a number",
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    ),
    "string": ("a text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}


def misfit(tool: str, schema: dict, arguments: dict) -> str | None:
    """What is wrong with a call, in one sentence; None where it fits.

    schema: the `parameters` of the tool's schema; see `protocol.schema_of`.

    >>> schema = {"properties": {"row": {"type": "integer"}}, "required": ["row"]}
    >>> misfit("read", schema, {"row": "3"})
    "read: row must be a whole number, not '3'."
    >>> misfit("read", schema, {"column": 3})
    "read takes no 'column'; it takes row."
    """
    properties = schema["properties"]
    unknown = [name for name in arguments if name not in properties]
    if unknown:
        takes = f"it takes {', '.join(properties)}" if properties else "it takes nothing"
        return f"{tool} takes no {_shown(unknown[0])}; {takes}."
    for name in schema.get("required", []):
        if name not in arguments:
            return f"{tool} needs {name}: {_wanted(properties[name])}."
    for name, value in arguments.items():
        if not fits(value, properties[name]):
            return f"{tool}: {name} must be {_wanted(properties[name])}, not {_shown(value)}."
    return None


def fits(value: object, schema: dict) -> bool:
    """Whether a value is what one argument's schema asks for.

    What a schema does not say is free.
    """
    if value is None and schema.get("nullable"):
        return True
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    kinds = _kinds(schema)
    if kinds and not any(_KINDS[kind][1](value) for kind in kinds):
        return False
    if isinstance(value, list) and "prefixItems" in schema:
        parts = schema["prefixItems"]
        return len(value) == len(parts) and all(
            fits(one, part) for one, part in zip(value, parts, strict=True)
        )
    if isinstance(value, list) and "items" in schema:
        return all(fits(one, schema["items"]) for one in value)
    if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        return all(fits(one, schema["additionalProperties"]) for one in value.values())
    return True


def _kinds(schema: dict) -> list[str]:
    kinds = schema.get("type", [])
    return [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind in _KINDS]


def _wanted(schema: dict) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" in schema:
        return " or ".join(map(_wanted, schema["anyOf"]))
    wanted = " or ".join(_KINDS[kind][0] for kind in _kinds(schema)) or "given"
    inner = schema.get("items")
    return f"{wanted}, each {_wanted(inner)}" if inner else wanted


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # brackets 10,000 deep
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
