"""The tags: their names, rendering and parsing, and the text of the completions that TRL passes."""

import pickle
import random
import re
from string import ascii_letters, digits

import pytest

from helpers.tags import THINK_ANSWER, TagFormat, completion_text

FORMATS = [TagFormat(), TagFormat("reasoning", "answer"), TagFormat("Gedanken-1", "a" * 32)]
each_format = pytest.mark.parametrize("tags", FORMATS, ids=lambda tags: tags.spec)


@pytest.mark.parametrize(
    "name",
    [
        *("", " think", "think ", "<think>", "/think", "1think", "_t", "a b", "a.b", "a|b", "é"),
        *("aé", "a\n", "a" * 33, 3),
    ],
)
def test_a_bad_tag_name_is_named_in_the_error(name):
    for names in ((name, "answer"), ("think", name)):
        with pytest.raises(ValueError, match=re.escape(repr(name))):
            TagFormat(*names)


@each_format
def test_the_short_spelling_reads_back_and_the_prompt_names_all_tags_in_order(tags):
    assert TagFormat.parse(tags.spec) == tags == pickle.loads(pickle.dumps(tags))
    places = [tags.system_prompt.index(tag) for tag in tags.tags]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "spec",
    ["", "think", "think/answer/more", "think/", "/answer", "think / answer", None, 7, "a/a"],
)
def test_a_bad_short_spelling_is_refused(spec):
    with pytest.raises(ValueError, match="both 'a'" if spec == "a/a" else "is not a"):
        TagFormat.parse(spec)


@each_format
@pytest.mark.parametrize("reasoning", ["", "2 + 2", "a < b > c", "line\nline\n", "\ud800"])
@pytest.mark.parametrize("answer", ["4", "<b>4</b>", "a\nb", ""])
def test_what_is_rendered_matches_and_reads_back(tags, reasoning, answer):
    text = f"\n {tags.render(reasoning, f' {answer}')} \t\n"
    assert tags.matches(text) and tags.contents(text) == (reasoning, f" {answer}")
    assert tags.answer_blocks(text) == [answer]


def test_random_workings_and_answers_read_back():
    """They are full of what is almost a tag."""
    rng = random.Random(59)
    for _ in range(500):
        ends = [rng.choices(f"{ascii_letters}{digits}_-", k=rng.randrange(32)) for _ in range(2)]
        names = [f"{first}{''.join(end)}" for first, end in zip("aB", ends, strict=True)]
        tags = TagFormat(*names, opened=rng.random() < 0.5)
        pieces = [*names, *"<>/ \n4é", *(tag.swapcase() for tag in tags.tags)]
        working, answer = ("".join(rng.choices(pieces, k=rng.randrange(20))) for _ in range(2))
        if not any(tag in working + answer for tag in tags.tags):
            text = tags.render(working, answer)
            assert tags.matches(text) and tags.contents(text) == (working, answer)
            assert tags.answer_blocks(text) == [answer.strip()]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "<answer>4</answer>",
        "<think>2 + 2</think>4",
        "<think>2 + 2</think>",
        "So: <think>a</think><answer>4</answer>",
        "<think>a</think> so <answer>4</answer>",
        "<think>a</think><answer>4</answer>.",
        "<think>a<answer>4</answer>",
        "a</think><answer>4</answer>",
        "<answer>4</answer><think>a</think>",
        "<think><think>a</think><answer>4</answer>",
        "<think>a</think></think><answer>4</answer>",
        "<think>a</think><answer>4</answer><answer>4</answer>",
        "<think>a</think><answer><answer>4</answer></answer>",
        "<think>a<answer>4</think></answer>",
        "<Think>a</Think><answer>4</answer>",
        "< think>a</think><answer>4</answer>",
        "<think>a</think><answer>4</answer",
    ],
)
def test_anything_else_does_not_match(text):
    assert THINK_ANSWER.matches(text) is False


OPENED = TagFormat(opened=True)  # the prompt ends with <think>


@pytest.mark.parametrize(
    ("text", "matches", "blocks"),
    [
        ("a</think><answer>4</answer>", True, ["4"]),
        ("\n</think>\n\n<answer>4</answer>\n", True, ["4"]),
        ("in <answer> and </answer>, so</think><answer>4</answer>", True, ["4"]),
        ("<think>a</think><answer>4</answer>", False, ["4"]),
        ("a <think> b</think><answer>4</answer>", False, ["4"]),
        ("a</think></think><answer>4</answer>", False, ["4"]),
        ("a</think> so <answer>4</answer>", False, ["4"]),
        ("a<answer>4</answer>", False, []),
        ("<answer>5</answer></think><answer>4</answer>", False, ["4"]),
    ],
)
def test_after_a_prompt_that_opens_the_reasoning_it_is_only_closed(text, matches, blocks):
    assert (OPENED.matches(text), OPENED.answer_blocks(text)) == (matches, blocks)


