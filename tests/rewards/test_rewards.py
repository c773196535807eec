"""What every reward keeps to, whichever it is: a score for any completion, TRL's signature, bound
tags, pickles.
"""

import inspect
import json
import pickle
import random
from functools import partial

import pytest
from trl import rewards as trl_rewards
from trl.trainer.utils import get_callable_name

from helpers import rewards
from helpers.data.tasks import load_task
from helpers.rewards import (
    REWARD_SETS,
    format_reward,
    reward_name,
    reward_set,
)
from helpers.tags import THINK_ANSWER, TagFormat

CUSTOM = TagFormat("reasoning", "final")
NAMES = sorted(name for name in rewards.__all__ if name.endswith("_reward"))
# The answer that earns everything, where it is not "4"; a completion that earns less, where "" does
# not; options it needs.
CODE = "\n```python\ndef f():\n    return 4\n```\n"
FULL = {
    "citation_reward": "4 [1]",
    "json_format_reward": '{"a": 4}',
    "code_format_reward": CODE,
    "tests_reward": CODE,
}
LESS = {
    "max_length_reward": "a " * 90,
    "forbidden_patterns_reward": "I cannot",
    "repetition_reward": "ha " * 90,
}
OPTIONS = {
    "target_length_reward": {"target": 40, "unit": "characters", "tolerance": 0.75},
    "min_length_reward": {"minimum": 3},
    "max_length_reward": {"maximum": 40},
    "reasoning_steps_reward": {"steps": 1},
    "task_reward": {"entry": ['{"answer": "4"}'], "family": ["chain_sum"]},
    "tests_reward": {"tests": ["assert f() == 4"]},
}
COLUMNS = {
    "answer",
    "question",
    "entry",
    "family",
    "sources",
    "tests",
    "entry_point",
}  # arguments that a row of the data is meant to fill
# arguments whose names a source's column cannot have
GIVEN = {"completions", "prompts", "completion_ids", "tags"}
each_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def reward(name):
    """The reward with the options it cannot do without, called with the columns it needs."""
    function, options = getattr(rewards, name), dict(OPTIONS.get(name, {}))
    columns = {key: options.pop(key) for key in COLUMNS & options.keys()}

    def call(completions: list, **more) -> list:
        repeated = {key: value * len(completions) for key, value in columns.items()}
        return function(completions, **(options | repeated | more))

    if name == "task_reward":
        pytest.importorskip("reasoning_gym")
    return call


def said(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("First, 2 + 2.", answer)


def full(name: str, tags: TagFormat = THINK_ANSWER) -> str:
    if name == "target_length_reward":
        return "x" * 40
    return said(FULL.get(name, "4"), tags)


def chat(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


# --- Any completion gets a score ------------------------------------------------------------------

HOSTILE = [
    "9" * 10**6,
    said("9" * 10**6),
    said("9**9**9**9"),
    said("1e999999999"),
    said("9" * 50 + "/" + "0" * 40),
    said("1" + ",000" * 5000),
    said(" " * 10**6 + "$" * 10),
    said("\ud800\udfff"),
    "\ud800",
    said("\x00"),
    "\x00" * 1000,
    said("{" * 10_000 + "}" * 10_000),
    said("[" * 10_000),
    said("[" + "9" * 5000 + ", 1e999, -1e999]"),
    said("\\frac{" * 10_000),
    "```python\n" + "(" * 5_000 + "\n```",
    "1. [1] " * 10_000 + "[" + "9" * 4000 + "]",
    "step " + "\t" * 100_000,
    "<think>" * 10_000,
    "<answer>" * 10_000 + "</answer>" * 10_000,
    "<answer>4</answer>" * 5_000,
    said("٣"),
    said("4²"),
    said("[٣]"),
    None,
    [],
    {},
    3,
    [None],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "content": [{"type": "image"}]}],
]


