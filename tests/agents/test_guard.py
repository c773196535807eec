"""The guard: what it survives, what it tells the policy, what it logs, and when it gives up."""

import inspect
import threading
from functools import partial

import pytest
import sick_environments as sick
from transformers import TrainerControl

from helpers.agents import Guarded, Guessing, ToolError
from helpers.agents.protocol import schema_of, tools_of
from helpers.agents.trainer import StopIfBroken

BROKEN = sick.made("Broken", reset=sick.raising(OSError("gone")))


def begun(does, **options):
    """Begin an episode of this class, or of one whose tool does this. Return it and its guard."""
    guard = Guarded(does if isinstance(does, type) else sick.doing(does), **options)
    environment = guard()
    environment.reset(seed=1)
    return environment, guard


def impatient(guard: Guarded, function, **arguments) -> str:
    """Return the refusal of a call that does not return. Only this call has a short time limit, so
    that other calls may be slow on a busy machine.
    """
    roomy, guard.seconds = guard.seconds, 0.1
    said = refusal(function, **arguments)
    guard.seconds = roomy
    return said


def refusal(function, **arguments) -> str:
    with pytest.raises(ToolError) as refused:
        function(**arguments)
    return str(refused.value)


# --- What TRL sees --------------------------------------------------------------------------------


def test_tools_are_those_that_trl_lists_and_keep_their_name_signature_and_docstring():
    class Louder(sick.Healthy):
        def say(self, word: str) -> str:  # its docstring is inherited
            return word.upper()

        @staticmethod
        def shout(word: str) -> str:
            """Shout a word.

            Args:
                word: The word.
            """
            return word.upper()

    guard = Guarded(Louder)
    assert guard.__name__ == type(guard()).__name__ == "Louder"  # TRL logs it so
    assert tools_of(Louder) == ["say", "shout"]  # as grpo_trainer.py, 668 to 674, lists them
    for tool in tools_of(Louder):
        bare, guarded = (getattr(one, tool) for one in (Louder(), guard()))
        assert schema_of(guarded) == schema_of(bare) == guard.schemas[tool]
        assert inspect.signature(guarded) == inspect.signature(bare) and guarded.__name__ == tool
    assert type(guard()) is type(guard())  # get_reward is asked only of exactly this class
    environment = guard()
    environment.reset(seed=1)
    assert environment.shout(word="a") == "A"


# --- Results and arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("word", "word"),
        ("", ""),
        (True, "true"),
        ({"a": ["ä", None]}, '{"a": ["ä", null]}'),
        ("half \ud800", "half ?"),
    ],
)
def test_a_result_becomes_a_text_that_can_be_tokenised(result, text, tokenizer):
    environment, guard = begun(lambda *_: result)
    assert environment.say(word="a") == text and not guard.faults
    tokenizer(environment.say(word="a"))


def test_a_text_as_long_as_a_book_is_cut_wherever_it_comes_from():
    book, cut = "x" * 10_000_000, "\n[cut to 200 of 10,000,000 characters]"
    environment, guard = begun(lambda *_: book, result_characters=200)
    assert environment.say(word="a").endswith(cut) and len(environment.say(word="a")) == 200
    assert guard.counts["cut"] == 2 and not guard.faults
    saying = sick.made("Saying", reset=lambda self, seed, **columns: book)
    assert Guarded(saying, result_characters=200)().reset(seed=1).endswith(cut)
    environment, _ = begun(sick.raising(ToolError("\ud800" * 201)), result_characters=200)
    assert len(refusal(environment.say, word="a")) == 200


def test_a_call_that_is_refused_is_no_fault_and_wrong_arguments_do_not_reach_the_tool():
    environment, guard = begun(sick.raising(AssertionError("must not be called")))
    assert refusal(environment.say) == "say needs word."
    assert refusal(environment.say, word=3) == "say: word must be a valid string, not 3."
    for name in ("loud", "self", "\ud800"):
        assert "; it takes word." in refusal(environment.say, word="a", **{name: True})
    assert not guard.faults
    environment, guard = begun(sick.raising(ToolError("Say please.")))
    assert refusal(environment.say, word="a") == "Say please." and not guard.faults


# --- Raising, hanging, ending ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("\x1b[31m\nstep 9"), SystemExit(0), KeyboardInterrupt()]
)
def test_a_tool_that_raises_costs_one_call_and_is_told_once(error, capsys):
    environment, guard = begun(sick.raising(error))
    for _ in range(2):
        assert refusal(environment.say, word="a").startswith(f"say failed: {type(error).__name__}")
    (told,) = capsys.readouterr().out.splitlines()  # the control characters of the error as escapes
    assert told == guard.faults["say"] and guard.counts["faults"] == 2
    assert told.isprintable(), "what a tool says reaches a terminal"
    assert told.startswith(f"Doing.say(word='a') raised {type(error).__name__}")
    assert environment.get_reward() == 0.0  # the episode goes on
    assert environment.reset(seed=2) == "Say 2." and not guard.counts["dead"]