def test_the_opened_format_is_spelt_and_rendered():
    assert OPENED.spec == "think/answer/open" and TagFormat.parse(OPENED.spec) == OPENED
    text = OPENED.render("a", "4")
    assert OPENED.contents(text) == ("a", "4") and f"<think>{text}" == THINK_ANSWER.render("a", "4")


@pytest.mark.parametrize(
    ("reasoning", "matches"),
    [
        ("I put it in <answer> and </answer>.", True),
        ("<answer></answer> comes last, <answer> first", True),
        ("then </answer>", True),
        ("<answer>5</answer>", False),
        ("<answer> and </answer>, so <answer>5</answer>", False),
        ("first <think>", False),
        ("then </think>", False),
    ],
)
def test_reasoning_may_name_the_answer_tags_but_not_answer(reasoning, matches):
    text = THINK_ANSWER.render(reasoning, "4")
    assert THINK_ANSWER.matches(text) == matches
    assert OPENED.matches(text.removeprefix("<think>")) == matches
    if matches:
        said, answer = THINK_ANSWER.contents(text)
        assert "answer>" not in said and answer == "4"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("<answer>4", []),
        ("4</answer>", []),
        ("<answer>4</answer>", ["4"]),
        ("<answer></answer>", [""]),
        ("<answer>4</answer> or <answer>5</answer>", ["4", "5"]),
        ("<think>a</think><answer>4</answer><think>b</think><answer>5</answer>", ["4", "5"]),
        # An answer inside the reasoning is a draft.
        ("<think><answer>4</answer></think>", []),
        ("<think><answer>4</answer></think><answer>5</answer>", ["5"]),
        ("<answer>4</answer><think><answer>5</answer></think>", ["4"]),
        # A reasoning block that is never closed reaches to the end.
        ("<think>a<answer>4</answer>", []),
        ("<answer>3</answer><think>a<answer>4</answer>", ["3"]),
        ("<think>a</think><think>b<answer>4</answer>", []),
        # The chat template opened the reasoning in the prompt.
        ("a <answer>3</answer> b</think><answer>4</answer>", ["4"]),
        ("</think><answer>4</answer>", ["4"]),
        ("<answer>3</answer></think>", []),
        # Nested and doubled tags.
        ("<think><think>a</think><answer>4</answer>", ["4"]),
        ("<answer>1<answer>4</answer>", ["4"]),
        ("<answer>4</answer></answer>", ["4"]),
        ("<answer>1<think>a</think>4</answer>", []),
        ("<answer>1<think>a</think><answer>4</answer>", ["4"]),
        ("<think>a</think><answer>4</think></answer>", []),
    ],
)
def test_only_complete_blocks_outside_the_reasoning_are_answers(text, blocks):
    assert THINK_ANSWER.answer_blocks(text) == blocks
    assert all(text[start:end] == tag for tag, start, end in THINK_ANSWER.found_tags(text))
    assert THINK_ANSWER.extract_answer(text) == (blocks[-1] if blocks else None)


@pytest.mark.parametrize(
    "piece", [*THINK_ANSWER.tags, "<answer>1</answer>", "<think></think>", "<", "<think"]
)
def test_a_million_characters_of_tags_are_parsed(piece):
    times = 1_000_000 // len(piece)
    assert not THINK_ANSWER.matches(piece * times)
    blocks = times if piece == "<answer>1</answer>" else 0
    assert len(THINK_ANSWER.answer_blocks(piece * times)) == blocks


SAID = {"role": "assistant", "content": "4"}
PARTS = [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}, "c", {"text": 3}]


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("\ud800\x00", "\ud800\x00"),
        ([SAID], "4"),
        ((SAID,), "4"),
        (SAID, ""),
        ([SAID, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "5"}], "45"),
        ([{"role": "user", "content": "4"}], ""),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant"}], ""),
        ([{"role": "assistant", "content": {"text": "4"}}], ""),
        ([{"role": "assistant", "content": PARTS}], "ab"),
        ([SAID, None, "loose", 3], "4"),
        ([], ""),
        (None, ""),
        (4, ""),
        (float("nan"), ""),
        (b"4", ""),
        ({}, ""),
        ([[SAID]], ""),
    ],
)
def test_the_text_is_what_the_assistant_wrote(completion, text):
    assert completion_text(completion) == text
