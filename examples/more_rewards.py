"""More rewards. Each is easy to earn in a way that its docstring names, so give it a small weight.

Name a reward by its file, as in
`-p rewards=examples/more_rewards.py:citation_reward*0.25,correctness`, or bind its options with
`functools.partial(min_length_reward, minimum=40)`.
"""

import ast
import re
import warnings
from fractions import Fraction

from rapidfuzz.distance import Levenshtein

from helpers.judging.answers.numbers import parse_number
from helpers.rewards.common import visible
from helpers.rewards.correctness import answer_of
from helpers.tags import THINK_ANSWER, TagFormat, completion_text


def exact_match_reward(
    completions, answer, tags: TagFormat = THINK_ANSWER, ignore_case: bool = False, **columns
):
    """1.0 if the answer is the row's answer, letter for letter, else 0.0.

    For answers with one spelling, such as a class label, a key or a move. `4.0` does not match `4`.

    >>> given = ["<answer> Paris </answer>", "<answer>paris</answer>"]
    >>> exact_match_reward(given, answer=["Paris", "Paris"])
    [1.0, 0.0]
    """
    scores = []
    for completion, gold in zip(completions, answer, strict=True):
        given = answer_of(completion, tags) or ""
        wanted = str(gold).strip()
        if ignore_case:
            given = given.casefold()
            wanted = wanted.casefold()
        scores.append(float(given == wanted != ""))
    return scores


def numeric_reward(
    completions, answer, tags: TagFormat = THINK_ANSWER, relative_tolerance: float = 1e-3, **columns
):
    """1.0 if the answer is a number within `relative_tolerance` of the row's answer, else 0.0; None
    if the row's answer is not a number.

    For measured or rounded quantities. If the row's answer is 0, only 0 is correct. Units are not
    compared.

    >>> numeric_reward(["<answer>3.1412</answer>", "<answer>3</answer>"], answer=["3.1415927"] * 2)
    [1.0, 0.0]
    """
    scores = []
    for completion, gold in zip(completions, answer, strict=True):
        wanted = parse_number(str(gold))
        given = parse_number(answer_of(completion, tags) or "")
        if wanted is None:
            scores.append(None)
        elif given is None:
            scores.append(0.0)
        else:
            allowed = abs(wanted.value) * Fraction(relative_tolerance)
            scores.append(float(abs(given.value - wanted.value) <= allowed))
    return scores


def fuzzy_match_reward(
    completions, answer, tags: TagFormat = THINK_ANSWER, threshold: float = 0.0, **columns
):
    """The similarity of the answer to the row's answer as text: 1 - edit distance / length of the
    longer text. A similarity below `threshold` scores 0.0.

    Case and the number of spaces do not matter. A wrong answer with most of the correct letters
    earns most of the reward.

    >>> given = ["<answer>Marie Curie</answer>", "<answer>Mary Curie</answer>"]
    >>> fuzzy_match_reward(given, answer=["marie curie"] * 2)
    [1.0, 0.818182]
    """
    scores = []
    for completion, gold in zip(completions, answer, strict=True):
        # The texts are cut, because the distance takes time proportional to both lengths.
        given = " ".join((answer_of(completion, tags) or "")[:10_000].casefold().split())
        wanted = " ".join(str(gold)[:10_000].casefold().split())
        alike = Levenshtein.normalized_similarity(given, wanted) if given else 0.0
        scores.append(round(alike, 6) if alike >= threshold else 0.0)
    return scores


def proximity_reward(completions, answer, tags: TagFormat = THINK_ANSWER, **columns):
    """1.0 for the correct number; for another number of the same sign, half the ratio of the
    smaller number to the larger; else 0.0. None if the row's answer is not a number.

    A slope towards the correct magnitude. Guessing the most common answer earns part of the reward.

    >>> proximity_reward(["<answer>100</answer>", "<answer>50</answer>"], answer=["100", "100"])
    [1.0, 0.25]
    """
    scores = []
    for completion, gold in zip(completions, answer, strict=True):
        right = parse_number(str(gold))
        number = parse_number(answer_of(completion, tags) or "")
        if right is None:
            scores.append(None)
        elif number is None:
            scores.append(0.0)
        elif number.value == right.value:
            scores.append(1.0)
        else:
            smaller, larger = sorted((Fraction(number.value), Fraction(right.value)), key=abs)
            scores.append(max(0.0, 0.5 * float(smaller / larger)))
    return scores


def soft_format_reward(completions, tags: TagFormat = THINK_ANSWER, **columns):
    """1.0 if the completion contains a reasoning block followed by an answer block, else 0.0.

    Other text around the two blocks is allowed. For the first steps of a policy that does not stop
    after its answer.

    >>> soft_format_reward(["Sure! <think>2 + 2</think> so <answer>4</answer>", "4"])
    [1.0, 0.0]
    """
    scores = []
    for completion in completions:
        names = [tag for tag, _, _ in tags.found_tags(completion_text(completion))]
        fours = [tuple(names[at : at + 4]) for at in range(len(names))]
        scores.append(float(tags.tags in fours))
    return scores


