r"""Find the answer in a worked solution: after `####`, in `\boxed{}`, between tags.

`answer_in` reads a row's value: it first opens the fields and lists around the answer, and then
looks for the marks in `MARKS`, one after the other. Each mark is listed with two examples.
"""

import re
from typing import NamedTuple

# For the marks, because `re` has no repeated groups, look-behinds of any length or recursion.
import regex

from helpers.data.files import Dropped, parse_literal

# kinds whose answers may be any text, such as `Write \boxed{5}.`
TEXT_KINDS = ("text", "exact", "json")
LETTER_IN_BOX = "a letter in a box"
_ONE_RESULT = "Mark one result per row, and not several parts."


class Mark(NamedTuple):
    """A way to mark the answer in a worked solution.

    name: its name in the report. Two marks that look the same have the same name.
    examples: worked solutions, and the answer in each.
    pattern: matches the mark. The answer is the group `inside`; several such groups are joined by
        spaces.
    also_in_texts: whether answers of TEXT_KINDS can be marked this way.
    """

    name: str
    examples: dict[str, str]
    pattern: regex.Pattern
    also_in_texts: bool = False


# Reasoning comes first, because it may contain other marks. Boxes come last, because they may be
# inside any other mark.
MARKS = [
    Mark(
        "what follows the reasoning",
        {"<think>1 + 5</think> 6": "6", "Hm, 7?\n</reasoning>\nx = 6": "x = 6"},
        regex.compile(
            r"</(think|thinking|thought|reasoning)>(?P<inside>(?:(?!</\1).)*\S)\s*$",
            regex.DOTALL | regex.IGNORECASE,
        ),
        also_in_texts=True,
    ),
    Mark(
        "answer tags",
        {"We add. <answer> 6 </answer>": "6", "It is <solution>x = 6</solution>": "x = 6"},
        regex.compile(
            r"<(answer|solution|final_answer)>(?P<inside>.*?)</\1>",
            regex.DOTALL | regex.IGNORECASE,
        ),
        also_in_texts=True,
    ),
    Mark(  # in the last line, as in GSM8K
        "####",
        {"We add.\n#### 1,234": "1234", "#### Step 1\nAdd.\n#### six": "six"},
        regex.compile(r"(?<!\#)\#{4}(?!\#)\s*(?P<inside>(?:(?!\#{4})[^\n])*)\s*$"),
        also_in_texts=True,
    ),
    Mark(  # before the last line, only a number or a letter; several #### are headings
        "####",
        {"#### B.\nBecause.": "B", "We add.\n#### 6\nDone.": "6"},
        regex.compile(
            r"""(?<!\#{4}.*|\#) \#{4}(?!\#)
            [ *$]* (?P<inside>[+-]?\d[\d.,/]*%?|[A-Z]) [ *$.]* \n
            (?!.*\#{4})""",
            regex.DOTALL | regex.VERBOSE,
        ),
    ),
    Mark(  # `the answer is 6`, or `Answer: 6` on a line of its own
        "the last sentence",
        {"So the answer is 6, because 1 + 5 is.": "6", "We add.\n**Answer:** 6": "6"},
        regex.compile(
            # `answer` is matched first, and the words before it by looking back: 60 times as fast
            r"""answer(?:\ is:?|:)
            (?<= (?: \bthe\ (?:final\ |correct\ )? | (?:^|\n)[\s*]*(?:final\ )? )
                answer(?:\ is:?|:) )
            [\s*]* (?P<inside>[^\s*][^\n]{0,99}?) \**
            (?: (?: # a reason
                    ,?\s+(?:because|since|which|where)\b | ,\s+so\b | \s+—
                    # an aside in brackets
                  | \s+\([^()\n]*[a-z]{2,}\ [a-z]{2,}[^()\n]*\)
                    # another sentence
                  | (?<=[\d)}$*]|\w{4})\.\**\s+(?=(?-i:[A-Z]))
                ) [^\n]* )?
            [.*]*\s*$""",
            regex.IGNORECASE | regex.VERBOSE,
        ),
    ),
    Mark(  # with pairs of braces inside, or without braces: `\boxed 6`
        r"\boxed{}",
        {r"It is $\boxed{\frac{1}{2}}$.": r"\frac{1}{2}", r"So \fbox 6": "6"},
        regex.compile(
            r"""\\(?:boxed|fbox)\s*
            (?: (?P<inside>\w)
              | \{ (?P<inside> (?:[^{}\\]|\\.|(?P<pair>\{(?:[^{}\\]|\\.|(?&pair))*\}))* ) \} )""",
            regex.DOTALL | regex.VERBOSE,
        ),
    ),
    Mark(  # problems of the AMC contests: the letter and the text of an option
        LETTER_IN_BOX,
        {r"\boxed{\textbf{(C)}\ 51}": "(C) 51", r"So \boxed{\mathrm{(C)}}": "(C)"},
        regex.compile(
            r"^\\(?:text|math)\w*\s*\{\s*(?P<inside>\([A-Z]\))\s*\}[\\\s~,;]*(?P<inside>.*)$",
            regex.DOTALL,
        ),
    ),
]
MARK_NAMES = frozenset(mark.name for mark in MARKS)


