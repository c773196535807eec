"""The files of a run as they must look for what reads them: a small language of shapes, and the
shape of each JSON file.

A shape is a type; a function that judges a value; `{name: shape}`, with `?` behind a name that may
be missing and `*` for every other name; `[shape]`, a list of any length; `[shape, shape]`, a list
of two; or a tuple of shapes, any of which will do.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

Shape = Any
_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


def number(value: object) -> bool:
    """A number; nan is one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(value: object) -> bool:
    """A whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def count(value: object) -> bool:
    """A whole number from 1 on."""
    return whole(value) and value >= 1


def moment(value: object) -> bool:
    """A date with its time."""
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value).tzinfo)
    except ValueError:
        return False


def misfit(value: object, shape: Shape, where: str = "it") -> str | None:
    """What is wrong with a value, in words; None where it has the shape.

    >>> misfit({"n": 3, "ci95": [0.1]}, {"n": whole, "ci95": [number, number]})
    'ci95 has 1 entry, not 2'
    """
    if isinstance(shape, tuple):
        found = [misfit(value, one, where) for one in shape]
        return None if None in found else found[0]
    if isinstance(shape, dict):
        return _misfit_of_object(value, shape, where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} is {_kind(value)}, not a list"
        if len(shape) > 1 and len(value) != len(shape):
            return (
                f"{where} has {len(value)} entr{'y' if len(value) == 1 else 'ies'}, not "
                f"{len(shape)}"
            )
        shapes = shape if len(shape) > 1 else shape * len(value)
        return next(
            filter(
                None, map(misfit, value, shapes, (f"{where}[{at}]" for at in range(len(value))))
            ),
            None,
        )
    if isinstance(shape, type):
        return (
            None if isinstance(value, shape) else f"{where} is {_kind(value)}, not {_NAMES[shape]}"
        )
    what = {
        number: "a number",
        whole: "a whole number",
        count: "a whole number from 1 on",
        moment: "a time",
    }[shape]
    return None if shape(value) else f"{where} is {_kind(value)}, not {what}"


def _misfit_of_object(value: object, shape: dict, where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where} is {_kind(value)}, not an object"
    inside = "" if where == "it" else f"{where}."
    absent = [
        name for name in shape if name not in value and name != "*" and not name.endswith("?")
    ]
    if absent:
        return f"{where} has no {absent[0]!r}"
    for name, entry in value.items():
        one = shape.get(name, shape.get(f"{name}?", shape.get("*")))
        wrong = misfit(entry, one, f"{inside}{name}") if one is not None else None
        if wrong:
            return wrong
    return None


def _kind(value: object) -> str:
    return _NAMES.get(type(value), f"the number {value}")


_SETTINGS = {"name?": str, "model?": str}
_SECTION = {
    "notebook?": str,
    "written?": moment,
    "versions?": {"*": (str, type(None))},
    "switches?": {"*": str},
    "git?": dict,
}
_SERVED = {"n": count, "same": whole, "share": number}
_NAME = (str, type(None))
_BASE = {"name": str, "layers": whole, "layers_in_4_bits": whole}
_BASE |= dict.fromkeys(("original", "revision", "quantised", "fingerprint"), _NAME)
_TRAINING = {
    "settings?": _SETTINGS,
    "seed?": whole,
    "rewards?": [str],
    "weights?": [number],
    "data?": str,
    "base?": _BASE,
}
MANIFEST = {
    "name?": str,
    "data?": _SECTION
    | {"source?": str, "tags?": str, "seed?": whole, "fingerprint?": str, "settings?": _SETTINGS},
    "training?": _SECTION | _TRAINING,
    "merge?": _SECTION
    | {
        "dtype?": str,
        "kept?": number,
        "unexplained?": number,
        "logit_difference?": number,
        "into?": str,
    },
    "served?": _SECTION | {"merged?": _SERVED, "adapter?": _SERVED},
    "demo?": _SECTION | {"notebooks?": [str]},
    "*": _SECTION,
}
# what report and card need of it
TOLD = {part: {"settings?": {"name": str, "model": str}} for part in ("data?", "training?")}
_PROPORTION = {"accuracy": number, "ci95": [number, number], "n": count}
_POINT = {"value": number, "ci95": [number, number]}
_MEASURED = _PROPORTION | {
    "in_format?": number,
    "greedy?": (_PROPORTION, type(None)),
    "mean_length?": number,
    "by_difficulty?": {"*": _PROPORTION},
    "samples?": count,
    "pass_at_k_questions?": count,
    "pass_at_k?": {"*": _POINT},
    "majority?": _PROPORTION,
    "other?": _PROPORTION | {"source": str},
}
EVALUATION = {"*": _MEASURED}
# whatever is there
EVALUATION_SO_FAR = {
    "*": {f"{name.removesuffix('?')}?": shape for name, shape in _MEASURED.items()}
}
DATA_REPORT = {
    "source": str,
    "system_prompt": str,
    "rows_read": whole,
    "rows_train": whole,
    "rows_holdout": whole,
    "dropped": {"*": whole},
    "fingerprint": str,
}
_EXAMPLE = {"question": str, "before": str, "after": str}
COMPARISON = {
    "*": {
        **dict.fromkeys(("won", "lost", "both_right", "both_wrong"), whole),
        "n": count,
        "p_value": number,
        "difference": number,
        "difference_ci95": [number, number],
        "won_examples": [_EXAMPLE],
        "lost_examples": [_EXAMPLE],
    }
}
_MEASURES = dict.fromkeys(
    ("mean?", "advantage_share?", "zero_spread?", "ms_per_1000?"), (number, type(None))
)
REWARD_REPORT = {
    "rewards": {"*": _MEASURES | {"weight": number}},
    "verdict": {"go": bool, "stops": [str], "notes?": [str]},
    "attacks?": {"*": {"total": number, "wins": number}},
}
SHAPES = {
    "manifest.json": MANIFEST,
    "evaluation.json": EVALUATION,
    "data_report.json": DATA_REPORT,
    "comparison.json": COMPARISON,
    "reward_report.json": REWARD_REPORT,
}
