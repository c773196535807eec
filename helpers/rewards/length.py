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
    lengths = _lengths(completions, unit, completion_ids)
    return [
        max(0.0, round(1 - abs(length - target) / (tolerance * target), 6)) for length in lengths
    ]


def min_length_reward(
    completions: list,
    minimum: int,
    unit: str = "words",
    completion_ids: list | None = None,
    **columns,
) -> list[float]:
    """1.0 from `minimum` on, below it the share of it that is there.

    Units as in target_length_reward.

    Filler earns it in full: pair it with a reward that reads the text, and attack the pair.

    >>> min_length_reward(["one two three four", "one"], minimum=4)
    [1.0, 0.25]
    """
    at_least_one(minimum=minimum)
    return [
        min(1.0, round(length / minimum, 6))
        for length in _lengths(completions, unit, completion_ids)
    ]


def max_length_reward(
    completions: list,
    maximum: int,
    unit: str = "words",
    completion_ids: list | None = None,
    **columns,
) -> list[float]:
    """1.0 up to `maximum`, falling in a straight line to 0.0 at twice that.

    Units as in target_length_reward.

    Silence earns it in full: pair it with a reward for an answer.

    >>> max_length_reward(["one two", "one two three", ""], maximum=2)
    [1.0, 0.5, 1.0]
    """
    at_least_one(maximum=maximum)
    return [
        min(1.0, max(0.0, round(2 - length / maximum, 6)))
        for length in _lengths(completions, unit, completion_ids)
    ]


def at_least_one(**values: float) -> None:
    """ValueError names the option that is below 1, with its value."""
    for name, value in values.items():
        if not value >= 1:
            raise ValueError(f"{name}={value} must be 1 or more.")


def _lengths(completions: list, unit: str, completion_ids: list | None) -> list[int]:
    if unit == "tokens":
        if completion_ids is None:
            raise ValueError(
                "unit='tokens' counts the completion_ids that TRL passes while training; there "
                "are none here. "
                "Take unit='words' or 'characters', or pass completion_ids."
            )
        return [len(ids) for ids in completion_ids]
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r} is not known. Known: {', '.join(UNITS)}.")
    texts = map(completion_text, completions)
    return [len(text) if unit == "characters" else len(text.split()) for text in texts]
