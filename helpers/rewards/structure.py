"""Rewards for the shape of a completion, whatever it says."""

import re
import textwrap

from helpers.rewards.common import visible
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

# A fence at the start of a line may have words behind its language; behind words it ends the line.
_FENCE = re.compile(r"(?P<fence>```++|~~~++)[ \t]*+(?P<language>[\w+#.-]*+)[^`]*+$")
_BEHIND_WORDS = re.compile(
    r"(?:[^`~]|`(?!``)|~(?!~~))*+(?P<fence>```++|~~~++)[ \t]*+(?P<language>[\w+#.-]*+)$"
)


def format_reward(completions: list, tags: TagFormat = THINK_ANSWER, **columns) -> list[float]:
    """1.0 where the whole completion is one reasoning block and one answer block, else 0.0.

    completions: one a rollout, plain strings or chat messages. Whitespace around the blocks is
    free; text is not. The all-or-nothing signal of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2);
    see incremental_format_reward for a slope.

    >>> format_reward(["<think>2 + 2</think><answer>4</answer>", "4"])
    [1.0, 0.0]
    """
    return [float(tags.matches(completion_text(completion))) for completion in completions]


def substantial_format_reward(
    completions: list, tags: TagFormat = THINK_ANSWER, **columns
) -> list[float]:
    """format_reward, with half the credit for a shape that has nothing in it.

    1.0 where the whole completion is the format and a letter or a digit is seen in both blocks, 0.5
    where one of them is empty or holds punctuation only, else 0.0. So handing in empty tags earns
    less than trying.

    >>> substantial_format_reward(["<think>2 + 2</think><answer>4</answer>"])
    [1.0]
    >>> substantial_format_reward(["<think></think><answer></answer>"])
    [0.5]
    """
    scores = []
    for completion in completions:
        text = completion_text(completion)
        if not tags.matches(text):
            scores.append(0.0)
            continue
        filled = [any(map(str.isalnum, visible(content))) for content in tags.contents(text)]
        scores.append(1.0 if all(filled) else 0.5)
    return scores


def incremental_format_reward(
    completions: list, tags: TagFormat = THINK_ANSWER, **columns
) -> list[float]:
    """A quarter for each of the four tags that is there exactly once and in its place; text after
    the last tag costs.

    A tag is in its place when it stands behind the tags before it that earned theirs. Where the
    prompt opens the reasoning, the other three earn a third each, and the closing tag earns nothing
    behind a second opening. Answer tags that the reasoning only names do not count. Each
    character after the closing answer tag costs 0.001, up to 0.25. Gives a slope where
    format_reward is flat: a policy that opens one block is told so.

    >>> incremental_format_reward(["<think>2 + 2</think>4", "4"])
    [0.5, 0.0]
    >>> incremental_format_reward(["<think>2</think><answer>4</answer> ok"])
    [0.998]
    """
    scores = []
    for text in map(completion_text, completions):
        occurrences = tags.outer_tags(text)
        names = [tag for tag, _, _ in occurrences]
        opening, closing, *_ = tags.tags
        # 1. A tag that is there once, behind those before it that earned theirs.
        score = 0.0
        behind = 0  # where the last tag that earned something ends
        for tag in tags.expected:
            opened_again = tags.opened and tag == closing and opening in names
            if names.count(tag) != 1 or opened_again:
                continue
            _, start, end = occurrences[names.index(tag)]
            if start >= behind:
                score += 1 / len(tags.expected)
                behind = end
        # 2. Less for text after the end: at most what one tag earns.
        if tags.tags[-1] in names:
            trailing = text[occurrences[-1][2] :].strip()
            score -= min(0.25, 0.001 * len(trailing))
        scores.append(round(max(0.0, score), 6))
    return scores


def _document(completion: object, tags: TagFormat | None) -> str:
    """Return the answer block of a completion, or all of it where `tags` is None."""
    text = completion_text(completion)
    return (tags.extract_answer(text) or "") if tags else text


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a text, (language, content) each, in one pass; none where one is
    never closed.

    A fence is three or more backticks or tildes. It may be indented, and its block with it; it may
    open at the end of a line of prose, and close at the end of a line of code.
    """
    blocks: list[tuple[str, list[str]]] = []
    closing = ""  # what closes the block that is open
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if closing and bare.endswith(closing):
            blocks[-1][1].append(line.rstrip().rstrip(closing[0]))
            closing = ""
        elif closing:
            blocks[-1][1].append(line)
        else:
            fence = _FENCE.match(bare) or _BEHIND_WORDS.match(bare)
            if fence:
                blocks.append((fence["language"].casefold(), []))
                closing = fence["fence"]
    if closing:
        return []
    contents = []
    for language, lines in blocks:
        content = "".join(lines)
        if content[:1].isspace():
            content = textwrap.dedent(content)
        contents.append((language, content))
    return contents
