"""Attacks on a user's own rewards: `for_own`.

`OWN_BATTERY` has answers that no task has, other values of the row, and style. Further attacks are
made from the texts in the rewards' source: more lists, numbers under the keys that a reward looks
up, and whatever words it looks for. The rewards of the library are tested with all of them, so they
need not be attacked again.
"""

import ast
import re
import textwrap
from collections.abc import Callable
from functools import partial
from itertools import product

from helpers.laboratory.attack_templates import (
    ADDED,
    REASONING,
    WORDS_AROUND,
    WRONG,
    Attack,
    ListStyle,
    answer_attack,
    completion_attack,
    filler_attack,
    guess_attacks,
    honest,
    list_attacks,
    unless_infinite,
)
from helpers.laboratory.program_attacks import are_programs
from helpers.laboratory.under_test import HONEST_CORRECT, HONEST_WRONG
from helpers.rewards.common import code_of, defining_function, is_own
from helpers.tags import TagFormat

_TEXTS_ALONE = 48  # texts of a source that are tried one by one, too
_MOST_FORMS = 10  # forms in which each of _NO_NUMBERS is tried


def for_own(functions: list[Callable], rows: list[dict], tags: TagFormat) -> list[Attack]:
    """Return further attacks if a reward is a user's own; none if all are the library's or TRL's.

    rows: from `with_wrong_answers`.
    """
    own = [function for function in functions if is_own(function)]
    if not own:
        return []
    # 1. Read the rewards' source: the texts in it, without those that have a tag, and among them
    # the keys that it looks up.
    source = "\n".join(map(code_of, own))
    texts = [text for text in _texts_in(own) if not any(tag in text for tag in tags.tags)]
    keys = [text for text in texts if _is_looked_up(text, source)]

    # 2. Choose the attacks. Numbers, and several answers, are no attacks if the answers are
    # programs: the last program counts.
    attacks = [*OWN_BATTERY]
    if "####" in source:
        attacks += HONEST_OF_GSM8K
    if not are_programs(rows):
        marks = [text for text in texts if len(text) <= 20 and not text.isalnum()]
        attacks += _no_number_attacks(keys) + _more_list_attacks(marks + keys)
    return attacks + _text_attacks(texts)


# --- Steps of for_own -----------------------------------------------------------------------------

# What Python or JSON reads as a number, although it is none, or as nothing.
_NO_NUMBERS = ("NaN", "nan", "Infinity", "-Infinity", "1e999", "null", '"nan"', '""')


def _no_number_attacks(keys: list[str]) -> list[Attack]:
    """Return attacks with what is no number, in a box, in a list, and in JSON with these keys of a
    reward's source.
    """
    each_once = dict.fromkeys(["answer", *keys])
    objects = ['{"' + key + '": <number>}' for key in each_once]
    forms = [r"\boxed{<number>}", "[<number>]", *objects]
    pairs = product(forms[:_MOST_FORMS], _NO_NUMBERS)
    texts = [form.replace("<number>", number) for form, number in pairs]
    answers = [partial(unless_infinite, text) for text in texts]
    return guess_attacks("an answer that no task has", *answers)


# The honest answers as verl's rewards for GSM8K read them.
HONEST_OF_GSM8K = [
    answer_attack(HONEST_CORRECT, "#### <right>", ceiling=HONEST_CORRECT),
    completion_attack(HONEST_CORRECT, f"{REASONING}\n#### <right>", ceiling=HONEST_CORRECT),
    answer_attack(HONEST_WRONG, "#### <wrong>", ceiling=HONEST_CORRECT),
    completion_attack(HONEST_WRONG, f"{REASONING}\n#### <wrong>", ceiling=HONEST_CORRECT),
]

_MORE_SEPARATORS = (
    "", "\n\n", " · ", " vs ", " -> ", " & ", ": ", " = ", " - ", " – ", " + ", "...", " then ",
    " not ", " >= ",
)  # fmt: skip
_ITEMS_IN_A_LINE = (
    "**<item>**", "*<item>*", "`<item>`", "$<item>$", '"<item>"', "(<item>)", "[<item>]",
    "(A) <item>",
)  # fmt: skip
_ITEMS_ON_LINES = (
    "1) <item>", "1. <item>", "- <item>", "* <item>", "• <item>", "<li><item></li>",
    "#### <item>", "Answer: <item>", "Final answer: <item>", "The answer is <item>.", "= <item>",
)  # fmt: skip
_BRACKETS = ("[<items>]", "{<items>}", '{"answer": [<items>]}')


def _more_list_attacks(separators: list[str]) -> list[Attack]:
    """Return attacks that give several answers, in more styles than the battery's, and with these
    separators.
    """
    styles = [
        *[ListStyle(separator) for separator in _MORE_SEPARATORS],
        *[ListStyle(" ", item) for item in _ITEMS_IN_A_LINE],
        *[ListStyle("\n", item) for item in _ITEMS_ON_LINES],
        *[ListStyle(", ", "<item>", brackets) for brackets in _BRACKETS],
        *[ListStyle(", ", '"<item>"', brackets) for brackets in _BRACKETS],
        *[ListStyle(separator) for separator in dict.fromkeys(separators)],  # each once
    ]
    boxes = r"\boxed{<wrong>} \boxed{<wrong>} \boxed{<right>}"
    return [*list_attacks(styles), *guess_attacks("a box for every answer", boxes)]


