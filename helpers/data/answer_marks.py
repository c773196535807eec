r"""Where the answer stands in a worked solution: behind `####`, in `\boxed{}`, between tags.

`answer_in` takes it out of a row's value. The marks stand below it, each with two examples.
"""

import re
from typing import NamedTuple

import regex

from helpers.data.files import Dropped, parse_literal

TEXT_KINDS = ("text", "exact")  # whose answers may be any text, also one about marks
LETTER_IN_BOX = "a letter in a box"
_ONE_RESULT = "Mark one result per row, and not several parts."


def answer_in(value: object, kind: str | None = None) -> tuple[object, str]:
    r"""Return the answer in a value, and what it was in; "" if it is the value itself.

    A number that was found has no thousands separators, as in GSM8K. Dropped for several results.

    kind: as declared. An answer of kind exact or text is taken out of a mark only at the end of a
        working. A list of texts in a cell of a CSV file is the answer itself if its kind is one of
        these, set or mathematics.

    >>> answer_in("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    ('1234', '####')
    >>> answer_in({"ground_truth": r"We add: $\boxed{\frac{1}{2}}$.", "style": "rule"})
    ('\\frac{1}{2}', '\\boxed{}')
    """
    is_text = kind in TEXT_KINDS
    shape = ""

    # 1. out of a field, or of a list of one; in a CSV file each is written as a text
    literal = parse_literal(value)
    has_field = isinstance(literal, dict) and "ground_truth" in literal
    has_texts = isinstance(literal, list) and any(isinstance(item, str) for item in literal)
    may_be_a_list = is_text or kind in ("set", "mathematics")
    if has_field or (has_texts and not may_be_a_list):
        value = literal
    for field in ("ground_truth", "target"):
        if isinstance(value, dict) and field in value:
            value = value[field]
            shape = f"the field {field}"
    while isinstance(value, list) and len({str(item).strip() for item in value}) == 1:
        value = value[0]
        shape = "a list of one"
    if not isinstance(value, str):
        return value, shape

    # 2. out of one mark after the other, each in what the one before had inside
    for mark in MARKS:
        if is_text and not mark.also_in_texts:
            continue
        matches = list(mark.pattern.finditer(value))
        if is_text:  # behind a working, and at its end
            end = len(value.rstrip())
            matches = [m for m in matches if (m.start() > 0 or shape) and m.end() >= end]
        results = {" ".join(match.captures("inside")).strip() for match in matches}
        if len(results) > 1 or results == {""}:
            raise Dropped(f"there is not one answer in {mark.name}", _ONE_RESULT)
        if results:
            value = results.pop()
            shape = mark.name
    if "####" in value and not is_text:
        raise Dropped("there is not one answer in ####, which are headings", _ONE_RESULT)

    # 3. GSM8K's 1,234
    if shape and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", value.strip()):
        value = value.replace(",", "")
    return value, shape


class Mark(NamedTuple):
    """A way to mark the answer in a worked solution.

    name: as the report counts it. examples: worked solutions and the answers in them. pattern: its
    group `inside` is the answer; of several such groups, all of them with spaces between.
    also_in_texts: whether answers of `TEXT_KINDS` are marked so, too.
    """

    name: str
    examples: dict[str, str]
    pattern: regex.Pattern
    also_in_texts: bool = False


# In the order in which they are looked for: the reasoning may have marks of its own, and a box may
# be in any other mark.
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
    Mark(  # on the last line
        "####",
        {"We add.\n#### 1,234": "1234", "#### Step 1\nAdd.\n#### six": "six"},
        regex.compile(r"(?<!\#)\#{4}(?!\#)\s*(?P<inside>(?:(?!\#{4})[^\n])*)\s*$"),
        also_in_texts=True,
    ),
    Mark(  # a number or a letter on another line, if it is the only one; others are headings
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
            # what leads to `answer` is looked at after it: sixty times as fast
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
    Mark(  # with braces in pairs inside; or `\boxed 6`
        r"\boxed{}",
        {r"It is $\boxed{\frac{1}{2}}$.": r"\frac{1}{2}", r"So \fbox 6": "6"},
        regex.compile(
            r"""\\(?:boxed|fbox)\s*
            (?: (?P<inside>\w)
              | \{ (?P<inside> (?:[^{}\\]|\\.|(?P<pair>\{(?:[^{}\\]|\\.|(?&pair))*\}))* ) \} )""",
            regex.DOTALL | regex.VERBOSE,
        ),
    ),
    Mark(  # AMC's problems; the letter, and the text of its option
        LETTER_IN_BOX,
        {r"\boxed{\textbf{(C)}\ 51}": "(C) 51", r"So \boxed{\mathrm{(C)}}": "(C)"},
        regex.compile(
            r"^\\(?:text|math)\w*\s*\{\s*(?P<inside>\([A-Z]\))\s*\}[\\\s~,;]*(?P<inside>.*)$",
            regex.DOTALL,
        ),
    ),
]
MARK_NAMES = frozenset(mark.name for mark in MARKS)
