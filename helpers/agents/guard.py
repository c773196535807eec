"""The guard around an environment: whatever a policy calls cannot end, hang or flood a training.

TRL 1.15 runs tools one after another without a time limit (grpo_trainer.py 1914 to 1929), catches
what tools raise but not what `reset` and `get_reward` do, passes any result but a list on as
`str(result)` (1957), and drops a turn without a word if its result does not fit into
`max_completion_length` (1993 to 2003).

Python cannot kill a thread. A call that has not returned in time is left behind in its thread: its
late result goes nowhere, and `SystemExit` is raised in it, which ends a loop written in Python at
its next line and does nothing to one that sleeps or runs in C. A call in C that keeps Python's lock
(a regular expression that backtracks) stops the whole process, this clock too: such a tool needs a
process of its own.
"""

import ctypes
import functools
import inspect
import json
import math
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from helpers.agents.protocol import (
    Environment,
    ToolError,
    arguments_of,
    check_environment,
    misfit,
    schema_of,
    short_repr,
    tools_of,
)
from helpers.rewards.common import printable
from helpers.tags import on_one_line

_LEAST = {"seconds": 0.01, "turns": 1, "result_characters": 100}
_SHOWN = 200  # characters of arguments and messages in a fault
_MOST_DEAD = 0.01  # of the episodes,
_MANY = 16  # and so many at least; each may have left a thread behind


class BrokenEnvironment(RuntimeError):
    """Tools that never return, or episodes that cannot begin, too often for a training to go on."""


class Guarded:
    """A factory for `GRPOTrainer(environment_factory=…)` whose episodes survive what an environment
    does wrong.

        environments = Guarded(Guessing)
        trainer = GRPOTrainer(..., environment_factory=environments)

    Tools keep their names, signatures and docstrings, from which TRL makes what the policy is told.
    Every tool gets

    - a check of its arguments, which answers with a sentence that a policy can learn from;
    - a time limit of `seconds`: afterwards the episode is dead, its tools say so, and it earns 0.0,
      so that hanging a tool does not pay, or what the class has as `_earned_by_hanging` (None where
      a server may hang through no fault of the policy); the next episode gets a new instance;
    - a limit of `turns` calls per episode, after which every tool answers that the episode is over.
      TRL itself goes on until `max_completion_length` is full: give
      `GRPOConfig(max_tool_calling_iterations=turns)`, too;
    - a result of at most `result_characters` characters; what is longer is cut, and says so, as is
      what `reset` returns. What is no text becomes JSON.

    `counts` has the episodes, those that died, the faults, and the texts that were cut. `faults`
    has the first fault of each call, which is printed, too. A tool that raises costs one failed
    call; ToolError is no fault but the environment's word to the policy. If `reset` or `get_reward`
    raises, or gives no finite number, the episode is dead and its reward None, which TRL leaves
    out. Once more than 1 % of the episodes (at least 16) died, the next `reset` raises
    BrokenEnvironment: better stop than train on nothing. `training.reward_guard.GuardedEpisodes`,
    among the callbacks, saves a checkpoint before.

    ValueError, in the words of `check_environment`, if TRL could not use the environment at all.
    """

    def __init__(
        self,
        factory: Callable[[], Environment],
        *,
        seconds: float = 10.0,
        result_characters: int = 2000,
        turns: int = 16,
    ):
        limits = {"seconds": seconds, "turns": turns, "result_characters": result_characters}
        for name, value in limits.items():
            least = _LEAST[name]
            if not isinstance(value, (int, float)) or not least <= value < 1e9:
                raise ValueError(f"{name}={value!r} must be a number of at least {least}.")
        problems = check_environment(factory)
        if problems:
            raise ValueError(" ".join(problems))

        self.factory = factory
        self.seconds = seconds
        self.result_characters = int(result_characters)
        self.turns = turns
        self.counts = Counter()
        self.faults: dict[str, str] = {}  # by call, the first of each
        self.fatal = ""  # the last fault that ended an episode

        instance = factory()
        kind = type(instance)
        tools = {name: getattr(instance, name) for name in tools_of(kind)}
        self.schemas = {name: schema_of(tool) for name, tool in tools.items()}
        self.arguments = {name: arguments_of(tool) for name, tool in tools.items()}
        self.__name__ = kind.__name__
        # TRL looks for tools at the class: this one has them as functions that ask the guard first
        members = {name: _guarded_tool(name, tool) for name, tool in tools.items()}
        members |= {"_guard": self, "__doc__": kind.__doc__}
        self.kind = type(self.__name__, (_Episode,), members)

    def __call__(self) -> Environment:
        return self.kind()

    def text_of(self, result: object) -> str:
        """Return a tool's result, or a reset's, as the policy reads it."""
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        text = printable(text)
        if len(text) > self.result_characters:
            self.counts["cut"] += 1
            note = f"\n[cut to {self.result_characters:,} of {len(text):,} characters]"
            text = text[: self.result_characters - len(note)] + note
        return text

    @property
    def broken(self) -> str:
        """Return why the training should end, once too many episodes died; "" before."""
        dead = self.counts["dead"]
        episodes = self.counts["episodes"]
        if dead < _MANY or dead <= _MOST_DEAD * episodes:
            return ""
        return (
            f"{self.__name__}: {dead} of {episodes} episodes died. Last: {self.fatal} Correct "
            f"that call, or give it more than {self.seconds:g} seconds; then run the training "
            "again: it goes on from its last checkpoint."
        )


# --- Episodes -------------------------------------------------------------------------------------


