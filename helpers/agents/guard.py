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

from __future__ import annotations

import asyncio
import ctypes
import functools
import inspect
import json
import math
import os
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from helpers.agents.protocol import (
    Environment,
    ToolError,
    check_environment,
    schema_of,
    tools_of,
)
from helpers.agents.tool_calls import misfit, shown
from helpers.runs import Run

FAULTS = "environment_faults.jsonl"
_FAULTS_KEPT = 1000  # of each call
_SHOWN = 200  # characters of arguments and messages in the log
_MOST_DEAD = 0.01  # of the episodes
_ENOUGH = 100  # episodes, before a share says anything
_MOST_STUCK = 16  # threads that did not end when asked: each may keep a core busy


class BrokenEnvironment(RuntimeError):
    """Tools that never return, or episodes that cannot begin, too often for a training to go on."""


@dataclass(frozen=True)
class Fault:
    """Something that an environment did wrong: in which call, with which arguments, and what."""

    environment: str
    call: str
    arguments: str
    what: str

    def __str__(self) -> str:
        return f"{self.environment}.{self.call}({self.arguments}) {self.what}"


class Guarded:
    """A factory for `GRPOTrainer(environment_factory=…)` whose episodes survive what an environment
    does wrong.

        environments = Guarded(Guessing, run=run)
        trainer = GRPOTrainer(..., environment_factory=environments)

    Tools keep their names, signatures and docstrings, from which TRL makes what the policy is told.
    Every tool gets

    - a check of its arguments against that schema, which answers with a sentence that a policy can
      learn from;
    - a time limit of `seconds`: afterwards the episode is dead, its tools say so, and it earns 0.0,
      so that hanging a tool does not pay; the next episode gets a new instance;
    - a limit of `turns` calls an episode, after which every tool answers that the episode is over.
      TRL itself goes on until `max_completion_length` is full: give
      `GRPOConfig(max_tool_calling_iterations=turns)`, too;
    - a result of at most `result_characters` characters; what is longer is cut, and says so, as is
      what `reset` returns. What is no text becomes JSON; None of a tool, and what JSON does not
      know, is a fault.

    What goes wrong is counted in `counts`, kept in `faults` and, with a run, in
    `checkpoints/environment_faults.jsonl`. A tool that raises costs one failed call; ToolError is
    no fault but the environment's word to the policy. If `reset` or `get_reward` raises, or
    gives no finite number, the episode is dead and its reward None, which TRL leaves out. Once
    more than 1 % of the episodes (at least 100) died, or 16 threads hang, the next `reset` raises
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
        run: Run | None = None,
    ):
        for name, value, least, kinds in (
            ("seconds", seconds, 0.01, (int, float)),
            ("turns", turns, 1, int),
            ("result_characters", result_characters, 100, int),
        ):
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < 1e9:
                kind = "whole number" if kinds is int else "number"
                raise ValueError(f"{name}={value!r} must be a {kind} of at least {least}.")
        if problems := check_environment(factory):
            raise ValueError(" ".join(problems))
        self.factory, self.run = factory, run
        self.seconds, self.result_characters, self.turns = seconds, result_characters, turns
        instance = factory()
        tools = {name: getattr(instance, name) for name in tools_of(type(instance))}
        self.schemas = {name: schema_of(tool) for name, tool in tools.items()}
        self.kind = _guarded_kind(self, type(instance), tools)
        self.__name__ = self.kind.__name__
        self.counts, self.faults, self.abandoned = Counter(), [], []
        self.fatal: Fault | None = None  # the last that ended an episode

    def __call__(self) -> Environment:
        return self.kind()

    def text_of(self, result: object) -> str:
        """A tool's result, or a reset's, as the policy reads it.

        TypeError for what is no text and cannot be made one.
        """
        if result is None:
            raise TypeError("it returned nothing, which is no text")
        try:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            raise TypeError(f"it returned a {type(result).__name__}, which is no text") from None
        text = _encodable(text)
        limit = self.result_characters
        if len(text) > limit:
            self.counts["cut"] += 1
            said = f"\n[cut to {limit:,} of {len(text):,} characters]"
            text = text[: limit - len(said)] + said
        return text

    def note(self, call: str, arguments: dict, what: str) -> Fault:
        """Keep a fault, and log it: of each call the first are kept, and the first of all is
        printed, too.
        """
        listed = ", ".join(f"{key}={shown(value, _SHOWN)}" for key, value in arguments.items())
        fault = Fault(self.__name__, call, _encodable(listed[:_SHOWN]), _encodable(what))
        self.counts["faults"] += 1
        alike = sum(kept.call == call for kept in self.faults)
        if alike == 0:
            log = f" All such calls: {self.run.show(f'checkpoints/{FAULTS}')}" if self.run else ""
            print(f"{fault}.{log}")
        if alike < _FAULTS_KEPT:
            self.faults.append(fault)
            if self.run:
                rank = {"rank": int(os.environ["RANK"])} if "RANK" in os.environ else {}
                line = {"episode": self.counts["episodes"]} | rank | asdict(fault)
                with self.run.path(f"checkpoints/{FAULTS}").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        return fault

    def give_up_if_broken(self) -> None:
        """BrokenEnvironment once too many episodes died, or too many threads hang."""
        self.abandoned = [worker for worker in self.abandoned if worker.thread.is_alive()]
        dead, episodes, stuck = self.counts["dead"], self.counts["episodes"], len(self.abandoned)
        if stuck >= _MOST_STUCK or (episodes >= _ENOUGH and dead > _MOST_DEAD * episodes):
            raise BrokenEnvironment(
                f"{self.__name__}: {dead} of {episodes} episodes died, and {stuck} calls still "
                f"hang. Last: {self.fatal}. Mend that call, or give it more than {self.seconds:g} "
                "seconds; then run the training again: it goes on from its last checkpoint."
            )


def _encodable(text: str) -> str:
    """The text with half characters spelt out, which no tokenizer and no file takes."""
    return text.encode(errors="backslashreplace").decode()


# --- Calls that may never return ------------------------------------------------------------------


class _OutOfTime(Exception):
    """The call has not returned in time."""


class _Worker:
    """A thread for all calls of one instance, because a connection to SQLite or an event loop
    belongs to the thread that made it.
    """

    def __init__(self):
        self.jobs = SimpleQueue()
        # A daemon: the program may end while a call still hangs. It must not hold the worker, or
        # nobody would ever release it.
        self.thread = Thread(target=_work, args=(self.jobs,), daemon=True, name="environment")
        self.thread.start()

    def call(self, seconds: float, function: Callable, finish: Callable) -> tuple[object, object]:
        """What finish(function()) returns, awaited if it must be, and what it raised: one of the
        two is None.

        What it raised is _OutOfTime if both together take longer. `finish` runs in the thread, too:
        turning 10 GB into a text takes as long as making them.
        """
        answer = SimpleQueue()
        self.jobs.put((function, finish, answer))
        try:
            return answer.get(timeout=seconds)
        except Empty:
            return None, _OutOfTime()

    def release(self) -> None:
        """Let the thread end after what it is doing."""
        self.jobs.put(None)

    def abandon(self) -> None:
        """Ask a thread that hangs to end; see the head of this file for when it does not."""
        self.release()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self.thread.ident), ctypes.py_object(SystemExit)
        )


def _work(jobs: SimpleQueue) -> None:
    with asyncio.Runner() as runner:  # makes its loop when the first coroutine comes
        while (job := jobs.get()) is not None:
            job[2].put(_outcome(runner, job[0], job[1]))
            del job  # it holds the instance


def _outcome(runner: asyncio.Runner, function: Callable, finish: Callable) -> tuple[object, object]:
    try:
        value = function()
        return finish(runner.run(_awaited(value)) if inspect.isawaitable(value) else value), None
    # SystemExit too: a tool must not end the training, nor its own thread
    except BaseException as error:
        return None, error


async def _awaited(value):
    return await value


# --- Episodes -------------------------------------------------------------------------------------


class _Play:
    """The episodes of one instance, one after another."""

    def __init__(self, guard: Guarded):
        self.guard, self.worker, self.inner = guard, None, None
        self.dead, self.earned, self.calls = "no episode has begun", None, 0

    def reset(self, columns: dict) -> str | None:
        """Begin an episode; one that cannot begin is dead: it has no text of its own, and every
        call says so.
        """
        guard = self.guard
        guard.give_up_if_broken()
        guard.counts["episodes"] += 1
        self.dead, self.calls = "", 0
        if self.worker is None:  # this is the first episode, or the one before died
            self.worker = _Worker()
            weakref.finalize(self, self.worker.release)
            self.inner = self.needed("__init__", {}, guard.factory, lambda instance: instance)
        if self.dead:
            return None
        return self.needed(
            "reset",
            columns,
            lambda: self.inner.reset(**columns),
            lambda text: None if text is None else guard.text_of(text),
        )

    def call(self, name: str, arguments: dict) -> str:
        """What a tool answers the policy; ToolError for a call that failed or was refused."""
        guard = self.guard
        guard.counts["calls"] += 1
        if self.dead:
            raise ToolError(f"The episode is over: {self.dead}.")
        if self.calls >= guard.turns:
            guard.counts["too many"] += 1
            raise ToolError(f"The episode is over: {guard.turns} calls were allowed.")
        self.calls += 1
        if wrong := misfit(name, guard.schemas[name], arguments):
            guard.counts["refused"] += 1
            raise ToolError(_encodable(wrong))
        text, error = self.made(
            name, arguments, lambda: getattr(self.inner, name)(**arguments), guard.text_of
        )
        if self.dead:
            raise ToolError(f"{self.dead}. The episode is over.")
        if isinstance(error, ToolError):
            guard.counts["refused"] += 1
            raise ToolError(guard.text_of(str(error)))
        if error is not None:
            guard.note(name, arguments, f"raised {_said(error)}")
            raise ToolError(guard.text_of(f"{name} failed: {_said(error)}"))
        return text

    def reward(self) -> float | None:
        """What the environment gives; for an episode that died, 0.0 if a call hung, else None."""
        if self.dead:
            return self.earned
        score = self.needed("get_reward", {}, lambda: self.inner.get_reward(), _finite)
        return self.earned if self.dead else score

    def needed(self, call: str, arguments: dict, function: Callable, finish: Callable) -> object:
        """The outcome of what an episode cannot do without; if there is none, None, and the
        episode is dead.
        """
        value, error = self.made(call, arguments, function, finish)
        if error is not None and not self.dead:
            self.guard.fatal = self.guard.note(call, arguments, f"raised {_said(error)}")
            self.worker.release()
            self.die(f"{call} failed", earns=None)
        return value

    def made(
        self, call: str, arguments: dict, function: Callable, finish: Callable
    ) -> tuple[object, object]:
        """A call's outcome, and what it raised; the episode of one that hangs is dead."""
        value, error = self.worker.call(self.guard.seconds, function, finish)
        if isinstance(error, _OutOfTime):
            seconds = f"{self.guard.seconds:g} seconds"
            self.guard.fatal = self.guard.note(call, arguments, f"did not return within {seconds}")
            self.worker.abandon()
            self.guard.abandoned.append(self.worker)
            self.die(f"{call} did not answer in {seconds}", earns=0.0)
        return value, error

    def die(self, why: str, earns: float | None) -> None:
        """What still runs in the old thread may change the old instance at any time: the next
        episode gets a new one.
        """
        self.guard.counts["dead"] += 1
        self.dead, self.earned, self.worker = why, earns, None


def _finite(score: object) -> float:
    number = float(score)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no finite number")
    return number


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error!s:.{_SHOWN}}"


class _Episode:
    """An instance as TRL sees it.

    TRL looks for tools at the class, so `_guarded_kind` makes one that has them as functions. All
    that the guard keeps is in `_play`, so that it hides nothing of the environment's.
    """

    _guard: Guarded

    def __init__(self):
        self._play = _Play(self._guard)

    def __getattr__(self, name: str):
        """What the environment has beside its tools, for reward functions that take
        `environments`.
        """
        return getattr(object.__getattribute__(self, "_play").inner, name)

    def reset(self, /, **columns) -> str | None:
        return self._play.reset(columns)


def _guarded_kind(guard: Guarded, kind: type, tools: dict[str, Callable]) -> type:
    """A class with the environment's name and tools, each of which asks the guard first."""
    members = {"_guard": guard, "__doc__": kind.__doc__}
    members |= {name: _guarded_tool(name, tool) for name, tool in tools.items()}
    if inspect.isfunction(getattr(kind, "get_reward", None)):
        # only then does TRL add a reward of the environment's own
        members["get_reward"] = lambda self: self._play.reward()
    return type(kind.__name__, (_Episode,), members)


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
