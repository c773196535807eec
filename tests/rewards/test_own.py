"""A user's list of rewards: how it is read, where its files are found, and which copies are kept."""

import linecache
import pickle
import sys

import pytest

from helpers.own_code import load_own
from helpers.rewards.common import code_of, reward_name, source_hash
from helpers.rewards.own import (
    copies_of,
    names_and_weights,
    own_rewards,
    read_rewards,
    with_absolute_paths,
)
from helpers.runs import Run
from helpers.tags import TagFormat

FMT = TagFormat.parse("think/answer")
FILE = """import short
from helpers.tags import completion_text

def brevity(completions, **columns):
    return [float(len(completion_text(said)) < short.LIMIT) for said in completions]
"""
RIGHT = "<think>easy</think><answer>4</answer>"


@pytest.fixture
def typed(tmp_path, monkeypatch):
    """A user's working folder, with a file of rewards and a module that the file imports."""
    (tmp_path / "my_rewards.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "short.py").write_text("LIMIT = 60", encoding="utf-8")
    (tmp_path / "wrong.py").write_text("def", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path


def test_a_list_may_name_library_rewards_files_and_modules_with_weights(typed):
    listed = "my_rewards.py:brevity, correctness*2,format_reward*0.5,my_rewards:brevity*3"
    functions, weights = read_rewards(listed, FMT)
    names = ["brevity", "correctness_reward", "format_reward", "brevity"]
    assert list(map(reward_name, functions)) == names and weights == [1.0, 2.0, 0.5, 3.0]
    messages = [[{"role": "assistant", "content": text}] for text in (RIGHT, 99 * "no")]
    scores = [function(completions=messages, answer=["4", "4"]) for function in functions]
    assert scores == [[1.0, 0.0]] * 4, "the tags are bound"


def test_a_file_keeps_its_own_globals_and_is_executed_again_only_if_it_has_changed(typed):
    file = typed / "one.py"
    text = "source = 'gsm8k'\ncalls = []\ndef which():\n    calls.append(1)\n    return source, {}"
    for value, seen in ((1, 1), (1, 2), (2, 1)):
        file.write_text(text.format(f"len(calls), {value}"), encoding="utf-8")
        assert load_own("rewards", "one.py:which", "")() == ("gsm8k", seen, value)


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        (
            "my_rewards.py:brevity*much",
            "'my_rewards.py:brevity\\*much' is not a reward with a weight",
        ),
        ("correctness,,format", "'' is not a reward with a weight"),
        ("correct", "rewards='correct' is not a reward of the library: correctness, "),
        ("my_rewards.py:long", "my_rewards.py has no class or function long"),
        ("/etc/passwd:brevity", "rewards='/etc/passwd:brevity': write it as file.py:Class"),
        ("nowhere.py:brevity", "nowhere.py cannot be read \\(FileNotFoundError"),
        ("wrong.py:brevity", "wrong.py cannot be read \\(SyntaxError"),
        ("no.such.module:brevity", "no.such.module cannot be read \\(ModuleNotFoundError"),
        ("my_rewards.py:short.LIMIT", "write it as file.py:Class"),
        (5, "rewards='5' is not a reward of the library"),
    ],
)
def test_a_mistake_in_a_list_of_rewards_is_named(typed, rewards, why):
    with pytest.raises(ValueError, match=why):
        read_rewards(rewards, FMT)


def test_a_weight_keeps_its_value_when_the_paths_of_a_list_are_replaced():
    rewards = "format*0.1234567, correctness*0.00001, tests*-2e-7, tests*1e20, task"
    weights = [0.1234567, 0.00001, -2e-7, 1e20, 1.0]
    assert [weight for _, weight in names_and_weights(rewards)] == weights
    assert [weight for _, weight in names_and_weights(copies_of(rewards))] == weights


def test_the_run_keeps_a_copy_that_is_used_when_the_file_is_gone(typed):
    run, listed = Run("mine"), with_absolute_paths("my_rewards.py:brevity*0.5, correctness")
    assert listed == f"{typed}/my_rewards.py:brevity*0.5,correctness*1"

    def score(rewards: str, parameter: str = "rewards") -> float:
        (first, *_), _ = own_rewards(run, rewards, FMT, parameter)
        return first(completions=[RIGHT])[0]

    assert score(listed) == 1.0
    assert (run.folder / "rewards" / "my_rewards.py").read_text("utf-8") == FILE
    (typed / "my_rewards.py").write_text("def brevity(completions, **_): return [7.0]", "utf-8")

    # the manifest names the copy; the original name reads the edited file
    assert copies_of(listed) == "rewards/my_rewards.py:brevity*0.5,correctness*1"
    assert score(copies_of(listed)) == 1.0
    # a judge from the same file has a copy of its own
    assert score(listed, "judge") == 7.0 and score(copies_of(listed)) == 1.0
    # if the file is gone, its copies are used
    (typed / "my_rewards.py").unlink()
    assert score(copies_of(listed, "judge"), "judge") == 7.0 and score(listed) == 1.0
    # without a copy, the message names the missing file
    with pytest.raises(ValueError, match=r"nowhere\.py:brevity.: nowhere\.py cannot"):
        score("nowhere.py:brevity*1")


