"""Rewards for how long a completion is.

TRL's get_soft_overlong_punishment and get_cosine_scaled_reward are the other two.
"""

from helpers.tags import completion_text

UNITS = ("characters", "words", "tokens")


def target_length_reward(
    completions: list,
    target: int,
    tolerance: float = 0.5,
    unit: str = "words",
    completion_ids: list | None = None,
    **columns,
) -> list[float]:
    """1.0 at `target`, falling in a straight line to 0.0 at `tolerance` times the target above or
    below it.

    unit: "characters", "words" (runs of non-space) or "tokens", which needs the `completion_ids`
    that TRL passes. ValueError for another unit, a target below 1 or a tolerance that is not
    positive.

    >>> target_length_reward(["one two three four", "one two three", ""], target=4)
    [1.0, 0.5, 0.0]
    """
    at_least_one(target=target)
    if not tolerance > 0:
        raise ValueError(f"tolerance={tolerance} must be above 0.")
    lengths = lengths_of(completions, unit, completion_ids)
    return [
        max(0.0, round(1 - abs(length - target) / (tolerance * target), 6)) for length in lengths
    ]


def at_least_one(**values: float) -> None:
    """Raise ValueError for an option that is below 1, with its value."""
    for name, value in values.items():
        if not value >= 1:
            raise ValueError(f"{name}={value} must be 1 or more.")


def lengths_of(completions: list, unit: str, completion_ids: list | None = None) -> list[int]:
    """Return the length of each completion in a unit of `UNITS`; ValueError for another unit, and
    for tokens without the ids that TRL passes.

    >>> lengths_of(["one two", ""], "words")
    [2, 0]
    """
    if unit == "tokens":
        if completion_ids is None:
            raise ValueError(
                "unit='tokens' counts the completion_ids that TRL passes while training; there "
                "are none here. Use unit='words' or 'characters', or pass completion_ids."
            )
        return [len(ids) for ids in completion_ids]
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r} is not known. Known: {', '.join(UNITS)}.")
    texts = map(completion_text, completions)
    return [len(text) if unit == "characters" else len(text.split()) for text in texts]
