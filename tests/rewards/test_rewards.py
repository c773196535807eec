"""The rewards of the library: a table of scores, and the rules for all rewards. Every completion gets a
score, TRL's signature works, tags can be bound, and no sandbox is loaded unless it is needed.
"""

import inspect
import json
import pickle
import random
import subprocess
from functools import partial

import pytest
from told import HOSTILE_ANSWERS
from trl import rewards as trl_rewards
from trl.trainer.utils import get_callable_name

from helpers import PROJECT
from helpers import rewards as library
from helpers.data.tasks import load_task
from helpers.rewards import LIBRARY
from helpers.rewards.common import reward_name
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import (
    format_reward,
    incremental_format_reward,
    substantial_format_reward,
)
from helpers.tags import THINK_ANSWER, TagFormat

CUSTOM = TagFormat("reasoning", "final")
CODE = "\n```python\ndef f():\n    return 4\n```\n"


def said(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("First, 2 + 2.", answer)


def chat(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def texts(reward, *rows) -> list[tuple]:
    """Return rows of the table for one reward."""
    return [(reward, text, earned) for text, earned in rows]


UNSEEN = "\u3164\u115f\uffa0\u200b\u2060\u2800\u00ad\x00\U000e0041 "
# Each row: a reward, a completion and its score.
TABLE = [
    # --- the format, all or nothing
    *texts(format_reward, (said("4"), 1), (f"\n{said('')}\n", 1), (said("4") + ".", 0)),
    *texts(format_reward, ("so " + said("4"), 0), (said("4") * 2, 0), ("", 0)),
    *texts(format_reward, ("<answer>4</answer><think>so</think>", 0), ("<think>so</think>4", 0)),
    # --- half the credit for a block without content
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
    # a repeated tag earns nothing
    *texts(incremental_format_reward, ("<think><think>so</think><answer>4</answer>", 0.75)),
    *texts(incremental_format_reward, (said("4") * 2, 0), ("<think>" * 50, 0)),
    # text after the last tag costs 0.001 per character, at most 0.25
    *texts(incremental_format_reward, (said("4") + " ok ", 0.998), (said("4") + "x" * 250, 0.75)),
    *texts(incremental_format_reward, (said("4") + "x" * 10**5, 0.75)),
    *texts(incremental_format_reward, ("</answer>" + "x" * 300, 0)),
    *texts(incremental_format_reward, ("<think>so</think><answer>" + "x" * 300, 0.75)),
]


@pytest.mark.parametrize(("reward", "text", "earned"), TABLE)
def test_a_completion_earns_what_the_table_says(reward, text, earned):
    assert reward([text]) == reward([chat(text)]) == [pytest.approx(earned, abs=1e-9)]


# --- Rules for every reward -----------------------------------------------------------------------

REWARDS = {f"{name}_reward": getattr(library, f"{name}_reward") for name in LIBRARY}
# columns that a reward needs; without them it scores None
NEEDED = {
    "task_reward": {"entry": ['{"answer": "4"}'], "family": ["chain_sum"]},
    "tests_reward": {"tests": ["assert f() == 4"]},
}
# arguments that columns of the data fill
COLUMNS = {"answer", "question", "entry", "family", "tests", "entry_point"}
# arguments that no column of the data may fill
GIVEN = {"completions", "prompts", "completion_ids", "tags"}
NEEDS = {"task_reward": pytest.mark.needs("reasoning_gym")}
each_name = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in REWARDS]
)


@pytest.fixture
def reward(name):
    """Return a function that calls the reward with the columns it needs."""

    def call(completions: list, **columns) -> list:
        needed = {key: value * len(completions) for key, value in NEEDED.get(name, {}).items()}
        return REWARDS[name](completions, **(needed | columns))

    return call


def full(name: str, tags: TagFormat = THINK_ANSWER) -> str:
    """Return a completion that earns the full score."""
    return said(CODE if name == "tests_reward" else "4", tags)


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
    assert [score for score in scores if not (type(score) is float and 0 <= score <= 1)] == []
    if name == "correctness_reward":
        won = [text for text, score in zip(HOSTILE, scores, strict=True) if score == 1]
        assert [f"{text:.40}" for text in won if text != said(gold)] == []


SOUP = [*THINK_ANSWER.tags, "4", " ", "5 ", "so", "x" * 300, "\n", "<", "</", "<think", "or", "{}"]


@each_name
def test_every_score_of_a_tag_soup_is_between_0_and_1(name, reward):
    rng = random.Random(0)
    completions = ["".join(rng.choices(SOUP, k=rng.randrange(16))) for _ in range(300)]
    completions += [full(name), ""]
    scores = reward(completions, answer=["4"] * 302)
    assert len(scores) == 302 and all(type(score) is float and 0 <= score <= 1 for score in scores)
    assert scores[-2] == 1.0 and scores[-1] < 1.0
    # As chat messages or alone, the same text earns the same. Alone, a sandbox is slow.
    assert reward([chat(text) for text in completions], answer=["4"] * 302) == scores
    some = slice(None, None, 25 if name == "tests_reward" else 1)
    alone = [reward([text], answer=["4"])[0] for text in completions[some]]
    assert alone == scores[some]
    assert reward([], answer=[]) == []


# --- As TRL calls it ------------------------------------------------------------------------------


@each_name
def test_other_tags_can_be_bound(name, reward):
    both = [full(name, CUSTOM), full(name)]
    bound = reward(both, answer=["4", "4"], tags=CUSTOM)
    unbound = reward(both, answer=["4", "4"])
    assert bound[0] == unbound[1] == 1.0
    if name in ("correctness_reward", "format_reward", "task_reward"):
        assert bound[1] == unbound[0] == 0.0


@each_name
def test_trls_extra_arguments_and_any_column_are_accepted(name, reward):
    both = [full(name), ""]
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
    """Return the columns that TRL passes, except the prompt, if the source has a column for every
    argument of every reward.
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
def test_a_kind_that_there_is_none_of_is_named(completions):
    with pytest.raises(ValueError, match="kind='word'"):
        correctness_reward(completions, answer=completions, kind="word")


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
    heavy += ["helpers.judging.programs", "helpers.rewards.judge"]
    shown = f"{program}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([python, "-c", shown], capture_output=True, text=True, cwd=PROJECT)
    assert done.stdout == "[]\n", done.stdout + done.stderr
