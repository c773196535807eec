"""The rewards of the library: one table of what each gives, and what all of them keep to: a score for
any completion, TRL's signature, bound tags, no sandbox where none is asked for.
"""

import inspect
import json
import pickle
import random
import subprocess
from functools import partial
from importlib import import_module

import pytest
from told import HOSTILE_ANSWERS
from trl import rewards as trl_rewards
from trl.trainer.utils import get_callable_name

from examples.more_rewards import target_length_reward
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.rewards import LIBRARY
from helpers.rewards.common import reward_name
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import (
    format_reward,
    incremental_format_reward,
    json_format_reward,
    substantial_format_reward,
)
from helpers.rewards.style import forbidden_patterns_reward, repetition_reward
from helpers.tags import THINK_ANSWER, TagFormat

CUSTOM = TagFormat("reasoning", "final")
CODE = "\n```python\ndef f():\n    return 4\n```\n"
CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


def said(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("First, 2 + 2.", answer)


def chat(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def texts(reward, *rows) -> list[tuple]:
    """Rows of the table for a reward that reads the text alone."""
    return [(reward, text, {}, earned) for text, earned in rows]


NO_UNIT = partial(target_length_reward, target=10)
TOKENS = partial(target_length_reward, target=4, unit="tokens", tolerance=1)
WITHOUT_TAGS = partial(json_format_reward, tags=None)
UNSEEN = "\u3164\u115f\uffa0\u200b\u2060\u2800\u00ad\x00\U000e0041 "
TWICE = [
    '{"a": 1, "a": 2}',
    '{"a": 1, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '[{"b": {"a": 1, "a": 2}}]',
]
DISGUISED = ["As\u200ban\u200bAI", "as a\u200bn AI", "as\u3164an AI", "as\u00a0an AI", "as  an\tAI"]
DISGUISED += [
    "ａｓ ａｎ ＡＩ",
    "𝐚𝐬 𝐚𝐧 𝐀𝐈",
    "as\u2800an AI",
    "I\u2019m sorry",
    "I can\u2060not",
    "i\u00adcannot",
]
LOOPS = [
    "这个" * 90,
    "ha" * 500,
    "a," * 300,
    "ha\u200b" * 300,
    "ha\u3164" * 300,
    "-" * 300,
    "?! " * 90,
]
LOOPS += [
    "ha \uff48a " * 90,
    "สวัสดี" * 90,
    "😀" * 90,
    "ha\n" * 90,
    "ha." * 300,
    "1/" * 300,
    "<b>ha</b>" * 90,
]
WRITTEN = [  # by somebody
    "First we add 3 and 4, which is 7. Then we multiply 7 by 2 and get 14. So the answer is 14.",
    "今天天气很好，我们一起去公园玩吧。他说他喜欢吃苹果。",
    "def f(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total",
    "5 + 3 = 8. 8 + 2 = 10. 10 - 4 = 6. So $\\frac{6}{2} = 3$ and $\\frac{12}{4} = 3$.",
    "https://example.com/some/long/path/file.html?x=1&y=2",
]
# Every row: a reward, a completion, the row's columns, what it earns.
TABLE = [
    # --- the format, all or nothing
    *texts(format_reward, (said("4"), 1), (f"\n{said('')}\n", 1), (said("4") + ".", 0)),
    *texts(format_reward, ("so " + said("4"), 0), (said("4") * 2, 0), ("", 0)),
    *texts(format_reward, ("<answer>4</answer><think>so</think>", 0), ("<think>so</think>4", 0)),
    # --- half of it for blocks with nothing in them
    *texts(substantial_format_reward, (said("4") + ".", 0), (said("4"), 1), (said("答"), 1)),
    *texts(substantial_format_reward, (said("-5."), 1), (said(""), 0.5), (said(" \n"), 0.5)),
    *texts(substantial_format_reward, (said("…"), 0.5), (said("_"), 0.5)),
    *texts(substantial_format_reward, *[(said(blank * 9), 0.5) for blank in UNSEEN]),
    *texts(substantial_format_reward, (said("\N{HANGUL FILLER}4"), 1)),
    *texts(substantial_format_reward, (THINK_ANSWER.render("...", "4"), 0.5)),
    # --- a quarter for each tag in its place
    *texts(incremental_format_reward, ("4", 0), ("<think>so", 0.25), ("<think>so</think>4", 0.5)),
    *texts(incremental_format_reward, ("<think>so</think><answer>4", 0.75), (said("4"), 1)),
    *texts(incremental_format_reward, ("a <think>so</think> b <answer>4</answer> \n", 1)),
    *texts(incremental_format_reward, ("</think><think><answer>4</answer>", 0.75)),
    *texts(incremental_format_reward, ("</answer><answer></think><think>", 0.25)),
    *texts(incremental_format_reward, ("<answer>4</answer><think>so</think>", 0.5)),
    # a tag that is there twice earns nothing
    *texts(incremental_format_reward, ("<think><think>so</think><answer>4</answer>", 0.75)),
    *texts(incremental_format_reward, (said("4") * 2, 0), ("<think>" * 50, 0)),
    # text after the end costs a thousandth a character, a quarter at most
    *texts(incremental_format_reward, (said("4") + " ok ", 0.998), (said("4") + "x" * 250, 0.75)),
    *texts(incremental_format_reward, (said("4") + "x" * 10**5, 0.75)),
    *texts(incremental_format_reward, ("</answer>" + "x" * 300, 0)),
    *texts(incremental_format_reward, ("<think>so</think><answer>" + "x" * 300, 0.75)),
    # --- JSON: one object or array and nothing around it
    *texts(json_format_reward, (said('{"a": [1, 2.5, null, true, "x"]}'), 1), (said("[]"), 1)),
    *texts(json_format_reward, (said(' \n{"a": 1}\n '), 1), (said('{"a": "```"}'), 1)),
    *texts(json_format_reward, (said('```json\n{"a": 1}\n```'), 1), (said("```JSON\n[1]\n```"), 1)),
    *texts(json_format_reward, (said("```\n[1]\n```"), 1), (said("```python\n[1]\n```"), 0)),
    *texts(json_format_reward, (said("```json\n[1]\n```\n```json\n[2]\n```"), 0)),
    *texts(json_format_reward, (said("Here: [1]"), 0), (said("[1] Done."), 0), (said("{} {}"), 0)),
    *texts(json_format_reward, (said("[NaN]"), 0), (said("[-Infinity]"), 0), (said("{'a': 1}"), 0)),
    *texts(json_format_reward, (said("[1,]"), 0), (said("[1 // one\n]"), 0), (said("[01]"), 0)),
    *texts(json_format_reward, *[(said(text), 0) for text in TWICE]),
    *texts(json_format_reward, (said('[{"a": 1}, {"a": 2}]'), 1), (said("~~~json\n[1]\n~~~"), 1)),
    *texts(json_format_reward, (said("4"), 0), (said('"four"'), 0), (said("null"), 0), ("[1]", 0)),
    *texts(WITHOUT_TAGS, ("[1]", 1), (said("[1]"), 0)),
    *texts(partial(json_format_reward, schema=CITY), (said('{"city": "Bonn"}'), 1)),
    *texts(partial(json_format_reward, schema=CITY), (said('```\n{"city": "Bonn"}\n```'), 1)),
    *texts(partial(json_format_reward, schema=CITY), (said('{"city": 3}'), 0), (said("[]"), 0)),
    *texts(partial(json_format_reward, schema={}), (said('{"city": 3}'), 1)),
    # --- how long
    *texts(NO_UNIT, *[("word " * n, earned) for n, earned in ((10, 1), (9, 0.8), (11, 0.8))]),
    *texts(
        NO_UNIT, *[("word " * n, earned) for n, earned in ((6, 0.2), (5, 0), (15, 0), (999, 0))]
    ),
    *texts(NO_UNIT, ("a\u00a0b\u3000c d\n\te f g h i j", 1)),
    *texts(NO_UNIT, ("a\u200bb\u3164c\u2800d e f g h i j", 1)),
    *texts(partial(NO_UNIT, tolerance=2), ("", 0.5), ("word " * 20, 0.5), ("word " * 29, 0.05)),
    *texts(partial(NO_UNIT, tolerance=1e-9), ("word " * 10, 1), ("word " * 11, 0)),
    *texts(partial(target_length_reward, target=4, unit="characters"), ("äöü€", 1), ("a b\n", 1)),
    *texts(partial(target_length_reward, target=4, unit="characters"), ("a\u200b\u3164bcd", 1)),
    (TOKENS, "whatever", {"completion_ids": [[7] * 4]}, 1),
    (TOKENS, "", {"completion_ids": [[7] * 3]}, 0.75),
    # --- what is written
    *texts(forbidden_patterns_reward, ("Bonn.", 1), ("AS AN AI language model", 0), ("", 1)),
    *texts(forbidden_patterns_reward, ("I'm sorry, but", 0), ("Well, I cannot", 0)),
    *texts(forbidden_patterns_reward, ("as an air force", 1), ("Ali cannot", 1)),
    *texts(partial(forbidden_patterns_reward, patterns=["bonn"]), ("In Bonn.", 0), ("Paris", 1)),
    *texts(partial(forbidden_patterns_reward, patterns=("^paris$", "x")), ("Paris", 0), ("Pa", 1)),
    *texts(forbidden_patterns_reward, *[(text, 0) for text in DISGUISED], ("as a nail", 1)),
    # one pattern, not its characters
    *texts(partial(forbidden_patterns_reward, patterns=r"b.*n"), ("In Bonn.", 0), ("Paris", 1)),
    *texts(repetition_reward, ("one two three four five", 1), ("ha ha", 1), ("", 1)),
    *texts(repetition_reward, ("ha " * 6, 0.25), ("ha " * 1002, 0.001), ("a b c a b c", 0.75)),
    *texts(repetition_reward, *[(text, pytest.approx(0, abs=0.06)) for text in LOOPS]),
    *texts(repetition_reward, *[(text, pytest.approx(1, abs=0.06)) for text in WRITTEN]),
    *texts(repetition_reward, ("这个这个这个", 0.5), ("a, a, a, a", 0.4)),
    *texts(partial(repetition_reward, ngram_size=1), ("Ha hA\nHA\tha", 0.25)),
    *texts(partial(repetition_reward, ngram_size=2), ("a b a b", 0.666667), ("a b c a b d", 0.8)),
]


@pytest.mark.parametrize(("reward", "text", "columns", "earned"), TABLE)
def test_a_completion_earns_what_the_table_says(reward, text, columns, earned):
    earned = pytest.approx(earned, abs=1e-9) if isinstance(earned, int | float) else earned
    for completion in (text, chat(text)):
        (score,) = reward([completion], **columns)
        assert score == earned and (score is None or type(score) is float)


# --- Whichever it is ------------------------------------------------------------------------------

REWARDS = {
    **{
        f"{name}_reward": getattr(import_module(f"helpers.rewards.{module}"), f"{name}_reward")
        for name, module in LIBRARY.items()
    },
    "target_length_reward": target_length_reward,
}
# The answer that earns everything, where it is not "4"; a completion that earns less, where "" does
# not; options it needs.
FULL = {"json_format_reward": '{"a": 4}', "tests_reward": CODE}
LESS = {"forbidden_patterns_reward": "I cannot", "repetition_reward": "ha " * 90}
OPTIONS = {
    "target_length_reward": {"target": 40, "unit": "characters", "tolerance": 0.75},
    "task_reward": {"entry": ['{"answer": "4"}'], "family": ["chain_sum"]},
    "tests_reward": {"tests": ["assert f() == 4"]},
}
# arguments that a row of the data is meant to fill
COLUMNS = {"answer", "question", "entry", "family", "tests", "entry_point"}
# arguments whose names a source's column cannot have
GIVEN = {"completions", "prompts", "completion_ids", "tags"}
NEEDS = {"task_reward": pytest.mark.needs("reasoning_gym")}
each_name = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in REWARDS]
)


