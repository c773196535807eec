"""The format of a completion, `<think>…</think><answer>…</answer>`, and how to read it.

A `TagFormat` has the names of the tags. It writes the system prompt, renders a worked example,
checks the format and extracts the answer:

    fmt = TagFormat("think", "answer")
    fmt.matches(text)           # exactly one reasoning block and one answer block?
    fmt.extract_answer(text)    # the last answer outside the reasoning, or None

The parsers go through the tags once, so their time is linear in the length of a completion. Below
the class, `completion_text` reads the text of a completion, as TRL passes it to a reward.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

# Text between two answer tags that shows that they are only mentioned: "in <answer> and </answer>".
_NO_ANSWER = ("", "and", "...", "…")


class Tag(NamedTuple):
    """A tag in a text, such as `</think>`, and where it starts and ends."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class TagFormat:
    """A reasoning block followed by an answer block.

    reasoning, answer: the names of the tags, of letters, digits, `_` and `-`; they must differ.
    opened: whether the prompt ends with the opening reasoning tag, as some chat templates write it
        (see `templates.as_prompted`). The completion then starts inside the reasoning, and must not
        open it again.

    >>> fmt = TagFormat("reasoning", "answer")
    >>> fmt.render("2 + 2", "4")
    '<reasoning>2 + 2</reasoning><answer>4</answer>'
    >>> fmt.extract_answer("So: <reasoning>2 + 2</reasoning><answer> 4 </answer>")
    '4'
    """

    reasoning: str = "think"
    answer: str = "answer"
    opened: bool = False

    def __post_init__(self):
        for name in (self.reasoning, self.answer):
            if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z][\w-]{0,31}", name, re.A)):
                raise ValueError(
                    f"{name!r} is not a tag name. Use a letter, then letters, digits, '_' or '-' "
                    "(at most 32 characters), without the angle brackets."
                )
        if self.reasoning == self.answer:
            raise ValueError(
                f"reasoning and answer are both {self.answer!r}: the two tags must have different "
                "names."
            )

    @classmethod
    def parse(cls, spec: str) -> "TagFormat":
        """Return the format of a short spelling, `reasoning/answer`, as notebooks and the command
        line use it. `/open` at its end sets `opened`.

        >>> TagFormat.parse("think/answer") == TagFormat()
        True
        """
        spelt = str(spec).removesuffix("/open")
        names = spelt.split("/")
        if len(names) != 2:
            raise ValueError(
                f"tags={spec!r} is not a format. Give two tag names separated by a slash, such as "
                "'think/answer'."
            )
        return cls(*names, opened=spelt != str(spec))

    @property
    def spec(self) -> str:
        """Return the short spelling that `parse` reads."""
        return f"{self.reasoning}/{self.answer}" + "/open" * self.opened

    @cached_property
    def tags(self) -> tuple[str, str, str, str]:
        """Return the four tags, in the order of prompt and completion."""
        return (
            f"<{self.reasoning}>",
            f"</{self.reasoning}>",
            f"<{self.answer}>",
            f"</{self.answer}>",
        )

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the tags of a well-formed completion, in order: four, or three if `opened`."""
        return self.tags[1:] if self.opened else self.tags

    @property
    def system_prompt(self) -> str:
        """Return the sentences that tell the model the format."""
        return (
            "Think step by step inside {} and {}. Then give only the final answer inside {} and {}."
        ).format(*self.tags)

    def render(self, reasoning: str, answer: str) -> str:
        """Return a well-formed completion with this reasoning and this answer."""
        opening = "" if self.opened else f"<{self.reasoning}>"
        return f"{opening}{reasoning}</{self.reasoning}><{self.answer}>{answer}</{self.answer}>"

    @cached_property
    def _any_tag(self) -> re.Pattern:
        return re.compile("|".join(map(re.escape, self.tags)))

    def found_tags(self, text: str) -> list[Tag]:
        """Return every occurrence of the four tags in the text, in order."""
        return [Tag(match.group(), *match.span()) for match in self._any_tag.finditer(text)]

    def outer_tags(self, text: str) -> list[Tag]:
        """Return `found_tags` without the answer tags that the reasoning only mentions.

        Reasoning about the format must not cost anything. But all tags count if the reasoning is
        not opened and closed exactly once, or if it has an answer block with content.

        >>> text = "<think>I fill <answer> and </answer>.</think><answer>4</answer>"
        >>> [tag.name for tag in TagFormat().outer_tags(text)]
        ['<think>', '</think>', '<answer>', '</answer>']
        """
        found = self.found_tags(text)
        opening, closing, answer_opening, answer_closing = self.tags

        # 1. The reasoning must be opened once, here or by the prompt, and closed once.
        names = [tag.name for tag in found]
        reasoning_tags = [name for name in names if name in (opening, closing)]
        if reasoning_tags != ([closing] if self.opened else [opening, closing]):
            return found
        begin = 0 if self.opened else names.index(opening) + 1
        end = names.index(closing)

        # 2. Inside the reasoning, two adjacent tags must not hold an answer.
        for tag, following in pairwise(found[begin:end]):
            if tag.name == answer_opening and following.name == answer_closing:
                content = text[tag.end : following.start].strip()
                if content not in _NO_ANSWER:
                    return found
        return found[:begin] + found[end:]

    def matches(self, text: str) -> bool:
        """Return whether a text is one reasoning block and one answer block, with only whitespace
        around them.
        """
        found = self.outer_tags(text)
        if tuple(tag.name for tag in found) != self.expected:
            return False
        reasoning_closing, answer_opening, answer_closing = found[-3:]
        before = "" if self.opened else text[: found[0].start]
        between = text[reasoning_closing.end : answer_opening.start]
        after = text[answer_closing.end :]
        return (before + between + after).strip() == ""

    def contents(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the answer of a text that `matches`. Tags that the reasoning
        mentions are removed, so that a reward for substance does not count them.

        >>> TagFormat().contents("<think>2 + 2, then <answer>.</think><answer>4</answer>")
        ('2 + 2, then .', '4')
        """
        found = self.outer_tags(text)
        reasoning_closing, answer_opening, answer_closing = found[-3:]
        begin = 0 if self.opened else found[0].end
        reasoning = text[begin : reasoning_closing.start]
        answer = text[answer_opening.end : answer_closing.start]
        return self._any_tag.sub("", reasoning), answer

    def answer_blocks(self, text: str) -> list[str]:
        """Return the stripped content of every complete answer block outside the reasoning.

        Reasoning that is never closed reaches to the end of the text. A text that closes the
        reasoning without opening it starts inside the reasoning: the prompt may have opened it.

        >>> TagFormat().answer_blocks("<think><answer>3</answer></think><answer>4</answer>")
        ['4']
        """
        opening, closing, answer_opening, _ = self.tags

        # 1. Find out whether the text starts inside the reasoning.
        found = self.found_tags(text)
        reasoning_tags = [tag.name for tag in found if tag.name in (opening, closing)]
        in_reasoning = self.opened or reasoning_tags[:1] == [closing]

        # 2. Go through the tags. A reasoning tag ends an answer block that is still open.
        blocks = []
        start = None  # where the content of the open answer block begins
        for tag in found:
            if tag.name in (opening, closing):
                in_reasoning = tag.name == opening
                start = None
            elif tag.name == answer_opening and not in_reasoning:
                start = tag.end
            elif start is not None:
                blocks.append(text[start : tag.start].strip())
                start = None
        return blocks

    def extract_answer(self, text: str) -> str | None:
        """Return the last complete answer block outside the reasoning, or None if there is none."""
        blocks = self.answer_blocks(text)
        return blocks[-1] if blocks else None


THINK_ANSWER = TagFormat()


def completion_text(completion: object) -> str:
    """Return the assistant's text in a completion, as TRL passes it to a reward: a string, or a
    list of chat messages.

    A completion without text gives the empty string, because a reward must not raise.

    >>> completion_text([{"role": "assistant", "content": "4"}])
    '4'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, (list, tuple)):
        return ""
    text = ""
    for message in completion:
        if not isinstance(message, dict) or message.get("role", "assistant") != "assistant":
            continue
        content = message.get("content")
        if isinstance(content, str):
            text += content
        elif isinstance(content, (list, tuple)):  # multimodal content: a list of typed parts
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            text += "".join(part for part in parts if isinstance(part, str))
    return text