def test_two_files_of_one_name_cannot_be_copied(typed):
    (typed / "work").mkdir()
    (typed / "work" / "my_rewards.py").write_text(FILE, encoding="utf-8")
    with pytest.raises(ValueError, match=r"two .*my_rewards\.py"):
        own_rewards(Run("mine"), "my_rewards.py:brevity,work/my_rewards.py:brevity", FMT)


def test_two_rewards_of_one_file_share_its_objects_and_can_be_pickled(typed):
    two = "seen = []\n" + "".join(
        f"def {name}(completions, **columns):\n    seen.append(1)\n    return [float(len(seen))]\n"
        for name in ("first", "second")
    )
    (typed / "two.py").write_text(two, encoding="utf-8")
    (first, second, shape), weights = read_rewards("two.py:first*0.5, second, format", FMT)
    assert weights == [0.5, 1.0, 1.0] and reward_name(shape) == "format_reward"
    assert [first(["a"]), pickle.loads(pickle.dumps(second))(["a"])] == [[1.0], [2.0]]


DEF = "def mine(completions, **columns):\n    return [0 for _ in completions]\n"
CLASS = "class Mine:\n    def __call__(self, completions): return [0]\nmine = Mine()\n"
PARTIAL = f"{DEF}from functools import partial\nmine = partial(mine, words=3)\n"
OPTION = (
    "from functools import partial\n"
    "from helpers.rewards.correctness import correctness_reward\n"
    "mine = partial(correctness_reward, kind=['[0'])\n"
)


@pytest.mark.parametrize("typed_in", ["file", "cell"])
@pytest.mark.parametrize("text", [DEF, CLASS, PARTIAL, OPTION])
def test_the_hash_changes_with_the_source(tmp_path, text, typed_in):
    hashes = []
    for at, source in enumerate((text, text, text.replace("[0", "[1"))):
        file, names = tmp_path / f"{at}.py", {"__name__": "cell"}
        if typed_in == "file":
            file.write_text(source, encoding="utf-8")
        else:  # the source is only in linecache, like a cell of IPython
            lines = source.splitlines(keepends=True)
            linecache.cache[str(file)] = (len(source), None, lines, str(file))
        exec(compile(source, str(file), "exec"), names)
        hashes.append(source_hash(names["mine"]))
    assert hashes[0] == hashes[1] != hashes[2] and None not in hashes


def test_library_rewards_and_rewards_without_source_have_no_hash():
    (correctness,), _ = read_rewards("correctness", FMT)
    assert source_hash(correctness) is None and source_hash(len) is None


def test_a_copy_finds_the_modules_beside_the_original(typed, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (typed / "work").mkdir()
    (typed / "work" / "beside.py").write_text("SCORE = 0.5", encoding="utf-8")
    reward = "import beside\n\ndef half(completions, **columns):\n    return [beside.SCORE]\n"
    (typed / "work" / "half.py").write_text(reward, encoding="utf-8")
    (half,), _ = own_rewards(Run("mine"), f"{typed}/work/half.py:half", FMT)
    assert half(completions=["x"]) == [0.5]


def test_the_code_of_a_reward_is_what_it_names_of_its_file_and_not_the_rest(tmp_path):
    path = tmp_path / "many.py"
    path.write_text(
        "WORDS = ['one']\n"
        "def words_of(text):\n    return WORDS\n"
        "def made(rule):\n"
        "    def a_reward(completions, **columns):\n        return [rule(c) for c in completions]\n"
        "    return a_reward\n"
        "def reads(text):\n    return 'two'\n"
        "mine = made(reads)\n"
        "def other(completions, **columns):\n    return [words_of(c) for c in completions]\n"
        "class Third:\n"
        "    def __call__(self, completions, **columns):\n        return self.three()\n"
        "    def three(self):\n        return ['three']\n"
        "third = Third()\n"
        "FOUR: list = ['four']\n"
        "def decorated(function):\n    FOUR\n    return function\n"
        "try:\n    import fast as module\nexcept ImportError:\n    module = 'five'\n"
        "@decorated\n"
        "def last(completions, **columns):\n    return module\n"
    )
    namespace = {"__name__": "many"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    found = {name: code_of(namespace[name]) for name in ("mine", "other", "third", "last")}
    words = {
        name: {word for word in ["one", "two", "three", "four", "five"] if f"'{word}'" in code}
        for name, code in found.items()
    }
    assert words == {"mine": {"two"}, "other": {"one"}, "third": {"three"}} | {
        "last": {"four", "five"}
    }
    assert code_of(len) == "", "it is written in C"