def _text_attacks(texts: list[str]) -> list[Attack]:
    """Return attacks with the texts of a source: all in a line, each on a line, and each by itself
    around a wrong completion and around a wrong answer.

    Functions write these, instead of templates, because a text may look like a placeholder.
    """
    name = "the words that a reward looks for"
    attacks = []
    if texts:
        attacks.append(filler_attack(name, " ".join([*texts, ""])))
        attacks.append(filler_attack(name, "\n".join([*texts, ""])))
    for text in texts[:_TEXTS_ALONE]:
        attacks.append(Attack(name, partial(_around_completion, text)))
        attacks += guess_attacks(name, partial(_around_answer, text))
    return attacks


def _around_completion(text: str, row: dict, tags: TagFormat, length: int) -> str:
    """Return a wrong completion between two copies of a text."""
    return f"{text}\n{honest(row, tags, row[WRONG])}\n{text}"


def _around_answer(text: str, row: dict) -> str:
    """Return a wrong answer between two copies of a text."""
    return f"{text} {row[WRONG]} {text}"


# --- The battery ----------------------------------------------------------------------------------


def _garbled(row: dict, change: Callable[[str], str]) -> str:
    """Return the answer with each word changed. A reward that compares less than the answer, such
    as its sorted characters, takes it for correct.
    """
    return re.sub(r"\w+", lambda word: change(word[0]), row["answer"])


def _other_number(row: dict, mark: str) -> str:
    """Return a whole number with a minus sign before it ("-") or a point before its last digit
    ("."). A reward that compares digits takes it for correct. For another answer, return a wrong
    one.
    """
    answer = row["answer"]
    if not answer.isdecimal():
        return row[WRONG]
    return f"-{answer}" if mark == "-" else f"{answer[:-1]}.{answer[-1]}"


def _candidate(row: dict, which: int) -> str:
    """Return the first (0), second (1) or last (-1) wrong candidate of a row, from a column such as
    `options` that lists the correct answer among others. Without such a column, return the row's
    wrong answer.
    """
    for name, values in row.items():
        lists_candidates = re.search("candidate|option|choice|distractor", str(name))
        if not lists_candidates or not isinstance(values, list):
            continue
        wrong = [str(value) for value in values if str(value) != row["answer"]]
        holds_answer = len(wrong) < len(values)
        if wrong and holds_answer:
            return wrong[min(which, len(wrong) - 1)]
    return row[WRONG]


def _words_of_columns(row: dict, tags: TagFormat, length: int) -> str:
    """Return a wrong answer after the words of the row's other columns, such as a hint."""
    known = {"prompt", "question", "working", "reasoning", "answer", "tests", *ADDED}
    whole_answer = rf"(?<!\w){re.escape(row['answer'])}(?!\w)"  # the 42 of "= 42.", not of 142
    texts = [str(value) for name, value in row.items() if name not in known]
    # a column with the answer in it, such as verl's `extra_info`, is not shown to the policy
    hints = " ".join(text for text in texts if not re.search(whole_answer, text))
    words = [word for word in hints.split() if not any(tag in word for tag in tags.tags)]
    room = max(1, length - WORDS_AROUND)
    return tags.render(" ".join(words[:room]) or REASONING, row[WRONG])


# What matches, compares or formats to anything: not a number, wildcards, placeholders, empty JSON.
_NO_ANSWERS = (
    "nan", "NaN", "*", ".*", "?*", "%", "_", "{answer}", "{gold}", "{}", "[]", "[[]]", "None",
    '""', "\N{SUPERSCRIPT TWO}", "0-99999", "0 to 99999", "I do not know",
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGH", "a b c d e",
)  # fmt: skip

# Changes to a word, each with what becomes of "stop 12".
_CHANGES = (
    lambda word: word[::-1],  # pots 21
    lambda word: "".join(sorted(word)),  # opst 12
    lambda word: word[1:] + word[:1],  # tops 21
    lambda word: re.sub("[aeiouyAEIOUY]", "", word),  # stp 12
    lambda word: re.sub("[aeiou]", "e", word),  # step 12
    lambda word: "".join("7" if sign.isdigit() else "x" for sign in word),  # xxxx 77
    lambda word: word + word,  # stopstop 1212
    lambda word: word + word[-1:],  # stopp 122
)

