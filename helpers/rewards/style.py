"""Rewards for how a completion is written.

All of them are cheap to please: give them small weights.
"""

import warnings
from collections.abc import Sequence

import regex

from helpers.rewards.length import at_least_one
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
    at_least_one(ngram_size=ngram_size)
    scores = []
    for completion in completions:
        words = completion_text(completion).casefold().split()
        ngrams = list(zip(*(words[start:] for start in range(ngram_size)), strict=False))
        scores.append(round(len(set(ngrams)) / len(ngrams), 6) if ngrams else 1.0)
    return scores
