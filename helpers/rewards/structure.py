"""Rewards for the shape of a completion, whatever it says."""

from __future__ import annotations

from helpers.formats import THINK_ANSWER, TagFormat, completion_text

_COST_A_CHARACTER = 0.001  # of text after the last tag
_LARGEST_COST = 0.25  # as much as one tag earns


def format_reward(completions: list, tags: TagFormat = THINK_ANSWER, **columns) -> list[float]:
    """1.0 where the whole completion is one reasoning block and one answer block, else 0.0.

    completions: one a rollout, plain strings or chat messages. Whitespace around the blocks is free; text is not.
    The all-or-nothing signal of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2); see incremental_format_reward for a slope.

    >>> format_reward(["<think>2 + 2</think><answer>4</answer>", "4"])
    [1.0, 0.0]
    """
    return [float(tags.matches(completion_text(completion))) for completion in completions]


def incremental_format_reward(completions: list, tags: TagFormat = THINK_ANSWER, **columns) -> list[float]:
    """A quarter for each of the four tags that is there exactly once and in its place; text after the last tag costs.

    A tag is in its place when it stands behind the tags before it that earned theirs. Each character after the closing
    answer tag costs 0.001, up to 0.25. Gives a slope where format_reward is flat: a policy that opens one block is told so.

    >>> incremental_format_reward(["<think>2 + 2</think>4", "<think>2</think><answer>4</answer> ok", "4"])
    [0.5, 0.998, 0.0]
    """
    return [_tag_score(completion_text(completion), tags) for completion in completions]


def _tag_score(text: str, tags: TagFormat) -> float:
    found = tags.found_tags(text)
    names = [tag for tag, _, _ in found]
    score, behind = 0.0, 0
    for tag in tags.tags:
        if names.count(tag) == 1:
            _, start, end = found[names.index(tag)]
            if start >= behind:
                score, behind = score + 0.25, end
    if tags.tags[-1] in names:
        trailing = text[found[-1][2] :].strip()
        score -= min(_LARGEST_COST, _COST_A_CHARACTER * len(trailing))
    return round(max(0.0, score), 6)
