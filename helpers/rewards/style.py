"""Rewards for how a completion is written.

All of them are cheap to please: give them small weights.
"""

import re
import warnings
from collections.abc import Sequence

import regex

from helpers.rewards.length import at_least_one
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

_STEP = re.compile(
    r"^[ \t]*(?:(?:step[ \t]+)?\d{1,3}[.):]|[-*•][ \t])[ \t]*(?=\S)"
    r"|\b(?:first|second|third|next|then|therefore|thus|hence|so|finally)\b(?=[ ,:])",
    re.IGNORECASE | re.MULTILINE,
)
_NO_LETTER = re.compile(r"[\W_]+")
_CITATION = re.compile(r"\[(\d{1,3})\]")
# Seconds for a search; every completion that takes longer halves the limit of those after it, down
# to the second number.
_SECONDS, _LEAST_SECONDS = 1.0, 0.05


def reasoning_steps_reward(
    completions: list, steps: int = 3, tags: TagFormat = THINK_ANSWER, **columns
) -> list[float]:
    """The share of `steps` different steps that the reasoning block shows, 1.0 at most.

    A step begins with a number ("2.", "Step 2:"), a bullet, or a word such as "First", "Then",
    "Therefore", and goes on to the next one. The same step written twice counts once, and one
    without a letter or digit not at all. Without a reasoning block the whole completion before the
    answer block is read.

    >>> reasoning_steps_reward(["<think>First, 2 + 2. Then, 4 + 1. Finally, 5.</think>"])
    [1.0]
    >>> reasoning_steps_reward(["<think>5</think>", "1. a\\n1. a"])
    [0.0, 0.333333]
    """
    at_least_one(steps=steps)
    opening, closing, answer_opening, _ = tags.tags
    scores = []
    for text in map(completion_text, completions):
        start, end = text.find(opening), text.find(closing)
        if 0 <= start < end:
            text = text[start + len(opening) : end]
        else:
            text = text.partition(answer_opening)[0]
        marks = list(_STEP.finditer(text))
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        shown = {
            _NO_LETTER.sub(" ", text[mark.end() : end].casefold()).strip()
            for mark, end in zip(marks, ends, strict=False)
        }
        scores.append(min(1.0, round(len(shown - {""}) / steps, 6)))
    return scores


def citation_reward(
    completions: list,
    citations: int = 1,
    sources: list | None = None,
    tags: TagFormat | None = None,
    **columns,
) -> list[float]:
    """The share of `citations` different sources cited as `[1]`, `[2]`, …, 1.0 at most.

    sources: a column with the texts, or the number, that may be cited in each row; a citation of
    one that is not there makes the row 0.0. tags: judge the answer block alone. Whether the source
    says so is another reward's question.

    >>> citation_reward(["Bonn [1].", "Bonn [7].", "Bonn."], sources=[["a", "b"]] * 3)
    [1.0, 0.0, 0.0]
    """
    at_least_one(citations=citations)
    scores = []
    for completion, known in zip(completions, sources or [None] * len(completions), strict=True):
        text = completion_text(completion)
        if tags:
            text = tags.extract_answer(text) or ""
        cited = {int(number) for number in _CITATION.findall(text)}
        if known is None or known != known:  # nan, which is how pandas spells a missing value
            known = max(cited, default=0)
        elif isinstance(known, str):
            known = 1
        count = len(known) if hasattr(known, "__len__") else known
        all_there = all(1 <= number <= count for number in cited)
        scores.append(min(1.0, round(len(cited) / citations, 6)) if all_there else 0.0)
    return scores


def forbidden_patterns_reward(
    completions: list,
    patterns: Sequence[str] = (r"\bas an ai\b", r"\bi(?:'m| am) sorry\b", r"\bi cannot\b"),
    **columns,
) -> list[float]:
    """1.0 where none of the regular expressions is found in the completion, else 0.0.

    Case does not count. A completion that cannot be searched
    in a second scores 0.0, with a warning: that the pattern is absent was not shown.

    >>> forbidden_patterns_reward(["Bonn.", "As an AI, I cannot say."])
    [1.0, 0.0]
    """
    patterns = [patterns] if isinstance(patterns, str) else patterns
    wanted = [regex.compile(pattern, regex.IGNORECASE) for pattern in patterns]
    seconds, late, scores = _SECONDS, 0, []
    for completion in completions:
        text = completion_text(completion)
        try:
            found = any(pattern.search(text, timeout=seconds) for pattern in wanted)
        except TimeoutError:
            # a policy that loops on one character may do so in every completion of a batch
            found, late, seconds = True, late + 1, max(_LEAST_SECONDS, seconds / 2)
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