@pytest.mark.parametrize("does", [sick.sleeping, sick.spinning])
def test_a_tool_that_never_returns_ends_its_episode_and_no_other(does):
    environment, guard = begun(does)
    other = guard()
    other.reset(seed=1)
    thread = environment._session.thread
    said = impatient(guard, environment.say, word="a")
    assert said == "say did not answer in 0.1 seconds. The episode is over."
    assert refusal(environment.say, word="b").startswith("The episode is over: say did not")
    assert environment.get_reward() == 0.0  # hanging a tool must not pay
    assert guard.counts["dead"] == 1 and "did not return within 0.1 s" in guard.faults["say"]
    assert other.get_reward() == 0.0 and environment.reset(seed=2) == "Say 2."
    if does is sick.spinning:  # a loop in Python is ended, and leaves no core busy
        thread.join(timeout=600)
        assert not thread.is_alive()


def test_an_environment_may_say_that_hanging_is_not_the_policys_fault():
    kind = sick.doing(sick.sleeping)
    kind._earned_by_hanging = None
    guard = Guarded(partial(kind))
    environment = guard()
    environment.reset(seed=1)
    impatient(guard, environment.say, word="a")
    assert environment.get_reward() is None


def test_what_comes_late_changes_nothing_of_the_next_episode():
    go_on, went_on = threading.Event(), threading.Event()

    def late(self, word):
        try:
            return go_on.wait(600) and word if word == "late" else word
        finally:  # runs although the thread is told to end
            if word == "late":
                self._said.append(word)
                went_on.set()

    environment, guard = begun(late)
    impatient(guard, environment.say, word="late")
    environment.reset(seed=2)
    go_on.set()
    assert went_on.wait(600) and environment.get_reward() == 0.0
    assert environment.say(word="soon") == "soon"


def test_after_the_last_turn_every_tool_says_so_until_the_next_episode():
    # all in one thread, as a connection to SQLite asks for, and not in ours
    environment, _ = begun(lambda *_: threading.get_ident(), turns=2)
    thread = environment.say(word="a")
    refusal(environment.say)  # a malformed call is a turn as well
    assert "2 calls" in refusal(environment.say, word="c")
    environment.reset(seed=2)
    assert environment.say(word="a") == thread != str(threading.get_ident())


# --- Reset and reward -----------------------------------------------------------------------------


def test_an_episode_that_cannot_begin_is_dead_and_its_reward_is_left_out():
    environment = Guarded(BROKEN)()
    assert "no episode has begun" in refusal(environment.say, word="a")
    assert environment.reset(seed=1) == ""
    assert "reset failed" in refusal(environment.say, word="a") and environment.get_reward() is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_reward_that_is_no_number_is_left_out_and_logged(value):
    environment, guard = begun(sick.made("Rewarding", get_reward=lambda self: value))
    assert environment.get_reward() is None and environment.get_reward() is None
    assert guard.counts["faults"] == guard.counts["dead"] == 1 and "get_reward" in guard.faults


def test_what_a_reward_function_reads_of_an_environment_is_not_hidden_by_the_guard():
    environment = Guarded(sick.made("Counting", _calls="mine", _thread="mine", _inner="mine"))()
    environment.reset(seed=1)
    assert {environment._calls, environment._thread, environment._inner} == {"mine"}


# --- Giving up, and leaving nothing behind --------------------------------------------------------


@pytest.mark.parametrize(
    ("dead", "episodes", "stops"), [(15, 100, False), (16, 1600, False), (17, 1601, True)]
)
def test_once_16_and_more_than_one_in_a_hundred_episodes_died_the_training_ends_with_a_checkpoint(
    dead, episodes, stops
):
    guard = Guarded(BROKEN)
    guard.counts["episodes"] = episodes - dead
    environment, callback, control = guard(), StopIfBroken(guard), TrainerControl()
    for _ in range(dead):
        environment.reset(seed=1)
    callback.on_step_end(None, None, control)
    assert control.should_save == control.should_training_stop == stops
    if not stops:
        callback.on_train_end(None, None, control)
        return
    for end in (lambda: callback.on_train_end(None, None, control), environment.reset):
        # in the callback a RuntimeError, which BrokenEnvironment is, too
        with pytest.raises(RuntimeError, match=r"17\D+1601.*seed=1\D.*OSError: g"):
            end()


def test_limits_that_make_no_sense_are_refused():
    refused = [("seconds", 0), ("seconds", "10"), ("turns", float("nan")), ("turns", 2 * 10**9)]
    for name, value in [*refused, ("turns", True)]:
        said = f"{name}={value!r} must be a number of at least .* and below 1,000,000,000"
        with pytest.raises(ValueError, match=said):
            Guarded(Guessing, **{name: value})
    with pytest.raises(ValueError, match=r"turns=2\.5 must be a whole number"):
        Guarded(Guessing, turns=2.5)


@pytest.mark.parametrize("least", [{"seconds": 0.01}, {"turns": 1}, {"result_characters": 100}])
def test_the_least_limit_is_accepted(least):
    assert Guarded(Guessing, **least)
