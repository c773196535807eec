"""Rewards for the shape of a completion, whatever it says."""

import json
import re
import warnings

from helpers.rewards.answers import workers
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

_LONGEST_JSON = 10_000  # characters; what is longer scores 0 unread
_FENCE = re.compile(r"[ \t]*```[ \t]*([\w+#.-]*)")


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

    1.0 where the whole completion is the format and both blocks hold a letter or a digit, 0.5 where
    one of them is empty or holds punctuation only, else 0.0. So handing in empty tags earns less
    than trying.

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
        filled = [any(map(str.isalnum, content)) for content in tags.contents(text)]
        scores.append(1.0 if all(filled) else 0.5)
    return scores


def incremental_format_reward(
    completions: list, tags: TagFormat = THINK_ANSWER, **columns
) -> list[float]:
    """A quarter for each of the four tags that is there exactly once and in its place; text after
    the last tag costs.

    A tag is in its place when it stands behind the tags before it that earned theirs. Each
    character after the closing answer tag costs 0.001, up to 0.25. Gives a slope where
    format_reward is flat: a policy that opens one block is told so.

    >>> incremental_format_reward(["<think>2 + 2</think>4", "4"])
    [0.5, 0.0]
    >>> incremental_format_reward(["<think>2</think><answer>4</answer> ok"])
    [0.998]
    """
    scores = []
    for text in map(completion_text, completions):
        found = tags.found_tags(text)
        names = [tag for tag, _, _ in found]
        score = 0.0
        behind = 0  # where the last tag that earned something ends
        for tag in tags.tags:
            if names.count(tag) != 1:
                continue
            _, start, end = found[names.index(tag)]
            if start >= behind:
                score += 0.25
                behind = end
        if tags.tags[-1] in names:
            trailing = text[found[-1][2] :].strip()
            score -= min(0.25, 0.001 * len(trailing))  # at most what one tag earns
        scores.append(round(max(0.0, score), 6))
    return scores


def json_format_reward(
    completions: list, schema: dict | None = None, tags: TagFormat | None = THINK_ANSWER, **columns
) -> list[float]:
    """1.0 where the answer block is one JSON object or array that fulfils the JSON Schema, if one
    is given; else 0.0.

    tags=None judges the whole completion. A ```json fence around the document is free; `NaN`,
    comments and a second document are not JSON. A document that cannot be shown to fulfil the
    schema in half a second scores 0.0, with a warning. jsonschema.SchemaError is raised for a
    schema that is none.

    >>> schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    >>> given = ['<answer>{"city": "Bonn"}</answer>', '<answer>{"city": 3}</answer>']
    >>> json_format_reward(given, schema=schema)
    [1.0, 0.0]
    """
    documents = [json_document(_document(completion, tags)) for completion in completions]
    if schema is None:
        return [float(document != "") for document in documents]
    from jsonschema.validators import validator_for

    validator_for(schema).check_schema(schema)
    rows = [(json.dumps(schema), document) for document in documents]
    scores = workers.scores_in_time("schema", rows)
    late = scores.count(None)
    if late:
        warnings.warn(
            f"json_format_reward: {late} of {len(completions)} completions could not be judged by "
            "the schema in time; they score 0.0. A pattern such as (a+)+ or a schema that refers "
            "to itself is the usual cause.",
            stacklevel=2,
        )
    return [score or 0.0 for score in scores]


def _document(completion: object, tags: TagFormat | None) -> str:
    """Return the answer block of a completion, or all of it where `tags` is None."""
    text = completion_text(completion)
    return (tags.extract_answer(text) or "") if tags else text


def _fenced(text: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a text, (language, content) each, in one pass; none where one is
    never closed.
    """
    blocks: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if fence and inside and not fence[1]:
            inside = False
        elif fence and not inside and "`" not in line[fence.end() :]:
            blocks.append((fence[1].casefold(), []))
            inside = True
        elif inside:
            blocks[-1][1].append(line)
    return [] if inside else [(language, "".join(lines)) for language, lines in blocks]


def json_document(text: str) -> str:
    """Return the text of one JSON object or array, out of its fence; "" where there is none.

    >>> json_document("```json\\n[1]\\n```"), json_document("[NaN]"), json_document("4")
    ('[1]\\n', '', '')
    """
    if len(text) > _LONGEST_JSON:
        return ""
    text = text.strip()
    blocks = _fenced(text) if text.startswith("```") and text.endswith("```") else []
    if len(blocks) == 1 and blocks[0][0] in ("", "json"):
        text = blocks[0][1]
    try:
        value = json.loads(text, parse_constant=_raise_for_constant)
    except (ValueError, RecursionError):  # brackets ten thousand deep
        return ""
    return text if isinstance(value, (dict, list)) else ""


def _raise_for_constant(name: str):
    raise ValueError(f"{name} is not JSON")
