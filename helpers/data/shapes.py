r"""The question and the answer of a row, in the shapes that people's data has.

A question may be chat messages (verl, ms-swift, ShareGPT) or a prompt that is already in a chat
template, and may have its options in another column. An answer may be at the end of a worked
solution (`####`, `\boxed{}`, `<answer>`). If there is one right reading, it is taken and counted in
the report; if not, a ValueError says what was found, and `tasks.ADVICE` what to do.
"""

import ast
import json
import re
from contextlib import suppress

import regex

from helpers.tags import completion_text

# the user's turn: ChatML, Llama 3, Gemma, gpt-oss, Phi, DeepSeek, Mistral and Llama 2, Alpaca
_TURN = re.compile(
    r"(?:<\|im_start\|>user|<\|start_header_id\|>user<\|end_header_id\|>|<start_of_turn>user"
    r"|<\|turn>user|<\|start\|>user<\|message\|>|<\|user\|>|<｜User｜>"
    r"|\[INST\](?:\s*<<SYS>>.*?<</SYS>>)?|### Instruction:)\s*(.*?)\s*"
    r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<turn\|>|<\|end\|>|</s>|<\|assistant\|>|<｜Assistant｜>"
    r"|\[/INST\]|### Response:)",
    re.DOTALL,
)
_MARK = re.compile(
    r"<[|｜][a-zA-Z_▁]{2,}[|｜]>|<(?:start|end)_of_turn>|\[/?INST\]"
    r"|\b(?:Assistant|ASSISTANT):(?=\s*(?:<think>\s*)?$)"
)
# where the answer of a worked solution is; each may be in the one before
_PLACES = {
    "answer tags": regex.compile(
        r"<(answer|solution|final_answer)>(?P<inside>.*?)</\1>", regex.DOTALL | regex.IGNORECASE
    ),
    "####": regex.compile(r"####(?P<inside>(?:(?!####).)*)$", regex.DOTALL),
    # what comes before is looked at last: sixty times as fast
    "the last sentence": regex.compile(
        r"answer(?: is:?|:)"
        r"(?<=(?:\bthe (?:final |correct )?|(?:^|\n)[\s*]*(?:final )?)answer(?: is:?|:))"
        r"[\s*]*(?P<inside>[^\s*][^\n]{0,99}?)[.*]*\s*$",
        regex.IGNORECASE,
    ),
    r"\boxed{}": regex.compile(
        r"\\(?:boxed|fbox)\s*(?:(?P<inside>\w)"
        r"|\{(?P<inside>(?:[^{}\\]|\\.|(?P<pair>\{(?:[^{}\\]|\\.|(?&pair))*\}))*)\})",
        regex.DOTALL,
    ),
}
BEYOND = "answer is a number beyond the options"  # they may be counted from 1
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def parsed(value: object) -> object:
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
    messages = parsed(value)
    if (
        isinstance(messages, list)
        and messages
        and all(isinstance(one, dict) and one.keys() & {"role", "from"} for one in messages)
    ):
        said = [
            one.get("content", one.get("value"))
            for one in messages
            if one.get("role", one.get("from")) in ("user", "human")
        ]
        if not said:
            raise ValueError("question is a list of messages, none of the user's")
        value = completion_text([{"content": said[-1]}])
        where = "chat messages, the last user's" if len(said) > 1 else "chat messages"
    if isinstance(value, str):
        for turn in _TURN.findall(value)[-1:]:
            value = re.sub(r"\s*### Input:\s*", "\n\n", turn)
            where = "a chat template"
        mark = _MARK.search(value)
        if mark:
            raise ValueError(f"question has {mark[0]}, a mark of a chat template")
    return value, where


def answer_in(value: object) -> tuple[object, str]:
    r"""Return the answer in a value, and what it was in; "" if it is the value itself.

    A number that was found has no thousands separators, as in GSM8K.

    >>> answer_in("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    ('1234', '####')
    >>> answer_in({"ground_truth": r"We add: $\boxed{\frac{1}{2}}$.", "style": "rule"})
    ('\\frac{1}{2}', '\\boxed{}')
    """
    where = ""
    if isinstance(value, str) and "ground_truth" in value:
        value = parsed(value)
    for field in ("ground_truth", "target"):
        if isinstance(value, dict) and field in value:
            value = value[field]
            where = f"the field {field}"
    if isinstance(value, list) and len({str(one).strip() for one in value}) == 1:
        value = value[0]
        where = "a list of one"
    if not isinstance(value, str):
        return value, where
    for place, pattern in _PLACES.items():
        found = {match["inside"].strip() for match in pattern.finditer(value)}
        if len(found) > 1 or found == {""}:
            raise ValueError(f"there is not one answer in {place}")
        if found:
            value = found.pop()
            where = place
    if where and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", value.strip()):
        value = value.replace(",", "")
    return value, where


def with_options(question: str, options: object, answer: object) -> tuple[str, str]:
    """Return a question with its options below it, if it lacks them, and the letter of the answer.

    options: a list of texts; texts by label; or {"label": [...], "text": [...]}. answer: a label, a
    text, or the number of an option from 0, an integer unless there are numbers among the options.
    ValueError if it is none of these.

    >>> with_options("Which is red?", ["sky", "blood"], "blood")
    ('Which is red?\\nA. sky\\nB. blood', 'B')
    """
    if isinstance(options, dict) and options.keys() == {"label", "text"}:
        options = dict(zip(options["label"], options["text"], strict=True))
    if isinstance(options, list):
        options = dict(zip(LETTERS, options, strict=False))
    # `A) red` is red: each gets its letter anew
    texts = [
        re.sub(rf"^\(?{letter}[).:]\s*", "", str(text).strip())
        for letter, text in zip(LETTERS, options.values(), strict=False)
    ]
    places = {text.casefold(): place for place, text in enumerate(texts)}
    places |= {str(label).casefold(): place for place, label in enumerate(options)}
    named = str(answer).strip(" ().").casefold()
    place = None if isinstance(answer, int) else places.get(named)
    if (
        place is None
        and named.isdecimal()
        and not (isinstance(answer, str) and any(text.isdecimal() for text in places))
    ):
        place = int(named)
    if place not in range(len(texts)):
        raise ValueError(BEYOND if place else "answer is no option")
    if not all(text in question for text in texts):
        question += "".join(f"\n{LETTERS[n]}. {text}" for n, text in enumerate(texts))
    return question, LETTERS[place]
