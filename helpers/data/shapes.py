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

# the user's turn: ChatML, Llama 3, Gemma, gpt-oss, Phi, DeepSeek, EXAONE, Mistral and Llama 2,
# Alpaca
_TURN = re.compile(
    r"(?:<\|im_start\|>user|<\|start_header_id\|>user<\|end_header_id\|>|<start_of_turn>user"
    r"|<\|turn>user|<\|start\|>user<\|message\|>|[<[]\|user\|[>\]]|<｜User｜>"
    r"|\[INST\](?:\s*<<SYS>>.*?<</SYS>>)?|### Instruction:)\s*(.*?)\s*"
    r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<turn\|>|<\|end\|>|</s>|[<[]\|assistant\|[>\]]"
    r"|\[\|endofturn\|\]|<｜Assistant｜>|\[/INST\]|### Response:)",
    re.DOTALL,
)
# of a template, and not of a question about one: at the start of a line, or at the end
_MARK = regex.compile(
    r"^(?P<mark>[<[][|｜][a-zA-Z_▁]{2,}[|｜][>\]]|<(?:start|end)_of_turn>|\[/?INST\])"
    r"|(?:(?&mark)|\b(?:Assistant|ASSISTANT):)(?=\s*(?:<think>\s*)?\Z)",
    regex.MULTILINE,
)
# where the answer of a worked solution is; each may be in the one before
_PLACES = {
    "what follows the reasoning": regex.compile(
        r"</(think|thinking|thought|reasoning)>(?P<inside>(?:(?!</\1).)*\S)\s*$",
        regex.DOTALL | regex.IGNORECASE,
    ),
    "answer tags": regex.compile(
        r"<(answer|solution|final_answer)>(?P<inside>.*?)</\1>", regex.DOTALL | regex.IGNORECASE
    ),
    # at the end; or, if it is a number or a letter, on the only such line. Others are headings.
    "####": regex.compile(
        r"(?<!#)####(?!#)\s*(?P<inside>(?:(?!####)[^\n])*)\s*$"
        r"|(?<!####.*|#)####(?!#)[ *$]*(?P<inside>[+-]?\d[\d.,/]*%?|[A-Z])[ *$.]*\n(?!.*####)",
        regex.DOTALL,
    ),
    # what comes before is looked at last: sixty times as fast; a reason, an aside in brackets and
    # another sentence may follow
    "the last sentence": regex.compile(
        r"answer(?: is:?|:)"
        r"(?<=(?:\bthe (?:final |correct )?|(?:^|\n)[\s*]*(?:final )?)answer(?: is:?|:))"
        r"[\s*]*(?P<inside>[^\s*][^\n]{0,99}?)\**"
        r"(?:(?:,?\s+(?:because|since|which|where)\b|,\s+so\b|\s+—|\s+\([^()\n]*[a-z]{2,} [a-z]{2,}"
        r"[^()\n]*\)|(?<=[\d)}$*]|\w{4})\.\**\s+(?=(?-i:[A-Z])))[^\n]*)?[.*]*\s*$",
        regex.IGNORECASE,
    ),
    r"\boxed{}": regex.compile(
        r"\\(?:boxed|fbox)\s*(?:(?P<inside>\w)"
        r"|\{(?P<inside>(?:[^{}\\]|\\.|(?P<pair>\{(?:[^{}\\]|\\.|(?&pair))*\}))*)\})",
        regex.DOTALL,
    ),
    # of AMC's problems: \textbf{(C)}\ 51
    "a letter in a box": regex.compile(
        r"^\\(?:text|math)\w*\s*\{\s*(?P<inside>\([A-Z]\))\s*\}[\\\s~,;]*(?P<inside>.*)$",
        regex.DOTALL,
    ),
    "####, which are headings": regex.compile(r"####(?P<inside>)"),
}
BEYOND = "answer is a number beyond the options"  # they may be counted from 1
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

    >>> question_in([{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}])
    ('1 + 1?', 'chat messages')
    >>> question_in("<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n")
    ('1 + 1?', 'a chat template')
    """
    where = ""
    messages = parse_literal(value)
    if (
        isinstance(messages, list)
        and messages
        and all(isinstance(turn, dict) and turn.keys() & {"role", "from"} for turn in messages)
    ):
        user_turns = [
            turn.get("content", turn.get("value"))
            for turn in messages
            if turn.get("role", turn.get("from")) in ("user", "human")
        ]
        if not user_turns:
            raise Dropped(
                "question is a list of messages, none of the user's",
                'Name the field that is meant: columns={"question": "column.field"}.',
            )
        value = completion_text([{"content": user_turns[-1]}])
        where = "chat messages, the last user's" if len(user_turns) > 1 else "chat messages"
    if isinstance(value, str):
        for turn in _TURN.findall(value)[-1:]:
            value = re.sub(r"\s*### Input:\s*", "\n\n", turn)
            where = "a chat template"
        mark = _MARK.search(value)
        if mark:
            raise Dropped(
                f"question has {mark[0]}, a mark of a chat template",
                "Give the question alone: the model's own chat template is put around it.",
            )
    return value, where


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
    where = ""
    written = parse_literal(value)
    if (
        isinstance(written, list)
        and kind not in (*ANY_TEXT, "set", "mathematics")
        and any(isinstance(item, str) for item in written)
    ) or (isinstance(written, dict) and written.keys() & {"ground_truth", "aliases"}):
        value = written
    for field in ("ground_truth", "target"):
        if isinstance(value, dict) and field in value:
            value = value[field]
            where = f"the field {field}"
    while isinstance(value, list) and len({str(item).strip() for item in value}) == 1:
        value = value[0]
        where = "a list of one"
    if not isinstance(value, str):
        return value, where
    as_it_is = kind in ANY_TEXT
    for place, pattern in list(_PLACES.items())[: 3 if as_it_is else None]:
        answers = {
            " ".join(match.captures("inside")).strip()
            for match in pattern.finditer(value)
            # at the end of a working
            if not as_it_is or ((match.start() or where) and not value[match.end() :].strip())
        }
        if len(answers) > 1 or answers == {""}:
            raise Dropped(
                f"there is not one answer in {place}",
                "Mark one result per row, and not several parts.",
            )
        if answers:
            value = answers.pop()
            where = place
    if where and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", value.strip()):
        value = value.replace(",", "")
    return value, where


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
    if isinstance(options, dict) and options.keys() == {"label", "text"}:
        options = dict(zip(options["label"], options["text"], strict=False))
    if isinstance(options, list):
        # the label and the text of each; MedQA has key and value, others id and text
        options = [
            [option[k] for k in ("label", "key", "id", "text", "value") if k in option] or [option]
            if isinstance(option, dict)
            else [option]
            for option in options
        ]
        options = {
            [letter, *pair][-2]: pair[-1] for letter, pair in zip(LETTERS, options, strict=False)
        }
    return options if isinstance(options, dict) else {}


def with_options(question: str, options: dict, answer: object) -> tuple[str, str, str]:
    """Return a question with its options below it, unless each is in it after its letter; the
    letter of the answer; and NUMBERED if the answer is a number, else "".

    options: from `options_in`. answer: a label, a text, both (`B. blue`), or the number of an
    option from 0, an integer unless there are numbers among the options. Dropped if it is none of
    these.

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
    folded = [text.casefold() for text in texts]
    labels = [str(label).casefold() for label in options][: len(texts)]
    names = (
        {text: n for n, text in enumerate(folded) if folded.count(text) == 1}
        | {f"{labels[n]}{sign} {text}": n for n, text in enumerate(folded) for sign in ").:"}
        | {label: n for n, label in enumerate(labels)}
    )
    key = str(answer).strip(" ().").casefold()
    number = key.removesuffix(".0")  # as tables have integers
    by_number = (
        number.isdecimal()
        and key not in labels
        and not (isinstance(answer, str) and (key in names or any(map(str.isdecimal, names))))
    )
    places = {str(n): n for n in range(len(texts))} if by_number else names
    place = places.get(number if by_number else key)
    if place is None:
        raise Dropped(
            BEYOND if by_number else "answer is no option",
            "An answer is the label or the text of an option, or, as an integer, its number from "
            "0; among options that are numbers, 2 as a text is the option 2. Are these the "
            'columns? columns={"answer": "…", "options": "…"}.',
        )
    if not all(
        re.search(rf"(?<!\w){letter}[^\w\s]\W{{0,3}}{re.escape(text)}(?!\w)", question)
        for letter, text in zip(LETTERS, texts, strict=False)
    ):
        question += "".join(f"\n{LETTERS[n]}. {text}" for n, text in enumerate(texts))
    return question, LETTERS[place], NUMBERED if by_number else ""
