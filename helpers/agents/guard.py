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
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from helpers.agents.protocol import (
    Environment,
    ToolError,
    argument_check,
    check_environment,
    schema_of,
    short_repr,
    tools_of,
)
from helpers.tags import on_one_line

_LEAST = {"seconds": 0.01, "turns": 1, "result_characters": 100}
_SHOWN = 200  # characters of arguments and messages in a fault
_MOST_DEAD = 0.01  # of the episodes,
_MANY_DEAD = 16  # and so many at least; each may have left a thread behind


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
    BrokenEnvironment: better stop than train on nothing. `trainer.StopIfBroken`, among the
    callbacks, saves a checkpoint before.

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

        instance = factory()
        kind = type(instance)
        tools = {name: getattr(instance, name) for name in tools_of(kind)}
        self.factory = factory
        self.__name__ = kind.__name__
        self.schemas = {name: schema_of(tool) for name, tool in tools.items()}
        self.argument_checks = {name: argument_check(tool) for name, tool in tools.items()}
        self.seconds = seconds
        self.result_characters = int(result_characters)
        self.turns = turns
        self.counts = Counter()
        self.faults: dict[str, str] = {}  # by call, the first of each
        self.fatal = ""  # the last fault that ended an episode

        # TRL looks for tools at the class: this one has them as functions that ask the guard first
        members = {name: _guarded_tool(name, tool) for name, tool in tools.items()}
        members |= {"_guard": self, "__doc__": kind.__doc__}
        self.kind = type(self.__name__, (_GuardedEnvironment,), members)

    def __call__(self) -> Environment:
        return self.kind()

    def text_of(self, result: object) -> str:
        """Return a tool's result, or a reset's, as the policy reads it."""
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        text = text.encode(errors="replace").decode()  # no tokenizer takes a lone surrogate
        if len(text) > self.result_characters:
            self.counts["cut"] += 1
            note = f"\n[cut to {self.result_characters:,} of {len(text):,} characters]"
            text = text[: self.result_characters - len(note)] + note
        return text

    def note_fault(self, call: str, arguments: dict, problem: str) -> str:
        """Count a fault and return it as a sentence; the first one of each call is kept and
        printed.
        """
        listed = ", ".join(f"{name}={short_repr(value)}" for name, value in arguments.items())
        fault = on_one_line(f"{self.__name__}.{call}({listed:.{_SHOWN}}) {problem.rstrip('.')}.")
        self.counts["faults"] += 1
        if call not in self.faults:
            self.faults[call] = fault
            print(fault)
        return fault

    @property
    def broken(self) -> str:
        """Return why the training should end, once too many episodes died; "" before."""
        dead = self.counts["dead"]
        episodes = self.counts["episodes"]
        if dead < _MANY_DEAD or dead <= _MOST_DEAD * episodes:
            return ""
        return (
            f"{self.__name__}: {dead} of {episodes} episodes died. Last: {self.fatal} Correct "
            f"that call, or give it more than {self.seconds:g} seconds; then run the training "
            "again: it goes on from its last checkpoint."
        )


# --- Episodes -------------------------------------------------------------------------------------


class _GuardedEnvironment:
    """An instance as TRL sees it.

    All that the guard keeps is in `_session`, so that it hides nothing of the environment's.
    """

    _guard: Guarded

    def __init__(self):
        self._session = _Session(self._guard)

    def __getattr__(self, name: str):
        """Return what the environment has beside its tools, for reward functions that take
        `environments`.
        """
        return getattr(object.__getattribute__(self, "_session").instance, name)

    def reset(self, /, **columns) -> str:
        return self._session.reset(columns)

    def get_reward(self) -> float | None:
        return self._session.reward()


def _guarded_tool(name: str, tool: Callable) -> Callable:
    @functools.wraps(getattr(tool, "__func__", tool))
    def call(self, /, **arguments) -> str:
        return self._session.call(name, arguments)

    call.__doc__ = inspect.getdoc(tool)  # it may be inherited
    signature = inspect.signature(tool)
    # also of a static tool, which has no self
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    return call


class _Session:
    """The episodes of one instance, one after another, with all its calls in one thread: a
    connection to SQLite belongs to the thread that made it.
    """

    def __init__(self, guard: Guarded):
        self.guard = guard
        self.instance: Environment | None = None
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
                self.thread = Thread(target=_run_jobs, args=(self.jobs,), daemon=True)
                self.thread.start()
                weakref.finalize(self, self.jobs.put, None)
                self.instance = self.run("__init__", {}, guard.factory)
            return self.run(
                "reset", columns, lambda: guard.text_of(self.instance.reset(**columns) or "")
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
        problem = guard.argument_checks[name](arguments)
        if problem:
            raise ToolError(guard.text_of(problem))
        return self.run(
            name, arguments, lambda: guard.text_of(getattr(self.instance, name)(**arguments))
        )

    def reward(self) -> float | None:
        """Return what the environment gives, or what an episode earns that died."""

        def finite_reward() -> float:
            reward = float(self.instance.get_reward())
            if not math.isfinite(reward):
                raise ValueError(f"{reward} is no finite number")
            return reward

        if not self.over:
            with suppress(ToolError):
                return self.run("get_reward", {}, finite_reward)
        return self.earned

    def run(self, call: str, arguments: dict, function: Callable) -> object:
        """Return what function() returns in the thread of the instance.

        ToolError, in words for the policy, if it raises or does not return in time. Afterwards the
        episode is dead, unless what raised was a tool. call, arguments: what it is called in a
        fault.
        """
        guard = self.guard
        outcome = Future()
        self.jobs.put((function, outcome))

        # too late: ask the thread to end; see the head of this file for when it does not
        if not wait([outcome], timeout=guard.seconds).done:
            fault = guard.note_fault(
                call, arguments, f"did not return within {guard.seconds:g} seconds"
            )
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread.ident), ctypes.py_object(SystemExit)
            )
            earned = getattr(guard.factory, "_earned_by_hanging", 0.0)
            raise self.die(fault, f"{call} did not answer in {guard.seconds:g} seconds", earned)

        error = outcome.exception()
        if error is None:
            return outcome.result()

        # the environment refuses what the policy did
        is_tool = call in guard.schemas
        if is_tool and isinstance(error, ToolError):
            raise ToolError(guard.text_of(str(error)))

        # the environment failed
        said = f"{type(error).__name__}: {error!s:.{_SHOWN}}"
        fault = guard.note_fault(call, arguments, f"raised {said}")
        if is_tool:
            raise ToolError(guard.text_of(f"{call} failed: {said}"))
        raise self.die(fault, f"{call} failed", None)

    def die(self, fault: str, over: str, earned: float | None) -> ToolError:
        """End the episode, and return the error for the policy. The next one gets a new instance,
        because what still runs in the old thread may change the old one at any time.
        """
        self.guard.counts["dead"] += 1
        self.guard.fatal = fault
        self.over = over
        self.earned = earned
        self.jobs.put(None)
        self.thread = None
        return ToolError(f"{over}. The episode is over.")


def _run_jobs(jobs: SimpleQueue) -> None:
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