def answer_in(value: object, kind: str | None = None) -> tuple[object, str]:
    r"""Return the answer in a value, and the mark or field it was found in.

    If the value is the answer itself, the second element is "". Numbers that were found lose their
    thousands separators, as in GSM8K.

    value: a worked solution, a field of a hub dataset, or the answer itself.
    kind: how the answer is judged. Answers of a kind in TEXT_KINDS may be about marks, so only a
        mark at the end of a solution is read, and a list in a CSV cell is itself the answer.

    Raise Dropped if several different results are marked.

    >>> answer_in("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    ('1234', '####')
    >>> answer_in({"ground_truth": r"We add: $\boxed{\frac{1}{2}}$.", "style": "rule"})
    ('\\frac{1}{2}', '\\boxed{}')
    """
    is_text = kind in TEXT_KINDS
    value, found_in = _unpacked(value, is_text)
    if not isinstance(value, str):
        return value, found_in
    value, found_in = _marked_result(value, found_in, is_text)
    # GSM8K has 1,234
    if found_in and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", value.strip()):
        value = value.replace(",", "")
    return value, found_in


def _unpacked(value: object, is_text: bool) -> tuple[object, str]:
    """Return the value inside the fields of verl's datasets and inside lists of one answer, and
    which of these was opened last.

    >>> _unpacked({"ground_truth": {"target": ["Paris"]}}, is_text=False)
    ('Paris', 'a list of one')
    """
    # 1. Read a field or a list that a CSV cell holds as text. `[1, 2]` stays a text: it may be an
    # interval.
    literal = parse_literal(value)
    is_field = isinstance(literal, dict) and "ground_truth" in literal
    has_texts = isinstance(literal, list) and any(isinstance(item, str) for item in literal)
    if is_field or (has_texts and not is_text):
        value = literal

    # 2. Open the fields.
    found_in = ""
    for field in ("ground_truth", "target"):
        if isinstance(value, dict) and field in value:
            value = value[field]
            found_in = f"the field {field}"

    # 3. Open lists of one answer, which may be in it several times.
    while isinstance(value, list):
        answers = {str(item).strip() for item in value}
        if len(answers) != 1:
            break
        value = value[0]
        found_in = "a list of one"
    return value, found_in


def _marked_result(text: str, found_in: str, is_text: bool) -> tuple[str, str]:
    r"""Return the marked result in a text, and the mark; without a mark, return the arguments.

    Each mark is looked for in the result of the mark before it, in the order of MARKS.

    >>> _marked_result(r"<answer>so \boxed{6}</answer>", "", is_text=False)
    ('6', '\\boxed{}')
    """
    for mark in MARKS:
        if is_text and not mark.also_in_texts:
            continue
        results = set()
        for match in mark.pattern.finditer(text):
            # in a text, a mark counts only at the end, and only if it is not the whole text
            is_at_end = match.end() >= len(text.rstrip())
            is_whole_text = match.start() == 0 and not found_in
            if is_text and (not is_at_end or is_whole_text):
                continue
            results.add(" ".join(match.captures("inside")).strip())
        if len(results) > 1 or results == {""}:
            raise Dropped(f"there is not exactly one answer in {mark.name}", _ONE_RESULT)
        if results:
            text = results.pop()
            found_in = mark.name
    if "####" in text and not is_text:
        raise Dropped("there is not exactly one answer in ####, which are headings", _ONE_RESULT)
    return text, found_in
