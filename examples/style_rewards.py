"""Rewards for how a completion is written: no forbidden words, no loops.

Both are cheap to please: give them small weights. Name one by its file, as in
`-p rewards=correctness,examples/style_rewards.py:repetition_reward*0.25`. For a completion's length
there are more_rewards.py, and TRL's get_soft_overlong_punishment and get_cosine_scaled_reward.
"""

import time
import unicodedata
import warnings
from collections.abc import Sequence

import regex

from helpers.rewards.common import visible
from helpers.tags import completion_text

# Seconds for the search of a completion; those that need longer share what the batch has left.
_MOMENT = 0.005
_SECONDS = 1.5
_LONGEST = 20_000  # bytes; no more of a text is read
# Words, numbers and signs; characters of scripts that have no spaces between words.
_WORDS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    r"|\d++(?:[.,:/]\d++)*+|\w++(?:['’-]\w++)*+|[^\w\s]++"
)
_LONGEST_WORD = 20  # what is longer counts as its characters


def forbidden_patterns_reward(
    completions: list,
    patterns: Sequence[str] = (r"\bas an ai\b", r"\bi(?:['’]m| am) sorry\b", r"\bi cannot\b"),
    **columns,
) -> list[float]:
    """1.0 where none of the regular expressions is found in the completion, else 0.0.

    Case does not count, nor do characters that nobody sees, a font, the kind of a space or its
    width. A completion that cannot be searched in time scores 0.0, with a warning: that the pattern
    is absent was not shown. A batch has little more than a second for all of them.

    >>> forbidden_patterns_reward(["Bonn.", "As an\N{NO-BREAK SPACE}AI, I cannot say."])
    [1.0, 0.0]
    """
    patterns = [patterns] if isinstance(patterns, str) else patterns
    compiled = [regex.compile(pattern, regex.IGNORECASE) for pattern in patterns]
    deadline = time.monotonic() + _SECONDS
    texts = [_beginning(completion) for completion in completions]
    # A moment for each; then a share of what is left for those that need longer.
    occurs = [_any_occurs(compiled, text, _MOMENT) for text in texts]
    for position, text in enumerate(texts):
        seconds = deadline - time.monotonic()
        if occurs[position] is None and seconds > 0:
            occurs[position] = _any_occurs(compiled, text, seconds / 4)  # may take its time twice
    late = occurs.count(None)
    if late:
        warnings.warn(
            f"forbidden_patterns_reward: {late} of {len(completions)} completions could not be "
            "searched in time; they score 0.0. A pattern that tries many ways, such as (a+)+, is "
            "the usual cause.",
            stacklevel=2,
        )
    return [float(hit is False) for hit in occurs]


def _beginning(completion: object) -> str:
    """Return the first 20,000 bytes of a completion's text, without lone surrogates."""
    return completion_text(completion).encode(errors="replace")[:_LONGEST].decode(errors="ignore")


def _any_occurs(patterns: list, text: str, seconds: float) -> bool | None:
    """Return whether one of the patterns is in the text as it is, or as it reads; None for a search
    that takes longer.
    """
    deadline = time.monotonic() + seconds
    readings = [text]
    for instead in ("", " "):  # a zero-width space may take the place of a space, or of nothing
        seen = visible(unicodedata.normalize("NFKC", text), instead)
        readings.append(regex.sub(r"[^\S\n]++", " ", seen))
    try:
        return any(
            pattern.search(reading, timeout=max(0.001, deadline - time.monotonic()))
            for reading in dict.fromkeys(readings)
            for pattern in patterns
        )
    except TimeoutError:
        return None


def repetition_reward(completions: list, ngram_size: int = 3, **columns) -> list[float]:
    """The share of word n-grams that are not repeats of an earlier one: 1.0 without repetition,
    near 0.0 for a loop.

    A word is what is between spaces and signs, a run of signs, or a character of a script without
    spaces; one of more than 20 characters counts as its characters, so that a loop without spaces
    is one. The unit-scale, tokenizer-free sister of TRL's get_repetition_penalty_reward (arXiv
    2502.03373, C.2), which counts tokens and gives penalties. A text with fewer words than one
    n-gram repeats nothing.

    >>> repetition_reward(["one two three four", "ha ha ha ha ha ha"])
    [1.0, 0.25]
    >>> repetition_reward(["这个这个这个", "ha" * 500])
    [0.5, 0.002004]
    """
    if not ngram_size >= 1:
        raise ValueError(f"ngram_size={ngram_size} must be 1 or more.")
    scores = []
    for completion in completions:
        words = []
        for word in _WORDS.findall(visible(_beginning(completion)).casefold()):
            if len(word) > _LONGEST_WORD:
                words.extend(word)  # its characters
            else:
                words.append(word)
        ngrams = list(zip(*(words[start:] for start in range(ngram_size)), strict=False))
        scores.append(round(len(set(ngrams)) / len(ngrams), 6) if ngrams else 1.0)
    return scores
