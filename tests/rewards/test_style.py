"""How a completion is written: what counts as a step, a source, a forbidden phrase, a repeat; and
that padding does not pay.
"""

import pytest

from helpers.rewards import (
    citation_reward,
    forbidden_patterns_reward,
    reasoning_steps_reward,
    repetition_reward,
)
from helpers.tags import THINK_ANSWER, TagFormat

CUSTOM = TagFormat("reasoning", "final")


def thought(reasoning: str, answer: str = "4") -> str:
    return THINK_ANSWER.render(reasoning, answer)


# --- Steps ----------------------------------------------------------------------------------------


def steps(text: str, wanted: int = 10) -> int:
    (score,) = reasoning_steps_reward([text], steps=wanted)
    assert 0 <= score <= 1
    return round(score * wanted)


@pytest.mark.parametrize(
    ("reasoning", "count"),
    [
        ("1. add 2\n2. add 3\n3. stop", 3),
        ("1) add\n2) stop", 2),
        ("Step 1: add\nSTEP 2: stop", 2),
        ("  1. add\n\t2. stop", 2),
        ("- add\n* stop\n• check", 3),
        ("First, 2 + 2. Then, 4 + 1. Finally, 5.", 3),
        ("first add then stop", 2),
        ("It is 4, so we add 1, hence 5", 2),
        ("4\nTherefore 5\nThus 6", 2),
        ("2 + 2 = 4", 0),
        ("The answer is 4.", 0),
        ("nexts, sofa, thence, firstly", 0),
        ("well-so-called", 0),
        ("-5 is negative\n*bold*", 0),
        ("3.14 is pi", 1),
        ("", 0),
        # the same step counts once, and an empty one not at all
        ("First, add. First, add. First, add.", 1),
        ("1. add\n2. add\n3. add", 1),
        ("1. Add!\n- add\nThen add", 1),
        ("1. add  two\n2. ADD TWO.\n3. add-two", 1),
        ("1. \n2. \n3. ", 0),
        ("1. ...\n2. !?\n3. __\n- -\n* *", 0),
        ("First, then, next, so, thus, hence, finally, ", 0),
        ("Then " * 200, 0),
        ("- a\n" * 200, 1),
    ],
)
def test_a_step_begins_with_a_number_a_bullet_or_a_word(reasoning, count):
    assert steps(thought(reasoning)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (thought("1. add", "1. x\n2. y"), 1),
        (thought("so", "First, x. Then, y."), 0),
        ("First, x. " + thought("1. add"), 1),
        (thought("1. add") + "\n1. x\n2. y", 1),
        ("1. add\n2. stop", 2),
        ("1. add\n2. stop\n<answer>\n3. x\n4. y</answer>", 2),
        ("1. add</think>\n2. stop<answer>3. x", 2),
    ],
)
def test_the_reasoning_block_is_read_or_else_all_before_the_answer(text, count):
    assert steps(text) == count


def test_other_tags_hold_the_reasoning_where_they_are_bound():
    text = CUSTOM.render("1. add", "\n2. stop\n3. check")
    assert reasoning_steps_reward([text], steps=3, tags=CUSTOM) == [0.333333]
    assert reasoning_steps_reward([text], steps=3) != [0.333333]


# --- Sources --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "citations", "earned"),
    [
        ("Bonn [1].", 1, 1.0),
        ("Bonn [1][2] and [3].", 1, 1.0),
        ("Bonn [1] [2].", 4, 0.5),
        ("Bonn [1] [1] [1] [01].", 4, 0.25),
        ("Bonn.", 1, 0.0),
        ("Bonn [0].", 1, 0.0),
        ("Bonn [1] [0].", 1, 0.0),
        ("Bonn [-1] [a] [1.5] (1) [] [1, 2].", 1, 0.0),
        ("", 1, 0.0),
    ],
)
def test_different_sources_count(text, citations, earned):
    assert citation_reward([text], citations=citations) == [earned]