@pytest.fixture
def reward(name):
    """The reward with the options it cannot do without, called with the columns it needs."""
    options = dict(OPTIONS.get(name, {}))
    columns = {key: options.pop(key) for key in COLUMNS & options.keys()}

    def call(completions: list, **more) -> list:
        repeated = {key: value * len(completions) for key, value in columns.items()}
        return REWARDS[name](completions, **(options | repeated | more))

    return call


def full(name: str, tags: TagFormat = THINK_ANSWER) -> str:
    if name == "target_length_reward":
        return "x" * 40
    return said(FULL.get(name, "4"), tags)


HOSTILE = [
    *map(said, HOSTILE_ANSWERS),
    *HOSTILE_ANSWERS,
    "<think>" * 10_000,
    "<answer>" * 10_000 + "</answer>" * 10_000,
    "<answer>4</answer>" * 5_000,
    *[None, [], {}, 3, [None]],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "content": [{"type": "image"}]}],
]


@each_name
@pytest.mark.filterwarnings("ignore:.*(have no answer|cannot run)")
@pytest.mark.parametrize(
    "gold", ["4", "x^2 + 1", "8" * 10**4, "\ud800"], ids=["number", "algebra", "long", "surrogate"]
)
def test_a_hostile_completion_gets_a_score_and_is_no_right_answer(name, reward, gold):
    scores = reward(HOSTILE, answer=[gold] * len(HOSTILE))
    given = [score for score in scores if isinstance(score, float) and 0 <= score <= 1]
    assert len(given) == len(scores)
    won = [text for text, score in zip(HOSTILE, scores, strict=True) if score == 1]
    if name == "correctness_reward":
        assert [f"{text:.40}" for text in won if text != said(gold)] == []


