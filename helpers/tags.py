"""The tags a completion must carry, as one small object: system prompt, rendering, extraction.

Everything that needs to know what a well-formed completion looks like asks a `TagFormat`: the data
(system prompt), the rewards (is it well formed, what is the answer) and the evaluation. Parsing is
a single pass over the tags, so its time is linear in the length of a completion, whatever the
completion contains.
"""

import json
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

# what stands between two answer tags that are only named
_NO_ANSWER = ("", "and", "...", "…")


@dataclass(frozen=True)
class TagFormat:
    """A reasoning block followed by an answer block, `<think>…</think><answer>…</answer>` by
    default.

    reasoning, answer: the tag names, letters, digits, `_` and `-`, different from each other.
    opened: whether the prompt already ends with the opening reasoning tag, as the chat templates of
        some models that think write it (`templates.as_prompted` finds out). A completion then
        begins with its reasoning, and to open it again is no longer the format.

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
        """Return a format from its short spelling, `reasoning/answer`, as notebooks and the command
        line pass it; `/open` behind it says that the prompt opens the reasoning.

        >>> TagFormat.parse("think/answer") == TagFormat()
        True
        """
        spelt = str(spec).removesuffix("/open")
        names = spelt.split("/")
        if len(names) != 2:
            raise ValueError(
                f"tags={spec!r} is not a format. Give two tag names with a slash between, such as "
                "'think/answer'."
            )
        return cls(*names, opened=spelt != str(spec))

    @property
    def spec(self) -> str:
        """Return the short spelling that `parse` reads."""
        return f"{self.reasoning}/{self.answer}" + "/open" * self.opened

    @cached_property
    def tags(self) -> tuple[str, str, str, str]:
        """Return the four tags in the order that prompt and completion have them."""
        return (
            f"<{self.reasoning}>",
            f"</{self.reasoning}>",
            f"<{self.answer}>",
            f"</{self.answer}>",
        )

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the tags of a well-formed completion, in order, but for what the prompt opened."""
        return self.tags[1:] if self.opened else self.tags

    @property
    def system_prompt(self) -> str:
        """Return what the model is told about the format."""
        opening, closing, answer_opening, answer_closing = self.tags
        return (
            f"Think step by step inside {opening} and {closing}. "
            f"Then give only the final answer inside {answer_opening} and {answer_closing}."
        )

    def render(self, reasoning: str, answer: str) -> str:
        """Return a well-formed completion with this reasoning and this answer."""
        opening, closing, answer_opening, answer_closing = self.tags
        begun = "" if self.opened else opening
        return f"{begun}{reasoning}{closing}{answer_opening}{answer}{answer_closing}"

    @cached_property
    def _any_tag(self) -> re.Pattern:
        return re.compile("|".join(map(re.escape, self.tags)))

    def found_tags(self, text: str) -> list[tuple[str, int, int]]:
        """Return every occurrence of the four tags in the text, in order: (tag, start, end)."""
        return [(match.group(), *match.span()) for match in self._any_tag.finditer(text)]

    def outer_tags(self, text: str) -> list[tuple[str, int, int]]:
        """Return `found_tags` without the answer tags that the reasoning only names: thinking about
        the format costs nothing.

        That is certain only where the reasoning is opened once, by the prompt or here, and closed
        once, and has no answer block in it ("in <answer> and </answer>" is none). Otherwise every
        tag counts.
        """
        found = self.found_tags(text)
        opening, closing, answer_opening, answer_closing = self.tags
        names = [tag for tag, _, _ in found]
        of_reasoning = tuple(name for name in names if name in (opening, closing))
        if of_reasoning != tuple(name for name in self.expected if name in (opening, closing)):
            return found
        begin = 0 if self.opened else names.index(opening) + 1
        end = names.index(closing)
        for (tag, _, start), (following, stop, _) in pairwise(found[begin:end]):
            between = text[start:stop].strip()
            if (tag, following) == (answer_opening, answer_closing) and between not in _NO_ANSWER:
                return found
        return found[:begin] + found[end:]

    def matches(self, text: str) -> bool:
        """Return whether the whole text is one reasoning block and one answer block; only
        whitespace may stand around them. A block that the prompt has opened begins with the text.
        """
        found = self.outer_tags(text)
        if tuple(tag for tag, _, _ in found) != self.expected:
            return False
        before = "" if self.opened else text[: found[0][1]]
        between = text[found[-3][2] : found[-2][1]]
        return not (before.strip() or between.strip() or text[found[-1][2] :].strip())

    def contents(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the answer of a text that `matches`; without the tags that the
        reasoning names, because these are no thought.
        """
        found = self.outer_tags(text)
        reasoning = text[0 if self.opened else found[0][2] : found[-3][1]]
        return self._any_tag.sub("", reasoning), text[found[-2][2] : found[-1][1]]

    def answer_blocks(self, text: str) -> list[str]:
        """Return the stripped content of every complete answer block outside the reasoning, in
        order.

        A reasoning block that is never closed reaches to the end. A completion that closes the
        reasoning without opening it, or whose reasoning the prompt opened, starts inside it.
        """
        opening, closing, answer_opening, _ = self.tags
        first = [text.find(tag) for tag in self.tags]
        if -1 < first[0] < first[1] < first[2] < first[3] and first == [
            text.rfind(tag) for tag in self.tags
        ]:
            # the ordinary completion, in half the time
            return [text[first[2] + len(answer_opening) : first[3]].strip()]
        found = self.found_tags(text)
        reasoning_tags = [tag for tag, _, _ in found if tag in (opening, closing)]
        in_reasoning = self.opened or reasoning_tags[:1] == [closing]
        blocks = []
        start = None
        for tag, tag_start, tag_end in found:
            if tag in (opening, closing):
                in_reasoning = tag == opening
                start = None
            elif in_reasoning:
                continue
            elif tag == answer_opening:
                start = tag_end
            elif start is not None:
                blocks.append(text[start:tag_start].strip())
                start = None
        return blocks

    def extract_answer(self, text: str) -> str | None:
        """Return the last complete answer block outside the reasoning, or None if there is none."""
        blocks = self.answer_blocks(text)
        return blocks[-1] if blocks else None


THINK_ANSWER = TagFormat()


def completion_text(completion: object) -> str:
    """Return the text of one completion as TRL hands it to a reward: a string, or a list of chat
    messages.

    Only what the assistant wrote counts. Whatever has no text is the empty string: a reward never
    raises on a completion.

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


def escaped(text: str) -> str:
    """Return a text as a terminal may show it: escapes in place of control characters and of what
    nobody sees; line breaks and tabs stay.

    >>> print(escaped("red\x1b[31m, a mark\u200b"))
    red\\x1b[31m, a mark\\u200b
    """
    return "".join(
        character
        if character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def on_one_line(text: str) -> str:
    r"""Return `escaped` text with its line breaks and tabs written out, too.

    >>> print(on_one_line("red: \x1b[31m, next\n"))
    red: \x1b[31m, next\n
    """
    return escaped(text).replace("\n", r"\n").replace("\t", r"\t")


def transcript(messages: list[dict]) -> str:
    """Return a completion for people: what the policy said, its calls, and what came back, with the
    speaker before every line, so that nobody can speak as another.

    >>> call = {"type": "function", "function": {"name": "guess", "arguments": {"number": 5}}}
    >>> word = {"role": "assistant", "content": "5 to 7.\\ntool: Yes.", "tool_calls": [call]}
    >>> print(transcript([word, {"role": "tool", "content": "Higher than 5."}]))
    policy: 5 to 7.
    policy: tool: Yes.
    call:   guess(number=5)
    tool:   Higher than 5.
    """
    entries = []
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "tool":
            entries.append(("tool:   ", content))
        elif content:
            entries.append(("policy: ", content))
        calls = message.get("tool_calls")
        # a message read from a Parquet file has an array of them, or None
        for call in () if calls is None else calls:
            arguments = call["function"].get("arguments")
            if isinstance(arguments, str):
                # else a text where names and values belong, which a policy may write
                with suppress(ValueError):
                    arguments = json.loads(arguments)
            shown = repr(arguments)
            if isinstance(arguments, dict):
                shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            entries.append(("call:   ", f"{call['function'].get('name', '')}({shown})"))
    return "\n".join(
        f"{speaker}{line}" for speaker, text in entries for line in escaped(str(text)).split("\n")
    )