@pytest.mark.parametrize(
    "sources",
    [["a", "b"], ("a", "b"), 2, {"a": 1, "b": 2}],
    ids=["list", "tuple", "number", "mapping"],
)
@pytest.mark.parametrize(
    ("text", "earned"),
    [
        ("[1]", 0.5),
        ("[2]", 0.5),
        ("[2] [1]", 1.0),
        ("[3]", 0.0),
        ("[1] [2] [3]", 0.0),
        ("[1] [999]", 0.0),
        ("", 0.0),
    ],
)
def test_a_source_that_is_not_there_costs_the_row(sources, text, earned):
    assert citation_reward([text], citations=2, sources=[sources]) == [earned]


def test_each_row_has_its_own_sources():
    sources = [["a"], ["a", "b"], [], None, 0, "one text"]
    assert citation_reward(["[2]"] * 6, sources=sources) == [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    everything = "".join(f"[{n}]" for n in range(1, 101))
    assert citation_reward([everything], sources=[["a", "b"]]) == [0.0]


def test_with_tags_only_the_answer_block_is_read():
    texts = [thought("as in [1]", "4"), thought("so", "4 [1]"), "4 [1]", thought("[9]", "4 [1]")]
    assert citation_reward(texts, sources=[["a"]] * 4) == [1.0, 1.0, 1.0, 0.0]
    assert citation_reward(texts, sources=[["a"]] * 4, tags=THINK_ANSWER) == [0.0, 1.0, 0.0, 1.0]


# --- Forbidden phrases ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "earned"),
    [
        ("Bonn.", 1.0),
        ("", 1.0),
        ("as an ai", 0.0),
        ("AS AN AI language model", 0.0),
        ("I'm sorry, but", 0.0),
        ("I am sorry", 0.0),
        ("Well, I cannot", 0.0),
        ("x" * 10_000 + " as an AI " + "x" * 10_000, 0.0),
        ("as an air force", 1.0),
        ("Ali cannot", 1.0),
    ],
)
def test_what_is_forbidden_unless_told_otherwise(text, earned):
    assert forbidden_patterns_reward([text]) == [earned]


@pytest.mark.parametrize(
    ("patterns", "earned"),
    [
        (["bonn"], [0.0, 1.0, 1.0]),
        (("^paris$",), [1.0, 0.0, 1.0]),
        ([r"\bx\b", "ris"], [1.0, 0.0, 1.0]),
        (r"b.*n", [0.0, 1.0, 1.0]),  # one pattern, not its characters
        ([], [1.0, 1.0, 1.0]),
    ],
)
def test_any_pattern_found_anywhere_costs_everything(patterns, earned):
    assert forbidden_patterns_reward(["In Bonn.", "Paris", "x1"], patterns=patterns) == earned


def test_what_cannot_be_searched_in_time_earns_nothing_and_the_next_is_judged():
    texts = ["a" * 30_000 + "!" + str(n) for n in range(8)]
    with pytest.warns(UserWarning, match="8 of 9 completions could not be searched in time"):
        scores = forbidden_patterns_reward([*texts, "Bonn."], patterns=[r"^(a+)+\1b"])
    assert scores == [0.0] * 8 + [1.0]


# --- Repetition -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size", "earned"),
    [
        ("one two three four five", 3, 1.0),
        ("", 3, 1.0),
        ("ha", 3, 1.0),
        ("ha ha", 3, 1.0),
        ("ha ha ha", 3, 1.0),
        ("ha ha ha ha ha ha", 3, 0.25),
        ("ha " * 1002, 3, 0.001),
        ("Ha hA\nHA\tha", 1, 0.25),
        ("a b a b", 1, 0.5),
        ("a b a b", 2, 0.666667),
        ("a b c a b d", 2, 0.8),
        ("a b c a b c", 3, 0.75),
    ],
)
def test_the_score_is_the_share_of_ngrams_that_are_new(text, size, earned):
    assert repetition_reward([text], ngram_size=size) == [earned]


# --- All of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("completions", [["a"], []], ids=["one", "none"])
@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    ("reward", "option"),
    [
        (reasoning_steps_reward, "steps"),
        (citation_reward, "citations"),
        (repetition_reward, "ngram_size"),
    ],
)
def test_a_count_below_one_is_named_with_its_value(reward, option, value, completions):
    with pytest.raises(ValueError, match=f"{option}={value}"):
        reward(completions, **{option: value})