def target_length_reward(
    completions: list,
    target: int,
    tolerance: float = 0.5,
    unit: str = "words",
    completion_ids: list | None = None,
    **columns,
) -> list[float]:
    """1.0 at the length `target`, falling linearly to 0.0 at `tolerance` times the target above or
    below it.

    unit: "characters", "words" (separated by spaces), or "tokens", which needs the `completion_ids`
    that TRL passes. Raise ValueError if the unit is not known, the target is below 1, or the
    tolerance is not positive.

    >>> target_length_reward(["one two three four", "one two three", ""], target=4)
    [1.0, 0.5, 0.0]
    """
    if not (target >= 1 and tolerance > 0):
        raise ValueError(f"target={target} must be 1 or more, and tolerance={tolerance} above 0.")
    lengths = lengths_of(completions, unit, completion_ids)
    return [
        max(0.0, round(1 - abs(length - target) / (tolerance * target), 6)) for length in lengths
    ]


def min_length_reward(completions, minimum: int, unit="words", completion_ids=None, **columns):
    """The length divided by `minimum`, at most 1.0. Filler text earns the whole reward.

    >>> min_length_reward(["one two three four", "one"], minimum=4)
    [1.0, 0.25]
    """
    return [min(1.0, length / minimum) for length in lengths_of(completions, unit, completion_ids)]


def max_length_reward(completions, maximum: int, unit="words", completion_ids=None, **columns):
    """1.0 up to the length `maximum`, falling linearly to 0.0 at twice the length. An empty
    completion earns the whole reward.

    >>> max_length_reward(["one two", "one two three", ""], maximum=2)
    [1.0, 0.5, 1.0]
    """
    lengths = lengths_of(completions, unit, completion_ids)
    return [min(1.0, max(0.0, 2 - length / maximum)) for length in lengths]


def reasoning_steps_reward(completions, steps: int = 3, tags: TagFormat = THINK_ANSWER, **columns):
    """The number of different steps in the reasoning, divided by `steps`, at most 1.0.

    A step begins with a number, a bullet, or a word such as "First" or "Therefore". A repeated step
    counts once. Steps that say nothing earn the reward, too.

    >>> reasoning_steps_reward(["<think>First, 2 + 2. Then, 4 + 1. Finally, 5.</think>"])
    [1.0]
    """
    _, closing, answer_opening, _ = tags.tags
    scores = []
    for text in map(completion_text, completions):
        text = text.partition(closing)[0].partition(answer_opening)[0]
        pieces = STEP.split(text)[1:]  # without the text before the first step
        shown = {re.sub(r"[\W_]+", " ", piece.casefold()).strip() for piece in pieces} - {""}
        scores.append(min(1.0, len(shown) / steps))
    return scores


# The beginning of a step: "Step 1:", "2)", a bullet, or a word such as "Then".
STEP = re.compile(
    r"^[ \t]*(?:(?:step[ \t]+)?\d{1,3}[.):]|[-*•][ \t])[ \t]*(?=\S)"
    r"|\b(?:first|second|third|next|then|therefore|thus|hence|so|finally)\b(?=[ ,:])",
    re.IGNORECASE | re.MULTILINE,
)


def citation_reward(completions, citations: int = 1, sources=None, **columns):
    """The number of different sources cited as `[1]`, `[2]`, …, divided by `citations`, at most 1;
    0.0 if a cited source does not exist.

    sources: a column with a list of the sources of each row. The reward does not check whether a
    source supports the text.

    >>> citation_reward(["Bonn [1].", "Bonn [7].", "Bonn."], sources=[["a", "b"]] * 3)
    [1.0, 0.0, 0.0]
    """
    scores = []
    for completion, known in zip(completions, sources or [None] * len(completions), strict=True):
        cited = {int(n) for n in re.findall(r"\[(\d{1,3})\]", completion_text(completion))}
        allowed = cited - {0} if known is None else set(range(1, len(known) + 1))
        scores.append(min(1.0, len(cited) / citations) if cited <= allowed else 0.0)
    return scores


def code_format_reward(completions, **columns):
    """1.0 for exactly one fenced Python block, if its code parses; 0.5 if not; else 0.0.

    The code is never run. To run it in a sandbox, use `tests_reward`.

    >>> code_format_reward(["```python\\nprint(1)\\n```", "```python\\nprint(\\n```", "print(1)"])
    [1.0, 0.5, 0.0]
    """
    scores = []
    for text in map(completion_text, completions):
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if len(blocks) != 1 or len(text) > 50_000:
            scores.append(0.0)
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                scores.append(1.0 if ast.parse(blocks[0]).body else 0.5)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            scores.append(0.5)
    return scores


def lengths_of(completions: list, unit: str, completion_ids: list | None = None) -> list[int]:
    """Return the length of each completion in "characters", "words" or "tokens".

    Invisible characters do not count, and separate words like a space. Raise ValueError if the unit
    is not known, or if tokens are counted without the `completion_ids` that TRL passes.

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
    if unit == "characters":
        return [len(visible(text)) for text in texts]
    return [len(visible(text, " ").split()) for text in texts]
