"""What is typed for a run, what asked.json remembers of it, and what a new call may not give up."""

from dataclasses import asdict

import pytest

from helpers.commands import arguments
from helpers.presets import PRESETS
from helpers.runs import Run, write_json

pytestmark = pytest.mark.usefixtures("machine")


# --- Parameters -----------------------------------------------------------------------------------

LITERALS = {
    "20": 20,
    "1e-3": 1e-3,
    "[1, 2]": [1, 2],
    "True": True,
    "true": True,
    "null": None,
    "None": None,
    '"20"': "20",
    "'text'": "text",
    '{"a": "b"}': {"a": "b"},
    "{'a': 'b'}": {"a": "b"},
}
TEXTS = ["text", "arithmetic/sums", "What is 1 + 2?", "2026-08-01", "007", "C:\\data\\mine.csv", ""]
TEXTS += ["{x", "{{}}", "{[1]: 2}", "long? " * 1000]  # keys that cannot be hashed, a name too long


@pytest.mark.parametrize(("text", "value"), [*LITERALS.items(), *((text, text) for text in TEXTS)])
def test_a_value_is_a_literal_where_it_is_one_and_else_the_text_itself(text, value):
    read = arguments.value(text)
    assert read == value and type(read) is type(value)


def test_a_file_or_a_function_in_one_is_found_again_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    for text in ("mine.py", "mine.py:mine_reward"):
        assert arguments.value(text) == str(tmp_path / text)


def test_parameters_are_split_at_the_first_equals_sign_and_trimmed():
    given = ["max_steps=20", " beta = 0.1 ", "question=1 + 1 = ?", "source=", "max_steps=30"]
    assert arguments.parameters(given) == {
        "max_steps": 30,
        "beta": 0.1,
        "question": "1 + 1 = ?",
        "source": "",
    }
    assert arguments.parameters([]) == {}


# --- asked.json -----------------------------------------------------------------------------------


def prepared(name: str = "a") -> Run:
    """A run as notebook 01 leaves one, as far as the command line looks at it."""
    run = Run(name)
    run.record(
        "data",
        settings=asdict(PRESETS["pocket"]),
        seed=3407,
        tags="think/answer",
        fingerprint="f",
    )
    return run


def test_a_file_of_an_earlier_version_is_read():
    write_json(
        Run("a").path("asked.json"),
        {"parameters": {"seed": 1}, "notebooks": ["01", "03"], "done": ["01"]},
    )
    asked, nothing = arguments.last(Run("a")), arguments.last(Run("b"))
    assert asked["used"] == {"01": {"seed": 1}} and arguments.left(asked) == ["03"]
    assert nothing["used"] == {} and arguments.left(nothing) == []


# --- What a new call would replace ----------------------------------------------------------------


def interrupted(executions, cli, *given: str, **settings) -> Run:
    """A run that stopped in notebook 03, asked for with `given`, whose training with `settings` has
    a checkpoint.
    """
    run = prepared()
    executions.outcomes["03"] = KeyboardInterrupt
    assert cli("run", "--run", "a", *given)[0] == 130
    del executions.outcomes["03"]
    executions.clear()
    wanted = {"settings": asdict(PRESETS["pocket"]) | settings, "seed": 3407, "data": "f"}
    write_json(run.path("checkpoints/settings.json"), wanted)
    write_json(run.path("checkpoints/checkpoint-20/trainer_state.json"), {})
    return run


def test_a_training_to_go_on_with_is_the_one_that_notebook_03_goes_on_with():
    from helpers.training import checkpoints

    run, pocket = prepared(), PRESETS["pocket"]
    assert checkpoints.begin(run, pocket, 3407) is arguments.interrupted_training(run) is None
    for step in (9, 20):
        write_json(run.path(f"checkpoints/checkpoint-{step}/trainer_state.json"), {})
    assert checkpoints.begin(run, pocket, 3407).name == "checkpoint-20"
    assert arguments.interrupted_training(run) == 20
    arguments.give_up_training(run)
    assert arguments.interrupted_training(run) is None
    assert checkpoints.begin(run, pocket, 3407) is None
    assert (run.folder / "checkpoints_previous/checkpoint-20").exists()


SAME = ["--preset", "pocket", "-p", "max_steps=30", "-p", "tags=reasoning/answer"]


@pytest.mark.parametrize(
    "call",
    [["--resume"], [*SAME, "-p", "samples=2"], ["--only", "03", "-p", "max_steps=30"]],
)
def test_a_call_that_gives_nothing_up_needs_no_word(cli, executions, call):
    run = interrupted(executions, cli, *SAME, max_steps=30)
    code, _, err = cli("run", "--run", "a", *call)
    assert (code, err) == (0, "") and "03" in dict(executions)
    assert run.path("checkpoints/checkpoint-20").exists()
    # nor one that replaces a finished training
    run.path("checkpoints/finished").touch()
    assert cli("run", "--run", "a", "--only", "03", "-p", "beta=0")[::2] == (0, "")


OTHERWISE = {
    "a plain call": ([], "tags was 'reasoning/answer' and is now 'think/answer'"),
    "other settings": (
        ["--only", "03", "-p", "max_steps=30", "-p", "beta=0"],
        "beta was None and is now 0",
    ),
    "another seed": (
        ["--only", "03", "-p", "max_steps=30", "-p", "seed=5"],
        "seed was 3407 and is now 5",
    ),
    "other data": ([*SAME, "-p", "train_size=9"], "train_size was None and is now 9"),
    "other columns": (
        [*SAME, "-p", 'columns={"question": "q"}'],
        "columns was None and is now {'question': 'q'}",
    ),
    "less": (["--only", "04"], "`--resume` would go on with this call instead"),
    "the same data": ([*SAME[:2], *SAME[4:], "--only", "01"], "`--resume` would go on with"),
}


@pytest.mark.parametrize(("call", "why"), OTHERWISE.values(), ids=OTHERWISE.keys())
def test_a_call_that_gives_up_an_interrupted_training_needs_fresh(cli, executions, call, why):
    run = interrupted(executions, cli, *SAME, max_steps=30)
    before = run.path("asked.json").read_bytes()
    code, _, err = cli("run", "--run", "a", *call)
    assert code == 2 and executions == [] and run.path("asked.json").read_bytes() == before
    assert "interrupted after step 20, and this call would give it up: " in err
    assert why in err and "--run a --resume`" in err and "give --fresh" in err
    assert cli("run", "--run", "a", *call, "--fresh")[0] == 0 and executions
    given_up = "03" in dict(executions)
    assert (arguments.interrupted_training(run) is None) == given_up