@each_name
@pytest.mark.filterwarnings("ignore:.*have no answer")
@pytest.mark.parametrize("gold", ["4", "9" * 10**4, "\ud800"], ids=["short", "long", "surrogate"])
def test_hostile_completions_get_a_score(name, reward, gold):
    scores = reward(HOSTILE, answer=[gold] * len(HOSTILE), sources=[["a"]] * len(HOSTILE))
    assert len(scores) == len(HOSTILE)
    odd = [
        f"{completion!r:.80}"
        for completion, score in zip(HOSTILE, scores, strict=True)
        if not (score is None or (isinstance(score, float) and 0 <= score <= 1))
    ]
    assert odd == []
    # where the row's answer is no number
    assert None not in scores or name in ("numeric_reward", "proximity_reward")


def soup(rng: random.Random) -> str:
    pieces = [
        *THINK_ANSWER.tags,
        "4",
        " ",
        "5 ",
        "so",
        "x" * 300,
        "\n",
        "<",
        "</",
        "<think",
        "or",
        "[1]",
        "1. ",
        "{}",
        "\n```\n",
    ]
    return "".join(rng.choices(pieces, k=rng.randrange(16)))


@each_name
def test_every_score_of_a_tag_soup_is_between_0_and_1(name, reward):
    rng = random.Random(0)
    completions = [soup(rng) for _ in range(300)] + [full(name), LESS.get(name, "")]
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
    bound, unbound = (
        partial(reward, answer=["4", "4"], **tags)(both) for tags in ({"tags": CUSTOM}, {})
    )
    assert bound[0] == unbound[1] == 1.0
    if name in (
        "correctness_reward",
        "format_reward",
        "soft_format_reward",
        "json_format_reward",
        "task_reward",
    ):
        assert bound[1] == unbound[0] == 0.0


@each_name
def test_trls_extra_arguments_and_any_column_are_accepted(name, reward):
    texts = [full(name), LESS.get(name, "")]
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
    assert reward([chat(text) for text in texts], **arguments) == reward(texts, answer=["4", "4"])


@pytest.fixture(scope="module")
def columns(tmp_path_factory) -> dict:
    """What TRL passes of a row whose source has a column for every argument of a reward: all but
    the prompt.
    """
    signatures = [inspect.signature(getattr(rewards, name)) for name in NAMES]
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


# --- Names ----------------------------------------------------------------------------------------


class Nameless:
    def __call__(self, completions, **columns):
        return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("reward", "name"),
    [
        (format_reward, "format_reward"),
        (partial(format_reward, tags=THINK_ANSWER), "format_reward"),
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


# --- The sets -------------------------------------------------------------------------------------

# A completion for each set that deserves all of it, with the row's columns, and one that deserves
# less.
DESERVING = {
    "math": (said("4"), {"answer": ["4"]}, said("5")),
    "code": (f"Here:{CODE}", {"tests": ["assert f() == 4"]}, CODE.replace("4", "5")),
    "summaries": (
        THINK_ANSWER.render(" ".join(f"w{n}" for n in range(79)), "x y"),
        {"answer": ["x y"]},
        THINK_ANSWER.render("a", "b"),
    ),
    "qa": (THINK_ANSWER.render("2 + 2, see [1].", "4"), {"answer": ["4"]}, said("5")),
}


@pytest.mark.parametrize("tags", [THINK_ANSWER, CUSTOM], ids=["own", "custom"])
@pytest.mark.parametrize("name", REWARD_SETS)
def test_a_set_gives_the_deserving_everything_and_others_less(name, tags):
    functions, weights = pickle.loads(pickle.dumps(reward_set(name, tags)))
    assert max(weights) == 1.0
    good, columns, bad = DESERVING[name]
    for ours, theirs in zip(THINK_ANSWER.tags, tags.tags, strict=True):
        good, bad = good.replace(ours, theirs), bad.replace(ours, theirs)

    def total(text: str) -> float:
        called = [
            f(prompts=[[]], completions=[chat(text)], completion_ids=[[1]], **columns)[0]
            for f in functions
        ]
        return sum(weight * score for weight, score in zip(weights, called, strict=True))

    assert total(good) == pytest.approx(sum(weights)) and total(bad) < sum(weights) - 0.4


def test_an_unknown_set_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"'MATH'.*math, code, summaries, qa"):
        reward_set("MATH")
