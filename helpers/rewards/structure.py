"""Rewards for the format of a completion, and the reader of its fenced code blocks."""

import re
import textwrap

from helpers.rewards.common import visible
from helpers.tags import THINK_ANSWER, TagFormat, completion_text


def format_reward(completions: list, tags: TagFormat = THINK_ANSWER, **columns) -> list[float]:
    """1.0 if the whole completion is one reasoning block and one answer block, else 0.0.

    completions: strings or chat messages. Only whitespace may surround the blocks. This is the
    all-or-nothing signal of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2);
    `incremental_format_reward` gives partial credit.

    >>> format_reward(["<think>2 + 2</think><answer>4</answer>", "4"])
    [1.0, 0.0]
    """
    return [float(tags.matches(completion_text(completion))) for completion in completions]


def substantial_format_reward(
    completions: list, tags: TagFormat = THINK_ANSWER, **columns
) -> list[float]:
    """`format_reward` with half the credit for a block without content.

    1.0 if the completion has the format and a visible letter or digit in both blocks, 0.5 if a
    block has none, else 0.0. So empty tags earn less than an attempt.

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
    """0.25 for each of the four tags that occurs once and in its place, less for text at the end.

    A tag is in its place if it follows the earlier tags that earned their credit. Answer tags that
    the reasoning only mentions do not count. Each character after the closing answer tag costs
    0.001, up to 0.25. If the prompt opens the reasoning, each of the other three tags earns a
    third, and the closing tag earns nothing if the completion opens the reasoning again. Unlike
    `format_reward`, this reward has a slope: a policy that opens one block earns something.

    >>> incremental_format_reward(["<think>2 + 2</think>4", "4"])
    [0.5, 0.0]
    >>> incremental_format_reward(["<think>2</think><answer>4</answer> ok"])
    [0.998]
    """
    opening_reasoning, closing_reasoning, _, closing_answer = tags.tags
    scores = []
    for completion in completions:
        text = completion_text(completion)
        occurrences = tags.outer_tags(text)  # (tag, start, end) of each tag in the text
        names = [tag for tag, _, _ in occurrences]

        # 1. Add the credit of each tag that occurs once and in its place.
        score = 0.0
        credited_end = 0  # where the last tag with credit ends
        for tag in tags.expected:
            if names.count(tag) != 1:
                continue
            if tags.opened and tag == closing_reasoning and opening_reasoning in names:
                continue  # the prompt has opened the reasoning, and the completion opens it again
            _, start, end = occurrences[names.index(tag)]
            if start >= credited_end:
                score += 1 / len(tags.expected)
                credited_end = end

        # 2. Subtract for text after the last tag.
        if closing_answer in names:
            *_, (_, _, last_end) = occurrences
            trailing = text[last_end:].strip()
            score -= min(0.25, 0.001 * len(trailing))
        scores.append(round(max(0.0, score), 6))
    return scores


# A fence at the start of a line, which may have words after its language: ```python title
_FENCE = re.compile(r"(?P<fence>```++|~~~++)[ \t]*+(?P<language>[\w+#.-]*+)[^`]*+$")
# A fence at the end of a line of prose: The program: ```python
_FENCE_AFTER_WORDS = re.compile(
    r"(?:[^`~]|`(?!``)|~(?!~~))*+(?P<fence>```++|~~~++)[ \t]*+(?P<language>[\w+#.-]*+)$"
)


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    r"""Return (language, content) of each fenced block in a text; nothing if one is never closed.

    A fence is three or more backticks or tildes. A block may be indented. A fence may open a block
    at the end of a line of prose, and close it at the end of a line of code.

    >>> fenced_blocks("So:\n```python\nx = 1\n```")
    [('python', 'x = 1\n')]
    """
    blocks: list[tuple[str, list[str]]] = []
    closing = ""  # the fence that closes the open block; "" outside blocks
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if closing and bare.endswith(closing):
            blocks[-1][1].append(line.rstrip().rstrip(closing[0]))
            closing = ""
        elif closing:
            blocks[-1][1].append(line)
        else:
            fence = _FENCE.match(bare) or _FENCE_AFTER_WORDS.match(bare)
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
