"""Rewards for how a completion is written and how long it is.

All of them are cheap to please: give them small weights. TRL's get_soft_overlong_punishment and
get_cosine_scaled_reward are two more for the length.
"""

import warnings
from collections.abc import Sequence

import regex

from helpers.tags import completion_text

# Seconds for a search; every completion that takes longer halves the limit of those after it, down
# to the second number.
_SECONDS = 1.0
_LEAST_SECONDS = 0.05


def forbidden_patterns_reward(
    completions: list,
    patterns: Sequence[str] = (r"\bas an ai\b", r"\bi(?:'m| am) sorry\b", r"\bi cannot\b"),
    **columns,
) -> list[float]:
    """1.0 where none of the regular expressions is found in the completion, else 0.0.

    Case does not count. A completion that cannot be searched in a second scores 0.0, with a
    warning: that the pattern is absent was not shown.

    >>> forbidden_patterns_reward(["Bonn.", "As an AI, I cannot say."])
    [1.0, 0.0]
    """
    patterns = [patterns] if isinstance(patterns, str) else patterns
    wanted = [regex.compile(pattern, regex.IGNORECASE) for pattern in patterns]
    seconds = _SECONDS
    late = 0
    scores = []
    for completion in completions:
        text = completion_text(completion)
        try:
            found = any(pattern.search(text, timeout=seconds) for pattern in wanted)
        except TimeoutError:
            # a policy that loops on one character may do so in every completion of a batch
            found = True
            late += 1
            seconds = max(_LEAST_SECONDS, seconds / 2)
        scores.append(float(not found))
    if late:
        warnings.warn(
            f"forbidden_patterns_reward: {late} of {len(completions)} completions could not be "
            "searched in time; they score 0.0. A pattern that tries many ways, such as (a+)+, is "
            "the usual cause.",
            stacklevel=2,
        )
    return scores


def repetition_reward(completions: list, ngram_size: int = 3, **columns) -> list[float]:
    """The share of word n-grams that are not repeats of an earlier one: 1.0 without repetition,
    near 0.0 for a loop.

    The unit-scale, tokenizer-free sister of TRL's get_repetition_penalty_reward (arXiv 2502.03373,
    C.2), which counts tokens and gives penalties. A text with fewer words than one n-gram repeats
    nothing.

    >>> repetition_reward(["one two three four", "ha ha ha ha ha ha"])
    [1.0, 0.25]
    """
    if not ngram_size >= 1:
        raise ValueError(f"ngram_size={ngram_size} must be 1 or more.")
    scores = []
    for completion in completions:
        words = completion_text(completion).casefold().split()
        ngrams = list(zip(*(words[start:] for start in range(ngram_size)), strict=False))
        scores.append(round(len(set(ngrams)) / len(ngrams), 6) if ngrams else 1.0)
    return scores


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
    if not (target >= 1 and tolerance > 0):
        raise ValueError(f"target={target} must be 1 or more, and tolerance={tolerance} above 0.")
    lengths = lengths_of(completions, unit, completion_ids)
    return [
        max(0.0, round(1 - abs(length - target) / (tolerance * target), 6)) for length in lengths
    ]


def lengths_of(completions: list, unit: str, completion_ids: list | None = None) -> list[int]:
    """Return the length of each completion in "characters", "words" or "tokens"; ValueError for
    another unit, and for tokens without the ids that TRL passes.

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
    if unit not in ("characters", "words"):
        raise ValueError(f"unit={unit!r} is not known. Known: characters, words, tokens.")
    texts = map(completion_text, completions)
    return [len(text) if unit == "characters" else len(text.split()) for text in texts]
