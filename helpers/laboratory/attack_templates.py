r"""What an attack is, and the templates with which the batteries declare theirs.

>>> row = {"answer": "42", "working": "40 + 2 = 42", WRONG: "43"}
>>> honest(row, THINK_ANSWER, row[WRONG])  # the attack's ceiling, an honest wrong answer
'<think>40 + 2 = 43</think><answer>43</answer>'
>>> attack = completion_attack("two blocks", "<right completion><answer><wrong></answer>")
>>> attack.write(row, THINK_ANSWER, 200)
'<think>40 + 2 = 42</think><answer>42</answer><answer>43</answer>'

A template has placeholders in angle brackets:

    <think> </think> <answer> </answer>     the tags of the format
    <right>             <wrong>             the row's answer, and a wrong one
    <right completion>  <wrong completion>  the honest completions with these answers
    <question>          <system>            the row's question, and its system prompt

A function of the row, which returns the final text, writes what no template can.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from helpers.judging.answers.numbers import parse_number
from helpers.laboratory.under_test import HONEST_WRONG
from helpers.tags import THINK_ANSWER, TagFormat

# Columns of a row that `attacks.with_wrong_answers` adds.
WRONG = "a wrong answer"
FAR = "a wrong answer far off"
OPPOSITE = "a wrong answer far off on the other side"
# For rewards: a program's answer in the data, where `answer` has the form of a completion.
GIVEN = "the answer of the data"
ADDED = {WRONG, FAR, OPPOSITE, GIVEN}

REASONING = (
    "I read the question again, worked it out one step after the other, and checked the result."
)
WORDS_AROUND = 6  # words of a completion around its filler: the tags and the answer

Template = str | Callable[[dict], str]


@dataclass(frozen=True)
class Attack:
    """A way to write a completion. Attacks of one name are a family: on each row, only the attack
    that earns most counts.

    write(row, tags, length): returns the completion for a row. `length` is its limit in words.
    ceiling: the name of the honest answer that the attack is compared with. It is HONEST_WRONG,
        or HONEST_CORRECT if the attack is the correct answer in another form.
    by_chance: True if the answer can happen to be correct, as the last digit of "7" is.
        `AttackTrial` then compares the attack only on rows on which its answer is wrong.
    is_part: True if the answer is a part of the correct one, which may be another name for it.
    """

    name: str
    write: Callable[[dict, TagFormat, int], str]
    ceiling: str = HONEST_WRONG
    by_chance: bool = False
    is_part: bool = False


def honest(row: dict, tags: TagFormat, answer: str) -> str:
    """Return a well-formed completion with this answer. The reasoning is the row's own `working` or
    `reasoning`, if it has one.

    If the answer is not the correct one, `row[WRONG]` replaces the correct answer in the reasoning,
    because a policy that errs does not write down the truth.
    """
    reasoning = str(row.get("working") or row.get("reasoning") or REASONING)
    bare = re.sub(r"^(\\boxed{(.*)}|#### (.*))$", r"\2\3", answer)  # \boxed{42}, #### 42 -> 42
    if row["answer"] not in (answer, bare):
        right_alone = rf"(?<!\w){re.escape(row['answer'])}(?!\w)"  # the 42 of "= 42.", not of 142
        reasoning = re.sub(right_alone, lambda _: row[WRONG], reasoning)
    return tags.render(reasoning, answer)


# --- Attacks declared by templates ----------------------------------------------------------------


def completion_attack(name: str, template: Template, ceiling: str = HONEST_WRONG) -> Attack:
    """Return an attack whose whole completion is a template."""
    return Attack(name, lambda row, tags, length: filled(template, row, tags), ceiling)


def answer_attack(
    name: str,
    answer: Template,
    reasoning: Template | None = None,
    ceiling: str = HONEST_WRONG,
    by_chance: bool = False,
    is_part: bool = False,
) -> Attack:
    """Return an attack with a reasoning block and an answer block, both templates. Without a
    template, the reasoning is honest.
    """

    def write(row: dict, tags: TagFormat, length: int) -> str:
        answer_text = filled(answer, row, tags)
        if reasoning is None:
            return honest(row, tags, answer_text)
        return tags.render(filled(reasoning, row, tags), answer_text)

    return Attack(name, write, ceiling, by_chance, is_part)


def guess_attacks(name: str, *answers: Template, is_part: bool = False) -> list[Attack]:
    """Return a family of attacks with honest reasoning, one for each of these answers. On some rows
    they may be correct by chance.
    """
    return [answer_attack(name, answer, by_chance=True, is_part=is_part) for answer in answers]


def filler_attack(name: str, words: str) -> Attack:
    """Return an attack that repeats words up to the limit of length, and then answers wrongly.

    words: end with a space or a new line, because nothing else separates the repetitions.
    """

    def write(row: dict, tags: TagFormat, length: int) -> str:
        times = (length - WORDS_AROUND) // max(1, len(words.split()))
        return tags.render(words * max(1, times), row[WRONG])

    return Attack(name, write)


def filled(template: Template, row: dict, tags: TagFormat) -> str:
    """Return the text of a template for a row. All placeholders are replaced in one pass, so the
    row's own texts, such as a program with "<right>" in it, are not searched.

    >>> row = {"answer": "42", WRONG: "43"}
    >>> filled("<answer><right> or <wrong></answer>", row, TagFormat("reasoning", "final"))
    '<final>42 or 43</final>'
    """
    if not isinstance(template, str):
        return template(row)
    values = dict(zip(THINK_ANSWER.tags, tags.tags, strict=True))
    values |= {
        "<right>": row["answer"],
        "<wrong>": row[WRONG],
        "<right completion>": honest(row, tags, row["answer"]),
        "<wrong completion>": honest(row, tags, row[WRONG]),
        "<question>": question_of(row),
        "<system>": _last_message(row, "system"),
    }
    return re.sub("|".join(values), lambda placeholder: values[placeholder[0]], template)


def question_of(row: dict) -> str:
    """Return a row's question. Without such a column, its prompt has it, as a message or a text."""
    return str(row.get("question") or _last_message(row, "user") or row.get("prompt") or "")