SOUP = [*THINK_ANSWER.tags, "4", " ", "5 ", "so", "x" * 300, "\n", "<", "</", "<think", "or", "{}"]


@each_name
def test_every_score_of_a_tag_soup_is_between_0_and_1(name, reward):
    rng = random.Random(0)
    completions = ["".join(rng.choices(SOUP, k=rng.randrange(16))) for _ in range(300)]
    completions += [full(name), LESS.get(name, "")]
    scores = reward(completions, answer=["4"] * 302)
    assert len(scores) == 302 and all(type(score) is float and 0 <= score <= 1 for score in scores)
    assert scores[-2] == 1.0 and scores[-1] < 1.0
    # One at a time or as chat messages, the same text earns the same.
    assert [reward([chat(text)], answer=["4"])[0] for text in completions] == scores
    assert reward([], answer=[]) == []


# --- As TRL calls it ------------------------------------------------------------------------------


@each_name
def test_other_tags_can_be_bound(name, reward):
    both = [full(name, CUSTOM), full(name)]
    bound = reward(both, answer=["4", "4"], tags=CUSTOM)
    unbound = reward(both, answer=["4", "4"])
    assert bound[0] == unbound[1] == 1.0
    if name in ("correctness_reward", "format_reward", "json_format_reward", "task_reward"):
        assert bound[1] == unbound[0] == 0.0


