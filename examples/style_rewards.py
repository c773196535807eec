"""Rewards for how a completion is written: no forbidden words, no loops.

Both are easy to earn, so give them small weights. Name a reward by its file, as in
`-p rewards=correctness,examples/style_rewards.py:repetition_reward*0.25`. For rewards on length,
see more_rewards.py, and TRL's get_soft_overlong_punishment and get_cosine_scaled_reward.
"""

import json
import time
import warnings
from collections.abc import Callable, Sequence

import regex

from helpers.judging import workers
from helpers.rewards.common import normal_form, visible
from helpers.tags import completion_text

_SECONDS = 0.005  # to search a completion here; a worker process searches those that need longer


def forbidden_patterns_reward(
    completions: list,
    patterns: Sequence[str] = (r"\bas an ai\b", r"\bi(?:['’]m| am) sorry\b", r"\bi cannot\b"),
    log_metric: Callable | None = None,
    **columns,
) -> list[float]:
    """1.0 if none of the regular expressions matches anywhere in the completion, else 0.0.

    Case, invisible characters, fonts, Markdown's marks, and the kind and number of spaces and line
    breaks do not matter, so `.` matches a line break, too. A search that takes longer than 5 ms is
    repeated in a worker process, with the limits of `workers`. A completion that cannot be searched
    in time scores 0.0, with a warning.

    >>> forbidden_patterns_reward(["Bonn.", "As an\N{NO-BREAK SPACE}AI, I cannot say."])
    [1.0, 0.0]
    """
    patterns = [patterns] if isinstance(patterns, str) else patterns
    compiled = [regex.compile(pattern, regex.IGNORECASE) for pattern in patterns]
    # Search each text for a moment. Let a worker process search those that need longer.
    texts = [_readings(_beginning(completion)) for completion in completions]
    occurs = [_any_occurs(compiled, readings) for readings in texts]
    slow = [at for at, hit in enumerate(occurs) if hit is None]
    rows = [(json.dumps(list(patterns)), json.dumps(texts[at])) for at in slow]
    for at, score in zip(slow, workers.scores_or_none("patterns", rows), strict=True):
        occurs[at] = None if score is None else score == 1.0
    late = occurs.count(None)
    if log_metric and completions:
        log_metric("forbidden_patterns_reward/out_of_time", late / len(completions))
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
    return completion_text(completion).encode(errors="replace")[:20_000].decode(errors="ignore")


def _readings(text: str) -> list[str]:
    """Return the text as written and as displayed, without duplicates."""
    readings = [text]
    for instead in ("", " "):  # an invisible character may split a word or separate two words
        seen = visible(normal_form(text, "NFKC"), instead)
        lines = regex.sub(r"[^\S\n]++", " ", seen)
        readings += [lines, regex.sub(r"\s++", " ", lines)]
        readings.append(regex.sub(r"[*_`~]++", "", readings[-1]))  # I can**not**
    return list(dict.fromkeys(readings))


def _any_occurs(patterns: list, readings: list[str]) -> bool | None:
    """Return whether a pattern matches in one of the readings; None if the search takes long."""
    deadline = time.monotonic() + _SECONDS
    try:
        return any(
            pattern.search(reading, timeout=max(0.001, deadline - time.monotonic()))
            for reading in readings
            for pattern in patterns
        )
    except TimeoutError:
        return None


def repetition_reward(completions: list, ngram_size: int = 3, **columns) -> list[float]:
    """The share of word n-grams that do not repeat an earlier one: 1.0 without repetition, near 0.0
    for a loop.

    A word is a run of letters and digits, a run of punctuation, or one character of a script
    without spaces. A word of more than 20 characters counts as its characters, so that a loop
    without spaces is found. A text with fewer words than `ngram_size` scores 1.0.

    TRL's get_repetition_penalty_reward (arXiv 2502.03373, C.2) is similar, but counts tokens and
    returns penalties.

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
            if len(word) > 20:
                words.extend(word)  # the characters of the word
            else:
                words.append(word)
        ngrams = list(zip(*(words[start:] for start in range(ngram_size)), strict=False))
        scores.append(round(len(set(ngrams)) / len(ngrams), 6) if ngrams else 1.0)
    return scores


# One character of a script without spaces; a number such as 1,000.5; a word; a run of punctuation.
_WORDS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    r"|\d++(?:[.,:/]\d++)*+|\w++(?:['’-]\w++)*+|[^\w\s]++"
)
