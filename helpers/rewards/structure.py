"""Rewards for the shape of a completion, whatever it says."""

import ast
import json
import re
import warnings

from helpers.rewards.answers import symbolic
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

_LONGEST_CODE, _LONGEST_JSON = 50_000, 10_000  # characters; what is longer scores 0 unread
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


def soft_format_reward(completions: list, tags: TagFormat = THINK_ANSWER, **columns) -> list[float]:
    """1.0 where a reasoning block followed by an answer block stands anywhere in the completion,
    else 0.0.

    Text around the two blocks, and between them, is free. For the first steps of a policy that
    cannot yet stop.

    >>> soft_format_reward(["Sure! <think>2 + 2</think> so <answer>4</answer> Bye."])
    [1.0]
    >>> soft_format_reward(["<answer>4</answer>"])
    [0.0]
    """
    scores = []
    for completion in completions:
        names = [tag for tag, _, _ in tags.found_tags(completion_text(completion))]
        places = range(len(names) - 3)
        scores.append(float(any(tuple(names[at : at + 4]) == tags.tags for at in places)))
    return scores


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
        else:
            scores.append(1.0 if all(map(_says_something, tags.contents(text))) else 0.5)
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
    return [_tag_score(completion_text(completion), tags) for completion in completions]


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
    documents = [_json_document(_document(completion, tags)) for completion in completions]
    if schema is None:
        return [float(document != "") for document in documents]
    from jsonschema.validators import validator_for

    validator_for(schema).check_schema(schema)
    rows = [(json.dumps(schema), document) for document in documents]
    scores = symbolic.judged("schema", rows)
    if late := scores.count(None):
        warnings.warn(
            f"json_format_reward: {late} of {len(completions)} completions could not be judged by "
            "the schema in time; they score 0.0. A pattern such as (a+)+ or a schema that refers "
            "to itself is the usual cause.",
            stacklevel=2,
        )
    return [score or 0.0 for score in scores]


def code_format_reward(
    completions: list, language: str = "python", tags: TagFormat | None = None, **columns
) -> list[float]:
    """1.0 for exactly one fenced code block in the language, which for Python has to parse; 0.5 if
    it does not; else 0.0.

    Code is parsed, never run. By default the whole completion is judged; with `tags`, its answer
    block is. An empty block, or one that holds nothing but comments, scores 0.5.

    >>> code_format_reward(["```python\\nprint(1)\\n```", "```python\\nprint(\\n```", "print(1)"])
    [1.0, 0.5, 0.0]
    """
    return [_code_score(_document(completion, tags), language) for completion in completions]


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _document(completion: object, tags: TagFormat | None) -> str:
    text = completion_text(completion)
    return (tags.extract_answer(text) or "") if tags else text


def _fenced(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a text, (language, content) each, in one pass; none where one is never
    closed.
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


def _json_document(text: str) -> str:
    """The text of one JSON object or array, out of its fence; "" where there is none."""
    if len(text) > _LONGEST_JSON:
        return ""
    text = text.strip()
    fenced = _fenced(text) if text.startswith("```") and text.endswith("```") else []
    if len(fenced) == 1 and fenced[0][0] in ("", "json"):
        text = fenced[0][1]
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # brackets ten thousand deep
        return ""
    return text if isinstance(value, (dict, list)) else ""


def _no_constant(name: str):
    raise ValueError(f"{name} is not JSON")


def _code_score(text: str, language: str) -> float:
    blocks = _fenced(text) if len(text) <= _LONGEST_CODE else []
    if len(blocks) != 1 or blocks[0][0] != language.casefold():
        return 0.0
    if language.casefold() != "python":
        return 1.0 if _says_something(blocks[0][1]) else 0.5
    try:
        with warnings.catch_warnings():
            # a SyntaxWarning about a completion is nobody's business
            warnings.simplefilter("ignore")
            return 1.0 if ast.parse(blocks[0][1]).body else 0.5
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.5


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
        score -= min(0.25, 0.001 * len(trailing))  # at most what one tag earns
    return round(max(0.0, score), 6)