@each_name
def test_trls_extra_arguments_and_any_column_are_accepted(name, reward):
    both = [full(name), LESS.get(name, "")]
    arguments = {
        "prompts": [[{"role": "user", "content": "2 + 2?"}]] * 2,
        "completion_ids": [[1, 2], [3]],
        "answer": ["4", "4"],
        "question": ["2 + 2?"] * 2,
        "difficulty": [1, 1],
        "trainer_state": object(),
        "log_extra": print,
        "log_metric": print,
        "environments": None,
    }
    assert reward([chat(text) for text in both], **arguments) == reward(both, answer=["4", "4"])
    function = partial(REWARDS[name], tags=CUSTOM)
    assert reward_name(pickle.loads(pickle.dumps(function))) == name


@pytest.fixture(scope="module")
def columns(tmp_path_factory) -> dict:
    """What TRL passes of a row whose source has a column for every argument of a reward: all but
    the prompt.
    """
    signatures = [inspect.signature(function) for function in REWARDS.values()]
    named = {name for signature in signatures for name in signature.parameters} | GIVEN
    others = {name: ["algebra"] for name in named - COLUMNS}
    rows = [{"question": f"{n} + 0?", "answer": str(n)} | others for n in range(4)]
    path = tmp_path_factory.mktemp("source") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    row = load_task(str(path), holdout_size=1).train.iloc[0].drop("prompt")
    return {name: [value] for name, value in row.items()} | {"answer": ["4"]}


