"""A user's rewards by a list of names and files: what is read, where it is found, what is kept."""

import linecache
import math
import runpy
import sys

import pytest

from helpers.commands.arguments import value
from helpers.rewards.faults import constant
from helpers.rewards.own import copies_of, edited, located, own_rewards, parsed, read_rewards
from helpers.rewards.shaping import reward_name, source_hash
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
    """A folder with a file of rewards and a module beside it, in which a user types."""
    (tmp_path / "my_rewards.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "short.py").write_text("LIMIT = 60", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path


def test_a_list_names_the_library_and_files_each_with_its_weight(typed):
    functions, weights = read_rewards("my_rewards.py:brevity, correctness*2,format_reward*0.5", FMT)
    assert list(map(reward_name, functions)) == ["brevity", "correctness_reward", "format_reward"]
    assert weights == [1.0, 2.0, 0.5]
    messages = [[{"role": "assistant", "content": text}] for text in (RIGHT, 99 * "no")]
    scores = [function(completions=messages, answer=["4", "4"]) for function in functions]
    assert scores == [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]  # the tags are bound


def test_a_module_is_found_where_the_command_was_typed(typed):
    (function,), _ = read_rewards("my_rewards:brevity", FMT)
    assert reward_name(function) == "brevity"


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
        (5, "rewards='5' is not a reward of the library"),
    ],
)
def test_what_is_no_list_of_rewards_is_named(typed, rewards, why):
    with pytest.raises(ValueError, match=why):
        read_rewards(rewards, FMT)


def test_each_file_of_a_list_is_absolute_for_a_notebook_that_runs_elsewhere(typed):
    listed = "my_rewards.py:brevity*0.5, correctness"
    assert value(listed) == f"{typed}/my_rewards.py:brevity*0.5,correctness"


def test_the_run_keeps_the_file_and_reads_its_copy_when_the_file_has_changed(typed):
    run, listed = Run("mine"), f"{typed}/my_rewards.py:brevity*0.5,correctness"
    assert copies_of(listed, run) == f"{typed}/my_rewards.py:brevity*0.5,correctness*1"
    _, weights = own_rewards(run, listed, FMT)
    assert weights == [0.5, 1.0]
    assert (run.folder / "rewards" / "my_rewards.py").read_text("utf-8") == FILE
    (typed / "my_rewards.py").write_text("brevity = len", encoding="utf-8")
    recorded = copies_of(listed)
    assert recorded == "rewards/my_rewards.py:brevity*0.5,correctness*1"
    functions, _ = own_rewards(run, recorded, FMT)
    assert functions[0](completions=[RIGHT, 99 * "no"]) == [1.0, 0.0]
    own_rewards(run, listed, FMT)  # asked for again, by the file
    assert (run.folder / "rewards" / "my_rewards.py").read_text("utf-8") == "brevity = len"
    assert parsed(recorded) == [("rewards/my_rewards.py:brevity", 0.5), ("correctness", 1.0)]


def test_a_recorded_list_names_the_file_and_its_copy_only_if_the_file_is_gone(typed):
    run, listed = Run("mine"), located("my_rewards.py:brevity*0.5, correctness")
    assert listed == f"{typed}/my_rewards.py:brevity*0.5,correctness*1"
    own_rewards(run, listed, FMT)
    assert edited(listed, run) == []
    (typed / "my_rewards.py").write_text("def brevity(completions, **_): return [7.0]", "utf-8")
    assert edited(listed, run) == [typed / "my_rewards.py"]
    (brevity, _), _ = own_rewards(run, listed, FMT)
    assert brevity(completions=[RIGHT]) == [7.0]
    assert edited(listed, run) == [], "the copy is now the edited file's"
    (typed / "my_rewards.py").unlink()
    (brevity, _), _ = own_rewards(run, listed, FMT)
    assert brevity(completions=[RIGHT]) == [7.0]
    assert edited(listed, run) == []


@pytest.mark.parametrize("written", ["def", "class", "partial", "cell"])
def test_the_hash_of_a_source_changes_with_it(tmp_path, written):
    def loaded(number: str):
        text = f"def mine(completions, **columns):\n    return [{number} for _ in completions]\n"
        if written == "class":
            text = f"class Mine:\n    def __call__(self, completions): return [{number}]\n"
            text += "mine = Mine()\n"
        if written == "partial":
            text += "from functools import partial\nmine = partial(mine, words=3)\n"
        file = tmp_path / f"{number}.py"
        if written == "cell":  # known to linecache alone, as IPython's cells are
            linecache.cache[str(file)] = (len(text), None, text.splitlines(True), str(file))
            exec(compile(text, str(file), "exec"), names := {})
            return names["mine"]
        file.write_text(text, encoding="utf-8")
        return runpy.run_path(str(file))["mine"]

    same, other = source_hash(loaded("1.0")), source_hash(loaded("2.0"))
    assert same == source_hash(loaded("1.0")) and same is not None and other not in (same, None)


def test_this_packages_rewards_and_those_without_source_have_no_hash():
    (correctness,), _ = read_rewards("correctness", FMT)
    assert source_hash(correctness) is None and source_hash(len) is None


def test_a_copy_still_finds_what_its_file_imports(typed, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (typed / "work").mkdir()
    (typed / "work" / "beside.py").write_text("SCORE = 0.5", encoding="utf-8")
    reward = "import beside\n\ndef half(completions, **columns):\n    return [beside.SCORE]\n"
    (typed / "work" / "half.py").write_text(reward, encoding="utf-8")
    (half,), _ = own_rewards(Run("mine"), f"{typed}/work/half.py:half", FMT)
    assert half(completions=["x"]) == [0.5]
    assert half.__code__.co_filename == str(Run("mine").folder / "rewards" / "half.py")


def test_a_reward_without_a_difference_is_told_with_the_likeliest_reason():
    assert "brevity gave 1.0 to each of 3 completions; " in constant(
        "brevity", [1.0, None, math.nan]
    )
    assert constant("brevity", [1.0] * 64) == (
        "brevity gave 1.0 to each of 64 completions; completions are lists of messages, "
        "`completion_text` gives the text."
    )
    for scores in ([1.0, 0.0], [None, None], [1.0], []):
        assert constant("brevity", scores) is None
