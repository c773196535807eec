r"""The question and the answer of a row, in the shapes that people's data has.

A question may be chat messages (verl, ms-swift, ShareGPT) or a prompt that is already in a chat
template, and may have its options in another column. An answer may be at the end of a worked
solution (`####`, `\boxed{}`, `<answer>`). If there is one right reading, it is taken and counted in
the report; if not, `Dropped` says what was found, and what to do about it.
"""

import ast
import json
import re
from contextlib import suppress

import regex

from helpers.data.files import Dropped
from helpers.tags import completion_text

# What is between the marks of a user's turn.
_TURN = re.compile(
    r"""(?:
          <\|im_start\|>user                                    # ChatML
        | <\|start_header_id\|>user<\|end_header_id\|>          # Llama 3
        | <start_of_turn>user | <\|turn>user                    # Gemma
        | <\|start\|>user<\|message\|>                          # gpt-oss
        | [<[]\|user\|[>\]]                                     # Phi, EXAONE
        | <｜User｜>                                             # DeepSeek
        | \[INST\](?:\s*<<SYS>>.*?<</SYS>>)?                    # Mistral, Llama 2
        | \#\#\#\ Instruction:                                  # Alpaca
    )
    \s*(.*?)\s*
    (?:
          <\|im_end\|> | <\|eot_id\|> | <end_of_turn> | <turn\|> | <\|end\|> | </s>
        | [<[]\|assistant\|[>\]] | \[\|endofturn\|\] | <｜Assistant｜> | \[/INST\]
        | \#\#\#\ Response:
    )""",
    re.DOTALL | re.VERBOSE,
)
# A mark of a template, and not of a question about one: it begins a line, or ends the text.
_TEMPLATE_MARK = regex.compile(
    r"""^(?P<mark>[<[][|｜][a-zA-Z_▁]{2,}[|｜][>\]] | <(?:start|end)_of_turn> | \[/?INST\])
    | (?: (?&mark) | \b(?:Assistant|ASSISTANT): ) (?= \s* (?:<think>\s*)? \Z)""",
    regex.MULTILINE | regex.VERBOSE,
)
LETTER_IN_BOX = "a letter in a box"
# Where the result of a worked solution is, by the name that the report gives the place. They are
# looked for in this order, each in what was found before.
_MARKS = {
    "what follows the reasoning": regex.compile(
        r"</(think|thinking|thought|reasoning)>(?P<inside>(?:(?!</\1).)*\S)\s*$",
        regex.DOTALL | regex.IGNORECASE,
    ),
    "answer tags": regex.compile(
        r"<(answer|solution|final_answer)>(?P<inside>.*?)</\1>", regex.DOTALL | regex.IGNORECASE
    ),
    # at the end; or, if it is a number or a letter, on the only such line. Others are headings.
    "####": regex.compile(
        r"""(?<!\#)\#{4}(?!\#) \s* (?P<inside>(?:(?!\#{4})[^\n])*) \s*$
        | (?<!\#{4}.*|\#)\#{4}(?!\#)
          [ *$]* (?P<inside>[+-]?\d[\d.,/]*%?|[A-Z]) [ *$.]* \n(?!.*\#{4})""",
        regex.DOTALL | regex.VERBOSE,
    ),
    "the last sentence": regex.compile(
        r"""answer(?:\ is:?|:)
        # `the answer is`, or `Answer:` on a line of its own; looked at last: sixty times as fast
        (?<= (?: \bthe\ (?:final\ |correct\ )? | (?:^|\n)[\s*]*(?:final\ )? ) answer(?:\ is:?|:) )
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
    r"\boxed{}": regex.compile(
        r"""\\(?:boxed|fbox)\s*
        (?: (?P<inside>\w)
          | \{ (?P<inside> (?:[^{}\\]|\\.|(?P<pair>\{(?:[^{}\\]|\\.|(?&pair))*\}))* ) \} )""",
        regex.DOTALL | regex.VERBOSE,
    ),
    # of AMC's problems: \textbf{(C)}\ 51
    LETTER_IN_BOX: regex.compile(
        r"^\\(?:text|math)\w*\s*\{\s*(?P<inside>\([A-Z]\))\s*\}[\\\s~,;]*(?P<inside>.*)$",
        regex.DOTALL,
    ),
    "####, which are headings": regex.compile(r"\#\#\#\#(?P<inside>)"),
}
MARKS = frozenset(_MARKS)
NUMBERED = "an option's number, counted from 0"
ANY_TEXT = ("text", "exact")  # kinds, by name, whose answers may be any text
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# between the options that a text lists: a new line, a bar, a semicolon, or the letter of the next
_BETWEEN = re.compile(
    r"\s*(?:[\n|;]+|^)\s*(?:\(?[A-Za-z] ?[).:](?=\s))?\s*|[\s,]+\(?[A-Za-z] ?\)\s+"
)


def parse_literal(value: object) -> object:
    """Return the list or dictionary that a text writes out, as in a cell of a CSV file; else the
    value.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value)
    return value


def question_in(value: object) -> tuple[object, str]:
    r"""Return the question in a value, and what it was in; "" if it is the value itself.

    Dropped for messages without one, and for what is left of a chat template.

    >>> question_in([{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}])
    ('1 + 1?', 'chat messages')
    >>> question_in("<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n")
    ('1 + 1?', 'a chat template')
    """
    shape = ""
    messages = parse_literal(value)
    is_chat = isinstance(messages, list) and all(
        isinstance(turn, dict) and turn.keys() & {"role", "from"} for turn in messages
    )
    if is_chat and messages:
        questions = [
            turn.get("content", turn.get("value"))
            for turn in messages
            if turn.get("role", turn.get("from")) in ("user", "human")
        ]
        if not questions:
            raise Dropped(
                "question is a list of messages, none of the user's",
                'Name the field that is meant: columns={"question": "column.field"}.',
            )
        value = completion_text([{"content": questions[-1]}])
        shape = "chat messages, the last user's" if len(questions) > 1 else "chat messages"
    if not isinstance(value, str):
        return value, shape
    turns = _TURN.findall(value)
    if turns:
        value = re.sub(r"\s*### Input:\s*", "\n\n", turns[-1])
        shape = "a chat template"
    mark = _TEMPLATE_MARK.search(value)
    if mark:
        raise Dropped(
            f"question has {mark[0]}, a mark of a chat template",
            "Give the question alone: the model's own chat template is put around it.",
        )
    return value, shape


def answer_in(value: object, kind: str | None = None) -> tuple[object, str]:
    r"""Return the answer in a value, and what it was in; "" if it is the value itself.

    A number that was found has no thousands separators, as in GSM8K. Dropped for several results.

    kind: as declared. An answer of kind exact or text is taken out of `####` and tags only at the
        end of a working, because it may be about such marks. A list of texts in a cell of a CSV
        file is the answer itself if its kind is one of these, set or mathematics.

    >>> answer_in("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    ('1234', '####')
    >>> answer_in({"ground_truth": r"We add: $\boxed{\frac{1}{2}}$.", "style": "rule"})
    ('\\frac{1}{2}', '\\boxed{}')
    """
    shape = ""
    # a field, or a list of one; in a CSV file, each is a text
    literal = parse_literal(value)
    is_field = isinstance(literal, dict) and "ground_truth" in literal
    is_list = isinstance(literal, list) and any(isinstance(item, str) for item in literal)
    if is_field or (is_list and kind not in (*ANY_TEXT, "set", "mathematics")):
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

    # the result of a worked solution
    is_text = kind in ANY_TEXT
    for mark, pattern in list(_MARKS.items())[: 3 if is_text else None]:
        matches = list(pattern.finditer(value))
        if is_text:  # at the end of a working
            end = value.rstrip()
            matches = [m for m in matches if (m.start() or shape) and m.end() >= len(end)]
        results = {" ".join(match.captures("inside")).strip() for match in matches}
        if len(results) > 1 or results == {""}:
            raise Dropped(
                f"there is not one answer in {mark}",
                "Mark one result per row, and not several parts.",
            )
        if results:
            value = results.pop()
            shape = mark
    if shape and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", value.strip()):
        value = value.replace(",", "")
    return value, shape


def options_in(value: object) -> dict:
    """Return the options in a value, by their labels; without labels, by letters. Empty for a value
    that is none.

    value: a list of texts, or of dictionaries of a label and a text; texts by label; {"label":
    [...], "text": [...]}; or a text that lists them behind letters, on lines, or between bars.

    >>> options_in([{"key": "A", "value": "red"}, {"key": "B", "value": "blue"}])
    {'A': 'red', 'B': 'blue'}
    >>> options_in("a ) red , b ) blue"), options_in("red|blue")
    ({'A': 'red', 'B': 'blue'}, {'A': 'red', 'B': 'blue'})
    """
    options = parse_literal(value)
    if isinstance(options, str):
        options = [text for text in _BETWEEN.split(options.strip()) if text]
    if isinstance(options, list):
        # MedQA has key and value, others id and text
        return {
            _first(option, ("label", "key", "id"), letter): _first(
                option, ("text", "value"), option
            )
            for letter, option in zip(LETTERS, options, strict=False)
        }
    if not isinstance(options, dict):
        return {}
    if options.keys() == {"label", "text"}:
        return dict(zip(options["label"], options["text"], strict=False))
    return options


def _first(option: object, names: tuple[str, ...], default: object) -> object:
    """Return the first of these fields that an option has."""
    for name in names:
        if isinstance(option, dict) and name in option:
            return option[name]
    return default


def with_options(question: str, options: dict, answer: object) -> tuple[str, str, str]:
    """Return a question with its options below it, unless each is in it after its letter; the
    letter of the answer; and NUMBERED if the answer is a number, else "".

    options: from `options_in`. answer: a label, a text, both (`B. blue`), or the number of an
    option from 0, an integer unless there are numbers among the options. Dropped if it is none of
    these; ValueError for a number beyond the options, because then others may count from 1, too.

    >>> with_options("Which is red?", {"A": "sky", "B": "blood"}, "blood")
    ('Which is red?\\nA. sky\\nB. blood', 'B', '')
    """
    # `A) red` is red: each gets its letter anew
    texts = [
        re.sub(rf"^\(?{letter}[).:]\s*", "", str(text).strip())
        for letter, text in zip(LETTERS, options.values(), strict=False)
    ]
    if len(texts) < 2 or any(isinstance(text, list | dict) for text in options.values()):
        raise Dropped(
            "options are not several texts",
            'Give a list of texts, ["red", "blue"], or texts by their labels, {"A": "red"}.',
        )

    # what names an option: its text, unless another has the same; its label; or both
    folded = [text.casefold() for text in texts]
    labels = [str(label).casefold() for label in options][: len(texts)]
    places = {text: n for n, text in enumerate(folded) if folded.count(text) == 1}
    places |= {f"{labels[n]}{sign} {text}": n for n, text in enumerate(folded) for sign in ").:"}
    places |= {label: n for n, label in enumerate(labels)}
    key = str(answer).strip(" ().").casefold()

    # or its number: an integer, also as tables have it (1.0), or a text among words
    number = key if isinstance(answer, str) else key.removesuffix(".0")
    is_number = number.isdecimal() and key not in labels
    if isinstance(answer, str) and any(name.isdecimal() for name in places):
        is_number = False
    if is_number and int(number) >= len(texts):
        raise ValueError(
            f"the answer {answer!r} is a number beyond the {len(texts)} options of {question!r}. "
            "Numbers count from 0 here; if yours count from 1, or are options themselves, give the "
            'letters, or the options as texts ("10", not 10).'
        )
    place = int(number) if is_number else places.get(key)
    if place is None:
        raise Dropped(
            "answer is no option",
            "An answer is the label or the text of an option, or, as an integer, its number from "
            "0; among options that are numbers, 2 as a text is the option 2. Are these the "
            'columns? columns={"answer": "…", "options": "…"}.',
        )
    is_shown = all(
        re.search(rf"(?<!\w){letter}[^\w\s]\W{{0,3}}{re.escape(text)}(?!\w)", question)
        for letter, text in zip(LETTERS, texts, strict=False)
    )
    if not is_shown:
        question += "".join(f"\n{LETTERS[n]}. {text}" for n, text in enumerate(texts))
    return question, LETTERS[place], NUMBERED if is_number else ""