@each_name
def test_a_source_column_cannot_take_the_place_of_an_argument(name, reward, columns):
    assert reward([full(name)], prompts=["2 + 2?"], completion_ids=[[1]], **columns) == [1.0]


class Nameless:
    def __call__(self, completions, **columns):
        return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("reward", "name"),
    [
        (format_reward, "format_reward"),
        (partial(partial(format_reward), tags=THINK_ANSWER), "format_reward"),
        (partial(Nameless()), "Nameless"),
        (Nameless(), "Nameless"),
        (trl_rewards.get_cosine_scaled_reward(max_len=9), "cosine_scaled_reward"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_name_is_the_one_trl_logs(reward, name):
    assert reward_name(reward) == name == get_callable_name(reward)
    assert reward_name("my-org/classifier") == reward_name("classifier") == "classifier"


# --- What is refused, and what is loaded ----------------------------------------------------------


@pytest.mark.parametrize("completions", [["a"], []], ids=["one", "none"])
@pytest.mark.parametrize(
    ("reward", "options", "why"),
    [
        (target_length_reward, {"target": 0}, "target=0"),
        (target_length_reward, {"target": float("nan")}, "target=nan"),
        (target_length_reward, {"target": 4, "tolerance": 0}, "tolerance=0"),
        (
            target_length_reward,
            {"target": 4, "unit": "Words"},
            "'Words'.*characters, words, tokens",
        ),
        (target_length_reward, {"target": 4, "unit": "tokens"}, "completion_ids.*TRL"),
        (repetition_reward, {"ngram_size": 0}, "ngram_size=0"),
        (correctness_reward, {"answer": [], "kind": "word"}, "kind='word' is not a kind of answer"),
    ],
)
def test_an_option_that_cannot_be_is_named_with_its_value(reward, options, why, completions):
    with pytest.raises(ValueError, match=why):
        reward(completions, **options | ({"answer": completions} if "answer" in options else {}))


def test_what_cannot_be_searched_in_time_earns_nothing_and_the_next_is_judged():
    slow = ["a" * 30_000 + "!" + str(n) for n in range(8)]
    with pytest.warns(UserWarning, match="8 of 9 completions could not be searched in time"):
        scores = forbidden_patterns_reward([*slow, "Bonn."], patterns=[r"^(a+)+\1b"])
    assert scores == [0.0] * 8 + [1.0]


@pytest.mark.parametrize(
    "program",
    [
        "import helpers.rewards",
        "from helpers.rewards.correctness import correctness_reward",
        "from helpers.rewards.structure import format_reward",
        "from helpers.rewards import own",
    ],
)
def test_no_sandbox_and_no_judge_comes_with_a_reward(python, program):
    """A fresh process: this one has loaded everything."""
    heavy = ["pydantic_monty", "sandlock", "httpx", "sympy", "torch"]
    heavy += ["helpers.rewards.code", "helpers.rewards.judge"]
    shown = f"{program}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([python, "-c", shown], capture_output=True, text=True, cwd=PROJECT)
    assert done.stdout == "[]\n", done.stdout + done.stderr