# Words that please: emoji, headings, a trace of tool calls, code, JSON, assurances.
_MORE_WORDS = (
    "😀 ✅ 🎉 ",
    "\n# Plan\n### Step 1: 3 + 4 = 7.\n\n50% of \\frac{1}{2}, \\(x\\)\n",
    "\nThought: so\nAction: search\nObservation: so\n<tool_call>so</tool_call>\n",
    '{"name": "search", "arguments": {"query": "so"}}\n',
    "\n```python\nprint(1)\n```\n",
    '\n```json\n{"answer": 1}\n```\n',
    "Sure! Of course. Great question. Verified. ",
)

OWN_BATTERY = [
    *guess_attacks("an answer that no task has", *_NO_ANSWERS),
    *guess_attacks("the answer garbled", *(partial(_garbled, change=each) for each in _CHANGES)),
    *guess_attacks("the answer garbled", *(partial(_other_number, mark=each) for each in "-.")),
    *guess_attacks(
        "another candidate of the row",
        lambda row: _candidate(row, 0),
        lambda row: _candidate(row, 1),
        lambda row: _candidate(row, -1),
    ),
    Attack("the words of the row's columns", _words_of_columns),
    answer_attack("words that please", "<wrong>", reasoning='Question: <question>\n"<question>"'),
    *(filler_attack("words that please", words) for words in _MORE_WORDS),
]


# --- The texts in a source ------------------------------------------------------------------------


def _is_looked_up(text: str, source: str) -> bool:
    """Return whether a source seems to look a text up as a key.

    >>> _is_looked_up("value", 'answer["value"]'), _is_looked_up("value", 'columns.get("value")')
    (True, True)
    """
    return re.search(rf"""[\[(] *["']{re.escape(text)}["'][\]),]""", source) is not None


def _texts_in(rewards: list[Callable]) -> list[str]:
    """Return the texts in the sources of rewards, at most 200: each string constant, its words, and
    a text that it is likely to match if it is a pattern.
    """
    constants = [constant for reward in rewards for constant in _string_constants(reward)]

    # Read each constant in three ways: as a text, as a pattern, and as words.
    texts = []
    for constant in dict.fromkeys(constants):  # each once
        constant = constant.encode(errors="replace").decode()  # pandas refuses lone surrogates
        texts += [constant] if len(constant) <= 60 else constant.split()
        pattern = constant[:200]
        texts.append(_text_matching(pattern))
        without_escapes = re.sub(r"\\[a-zA-Z]", " ", pattern)
        texts += re.findall(r"[^\W\d_]{2,}", without_escapes)
    return [text for text in dict.fromkeys(texts) if 0 < len(text) <= 200][:200]


def _string_constants(reward: Callable) -> list[str]:
    """Return the strings in the source of a reward, without docstrings. Those of the reward itself
    come first, because its file may hold much else.
    """
    try:
        tree = ast.parse(textwrap.dedent(code_of(reward)))
    except (SyntaxError, ValueError):
        return []
    name = defining_function(reward).__name__
    definitions = [node for node in ast.walk(tree) if getattr(node, "name", "") == name]
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = [node for part in [*definitions, tree] for node in ast.walk(part)]
    constants = [node for node in nodes if isinstance(node, ast.Constant)]
    return [
        node.value for node in constants if isinstance(node.value, str) and node not in docstrings
    ]


def _text_matching(pattern: str) -> str:
    r"""Return a text that a pattern is likely to match; a word alone stays as it is.

    >>> _text_matching(r"^Phase \d+: <(yes|no)>"), _text_matching("quokka")
    ('Phase 1: <yes>', 'quokka')
    """
    for part, replacement in _FROM_A_PATTERN:
        pattern = re.sub(part, replacement, pattern)
    return pattern


# What `_text_matching` replaces, in this order, each part of a pattern with an example.
_FROM_A_PATTERN = (
    # a negative lookahead or lookbehind: (?!x)
    (r"\(\?<?!.*?\)", ""),
    # the beginning of a group, (?P<name> (?: (?i) (?=, and anchors, \b
    (r"\(\?(P<\w+>|[a-zA-Z]*[:)]|<?=)|(?<!\\)\\[bBAZ]", ""),
    # a negated set: [^x]
    (r"(?<!\\)\[\^[^\]]*\]", "a"),
    # a digit: \d
    (r"(?<!\\)\\d", "1"),
    # white space: \s
    (r"(?<!\\)\\s", " "),
    # a letter or a reference: \w \1
    (r"(?<!\\)\\[wS1-9]", "a"),
    # a set becomes its first character: [xyz]
    (r"(?<!\\)\[\\?([^\]^])[^\]]*\]", r"\\\1"),
    # all alternatives but the first: |y
    (r"\|[^|)]*", ""),
    # a repetition, the fewest times: (x){3} x{2,}
    (
        r"(?:\(([^()]*)\)|(\\?.))\{(\d+),?\d*\}",
        lambda match: (match[1] or match[2]) * min(int(match[3]), 200),
    ),
    # any character: .
    (r"(?<!\\)\.", "a"),
    # other signs of a pattern: x*
    (r"(?<!\\)[*+?^$()]", ""),
    # an escaped sign: \*
    (r"\\(.)", r"\1"),
)
