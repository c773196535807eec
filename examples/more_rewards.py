"""More rewards, each cheap to earn in some way that its docstring names: give them small weights.

Name one by its file, as in `-p rewards=examples/more_rewards.py:citation_reward*0.25,correctness`,
or bind its options with `functools.partial(min_length_reward, minimum=40)`.
"""

import ast
import re
import warnings
from fractions import Fraction

from rapidfuzz.distance import Levenshtein

from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.common import visible
from helpers.rewards.correctness import answer_of
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

STEP = re.compile(
    r"^[ \t]*(?:(?:step[ \t]+)?\d{1,3}[.):]|[-*•][ \t])[ \t]*(?=\S)"
    r"|\b(?:first|second|third|next|then|therefore|thus|hence|so|finally)\b(?=[ ,:])",
    re.IGNORECASE | re.MULTILINE,
)


def exact_match_reward(
    completions, answer, tags: TagFormat = THINK_ANSWER, ignore_case: bool = False, **columns
):
    """1.0 where the judged answer is the row's answer, letter for letter, else 0.0.

    For answers with one spelling: a class label, a key, a move. `4.0` is not `4` here.

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
    """1.0 where the judged answer is a number within `relative_tolerance` of the row's, else 0.0;
    None where the row's answer is not a number.

    For measured or rounded quantities. A row answer of 0 wants exactly 0; units are not compared.

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
    """How alike the judged answer and the row's are as text: 1 - edit distance / length of the
    longer, 0.0 below `threshold`.

    Case and runs of spaces do not count. A text that has most of the answer's letters earns most of
    it.

    >>> given = ["<answer>Marie Curie</answer>", "<answer>Mary Curie</answer>"]
    >>> fuzzy_match_reward(given, answer=["marie curie"] * 2)
    [1.0, 0.818182]
    """
    scores = []
    for completion, gold in zip(completions, answer, strict=True):
        # no more of a text is read: the distance takes the product of the two lengths
        given = " ".join((answer_of(completion, tags) or "")[:10_000].casefold().split())
        wanted = " ".join(str(gold)[:10_000].casefold().split())
        alike = Levenshtein.normalized_similarity(given, wanted) if given else 0.0
        scores.append(round(alike, 6) if alike >= threshold else 0.0)
    return scores


def proximity_reward(completions, answer, tags: TagFormat = THINK_ANSWER, **columns):
    """1.0 for the right number, half the ratio of the smaller to the larger for another number of
    the same sign, else 0.0; None where the row's answer is not a number.

    A slope towards the right magnitude. A guess of the usual answer earns some of it.

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
    """1.0 where a reasoning block followed by an answer block is anywhere in the completion.

    For the first steps of a policy that cannot yet stop: text around the two blocks is free.

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


def min_length_reward(completions, minimum: int, unit="words", completion_ids=None, **columns):
    """1.0 from `minimum` on, below it the share of it that is there. Filler earns it in full.

    >>> min_length_reward(["one two three four", "one"], minimum=4)
    [1.0, 0.25]
    """
    return [min(1.0, length / minimum) for length in lengths_of(completions, unit, completion_ids)]


def max_length_reward(completions, maximum: int, unit="words", completion_ids=None, **columns):
    """1.0 up to `maximum`, falling in a straight line to 0.0 at twice that. Silence earns it.

    >>> max_length_reward(["one two", "one two three", ""], maximum=2)
    [1.0, 0.5, 1.0]
    """
    lengths = lengths_of(completions, unit, completion_ids)
    return [min(1.0, max(0.0, 2 - length / maximum)) for length in lengths]


def reasoning_steps_reward(completions, steps: int = 3, tags: TagFormat = THINK_ANSWER, **columns):
    """The share of `steps` different steps that the reasoning shows, 1.0 at most.

    A step begins with a number, a bullet, or a word such as "First" or "Therefore". The same step
    written twice counts once. Words that please earn it.

    >>> reasoning_steps_reward(["<think>First, 2 + 2. Then, 4 + 1. Finally, 5.</think>"])
    [1.0]
    """
    _, closing, answer_opening, _ = tags.tags
    scores = []
    for text in map(completion_text, completions):
        text = text.partition(closing)[0].partition(answer_opening)[0]
        pieces = STEP.split(text)[1:]  # what is before the first step is none
        shown = {re.sub(r"[\W_]+", " ", piece.casefold()).strip() for piece in pieces} - {""}
        scores.append(min(1.0, len(shown) / steps))
    return scores


def citation_reward(completions, citations: int = 1, sources=None, **columns):
    """The share of `citations` different sources cited as `[1]`, `[2]`, …, 1.0 at most; 0.0 for a
    row that cites a source that is not there.

    sources: a column with the texts that each row may cite. Whether a source says so is another
    reward's question.

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
    """1.0 for exactly one fenced Python block, if it parses; 0.5 if it does not; else 0.0.

    The code is parsed, never run: `tests_reward` runs it, in a sandbox.

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
    """Return the length of each completion in "characters", "words" or "tokens"; ValueError for
    another unit, and for tokens without the ids that TRL passes.

    A character that nobody sees is none, and separates words as a space does.

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