class _Episode:
    """An instance as TRL sees it.

    All that the guard keeps is in `_play`, so that it hides nothing of the environment's.
    """

    _guard: Guarded

    def __init__(self):
        self._play = _Play(self._guard)

    def __getattr__(self, name: str):
        """Return what the environment has beside its tools, for reward functions that take
        `environments`.
        """
        return getattr(object.__getattribute__(self, "_play").inner, name)

    def reset(self, /, **columns) -> str:
        return self._play.reset(columns)

    def get_reward(self) -> float | None:
        return self._play.reward()


def _guarded_tool(name: str, tool: Callable) -> Callable:
    @functools.wraps(getattr(tool, "__func__", tool))
    def call(self, /, **arguments) -> str:
        return self._play.call(name, arguments)

    call.__doc__ = inspect.getdoc(tool)  # it may be inherited
    signature = inspect.signature(tool)
    # also of a static tool, which has no self
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    return call


class _Play:
    """The episodes of one instance, one after another, with all its calls in one thread: a
    connection to SQLite belongs to the thread that made it.
    """

    def __init__(self, guard: Guarded):
        self.guard = guard
        self.inner: Environment | None = None
        self.jobs: SimpleQueue | None = None
        self.thread: Thread | None = None
        self.over = "no episode has begun"  # why tools refuse; "" while an episode goes on
        self.earned: float | None = None  # by an episode that died
        self.calls = 0

    def reset(self, columns: dict) -> str:
        """Begin an episode and return its text; "" for one that cannot begin, whose every call says
        so.
        """
        guard = self.guard
        if guard.broken:
            raise BrokenEnvironment(guard.broken)
        guard.counts["episodes"] += 1
        self.over = ""
        self.calls = 0
        try:
            if self.thread is None:  # this is the first episode, or the one before died
                self.jobs = SimpleQueue()
                # a daemon: the program may end while a call still hangs
                self.thread = Thread(target=_work, args=(self.jobs,), daemon=True)
                self.thread.start()
                weakref.finalize(self, self.jobs.put, None)
                self.inner = self.ask("__init__", {}, guard.factory, vital=True)
            return self.ask(
                "reset",
                columns,
                lambda: guard.text_of(self.inner.reset(**columns) or ""),
                vital=True,
            )
        except ToolError:
            return ""

    def call(self, name: str, arguments: dict) -> str:
        """Return what a tool answers the policy; ToolError if the call failed or was refused."""
        guard = self.guard
        if self.over:
            raise ToolError(f"The episode is over: {self.over}.")
        if self.calls >= guard.turns:
            raise ToolError(f"The episode is over: {guard.turns} calls were allowed.")
        self.calls += 1
        wrong = misfit(name, guard.schemas[name], guard.arguments[name], arguments)
        if wrong:
            raise ToolError(printable(wrong))
        return self.ask(
            name, arguments, lambda: guard.text_of(getattr(self.inner, name)(**arguments))
        )

    def reward(self) -> float | None:
        """Return what the environment gives, or what an episode earns that died."""

        def finite_reward() -> float:
            reward = float(self.inner.get_reward())
            if not math.isfinite(reward):
                raise ValueError(f"{reward} is no finite number")
            return reward

        if not self.over:
            with suppress(ToolError):
                return self.ask("get_reward", {}, finite_reward, vital=True)
        return self.earned

    def ask(self, call: str, arguments: dict, function: Callable, vital: bool = False) -> object:
        """Return what function() returns in the thread of the instance.

        ToolError, in words for the policy, if it raises or does not return in time. Afterwards the
        episode is dead, unless what raised was a tool, which is not vital.
        """
        guard = self.guard
        outcome = Future()
        self.jobs.put((function, outcome))
        is_late = False
        try:
            error = outcome.exception(timeout=guard.seconds)
        except TimeoutError as late:
            error = late
            is_late = True
        if error is None:
            return outcome.result()
        # the environment refuses what the policy did
        if isinstance(error, ToolError) and not vital:
            raise ToolError(guard.text_of(str(error)))

        # the environment failed: the first fault of each call is kept and printed
        why = f"{type(error).__name__}: {error!s:.{_SHOWN}}"
        what = f"did not return within {guard.seconds:g} seconds" if is_late else f"raised {why}"
        listed = ", ".join(f"{name}={short_repr(value)}" for name, value in arguments.items())
        fault = on_one_line(f"{guard.__name__}.{call}({listed:.{_SHOWN}}) {what.rstrip('.')}.")
        guard.counts["faults"] += 1
        if call not in guard.faults:
            print(fault)
        guard.faults.setdefault(call, fault)
        if not (is_late or vital):
            raise ToolError(guard.text_of(f"{call} failed: {why}"))

        # and with it the episode. The next one gets a new instance, because what still runs in the
        # old thread may change the old one at any time.
        guard.counts["dead"] += 1
        guard.fatal = fault
        self.over = f"{call} failed"
        self.earned = None
        if is_late:
            self.over = f"{call} did not answer in {guard.seconds:g} seconds"
            self.earned = getattr(guard.factory, "_earned_by_hanging", 0.0)
            # ask the thread to end; see the head of this file for when it does not
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread.ident), ctypes.py_object(SystemExit)
            )
        self.jobs.put(None)
        self.thread = None
        raise ToolError(f"{self.over}. The episode is over.")


def _work(jobs: SimpleQueue) -> None:
    """Do the work of an instance's thread: each job is a function and the Future of its outcome;
    None ends it.
    """
    while job := jobs.get():
        function, outcome = job
        try:
            outcome.set_result(function())
        # SystemExit too: a tool must not end the training, nor its own thread
        except BaseException as error:
            outcome.set_exception(error)
        # they hold the episode, and a thread that waits would keep it for ever
        del job, function, outcome