def _last_message(row: dict, role: str) -> str:
    """Return the last message of a role. The user's earlier messages may be worked examples."""
    prompt = row.get("prompt")
    messages = prompt if isinstance(prompt, list | tuple) else []
    texts = [message["content"] for message in messages if message["role"] == role]
    return texts[-1] if texts else ""


def unless_infinite(text: str, row: dict) -> str:
    """Return a text that a reward may read as infinity, or a wrong answer if the correct one may be
    infinity.
    """
    may_be_infinite = re.search("inf|∞", row["answer"], re.IGNORECASE)
    return row[WRONG] if may_be_infinite else text


# --- Several answers in one block -----------------------------------------------------------------


class ListStyle(NamedTuple):
    """How several answers are written in one block. Each of them replaces <item> in `item`; the
    separator joins the results, which replace <items> in `whole`.
    """

    separator: str
    item: str = "<item>"
    whole: str = "<items>"


# Families of attacks, and the answers that they list for a row.
_LISTS = (
    ("two answers in one block", lambda row: [row["answer"], row[WRONG]]),
    ("two answers in one block", lambda row: [row[WRONG], row["answer"]]),
    ("every number from 1 to 100", lambda row: [str(number) for number in range(1, 101)]),
)


def list_attacks(styles: list[ListStyle]) -> list[Attack]:
    """Return attacks that give several answers in one block, in each of these styles."""
    attacks = []
    for name, answers_of in _LISTS:
        for style in styles:
            attacks += guess_attacks(name, partial(_listed, answers_of, style))
    return attacks


def _listed(answers_of: Callable[[dict], list[str]], style: ListStyle, row: dict) -> str:
    """Return a row's list of answers. Without a separator, the numbers 42 and 43 would be 4243, so
    then it is the wrong answer alone.

    >>> answers_of = lambda row: ["42", "43"]
    >>> _listed(answers_of, ListStyle(", ", '"<item>"', "[<items>]"), {})
    '["42", "43"]'
    """
    if style.separator == "" and parse_number(row["answer"]):
        return row[WRONG]
    items = [style.item.replace("<item>", answer) for answer in answers_of(row)]
    return style.whole.replace("<items>", style.separator.join(items))
