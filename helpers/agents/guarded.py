"""Environments that cannot end, hang or flood a training.

TRL 1.15 runs tools one after another without a time-out (grpo_trainer.py 1914 to 1929), catches
what tools raise but not what `reset` and `get_reward` do, passes any result but a list on as
`str(result)` (1957), and drops a turn without a word where its result does not fit into
`max_completion_length` (1993 to 2003).
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from helpers.agents.protocol import Environment, ToolError, examined, schema_of, tools_of
from helpers.agents.schemas import misfit
from helpers.agents.threads import OutOfTime, Worker
from helpers.runs import Run

FAULTS = "environment_faults.jsonl"
_FAULTS_KEPT = 1000
_SHOWN = 200  # characters of arguments and messages in the log
_MOST_DEAD = 0.01  # of the episodes
_ENOUGH = 100  # episodes, before a share says anything
_MOST_STUCK = 16  # threads that did not end when asked: each may keep a core busy


class BrokenEnvironment(RuntimeError):
    """Tools that never return, or episodes that cannot begin, too often for a training to go on."""


class _NoText(TypeError):
    """A result that is no text, and cannot be made one."""


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
    - a time-out of `seconds`: afterwards the episode is dead, its tools say so, and it earns 0.0,
      so that hanging a tool does not pay; the next episode gets a new instance (threads cannot be
      killed: see `worker`);
    - a limit of `turns` calls an episode, after which every tool answers that the episode is over.
      TRL itself goes on until `max_completion_length` is full: give
      `GRPOConfig(max_tool_calling_iterations=turns)`, too;
    - a result of at most `result_characters` characters, cut where it is longer, and said so in it;
      so is what `reset` returns. What is no text becomes JSON; None of a tool, and what JSON does
      not know, is a fault.

    What goes wrong is counted in `counts`, kept in `faults` and, with a run, in
    `checkpoints/environment_faults.jsonl`. A tool that raises costs one failed call; ToolError is
    no fault but the environment's word to the policy. Where `reset` or `get_reward` raises, or
    gives no finite number, the episode is dead and its reward None, which TRL leaves out. Where
    more than 1 % of the episodes (at least 100) died, or 16 threads hang, the next `reset` raises
    BrokenEnvironment: better stop than train on nothing. `training.guard.GuardedEpisodes`, among
    the callbacks, saves a checkpoint before.

    ValueError, in the words of `check_environment`, where TRL could not use the environment at all.
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
        instance, problems = examined(factory, seconds=seconds)
        if problems:
            raise ValueError(" ".join(problems))
        self.factory, self.run = factory, run
        self.seconds, self.result_characters, self.turns = seconds, result_characters, turns
        self.schemas = {
            name: schema_of(getattr(instance, name)) for name in tools_of(type(instance))
        }
        self.kind = _guarded_kind(self, instance)
        self.__name__ = self.kind.__name__
        self.counts, self.faults, self.abandoned = Counter(), [], []
        self.fatal: Fault | None = None  # the last that ended an episode

    def __call__(self) -> Environment:
        return self.kind()

    @property
    def stuck(self) -> int:
        """How many threads still run whose call was given up."""
        self.abandoned = [worker for worker in self.abandoned if worker.thread.is_alive()]
        return len(self.abandoned)

    def text_of(self, result: object) -> str:
        """A tool's result, or a reset's, as the policy reads it.

        A TypeError for what is no text and cannot be made one.
        """
        text = _encodable(result if isinstance(result, str) else _json(result))
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
        fault = Fault(self.__name__, call, _encodable(_short(arguments)), _encodable(what))
        self.counts["faults"] += 1
        alike = sum(kept.call == call for kept in self.faults)
        if not alike:
            log = f" All such calls: {self.run.show(f'checkpoints/{FAULTS}')}" if self.run else ""
            print(f"{fault}.{log}")
        if alike >= _FAULTS_KEPT:
            return fault
        self.faults.append(fault)
        if self.run:
            rank = {"rank": int(os.environ["RANK"])} if os.environ.get("RANK", "").isdigit() else {}
            with self.run.path(f"checkpoints/{FAULTS}").open("a", encoding="utf-8") as log:
                log.write(
                    json.dumps({"episode": self.counts["episodes"]} | rank | asdict(fault)) + "\n"
                )
        return fault

    def give_up_if_broken(self) -> None:
        """BrokenEnvironment where too many episodes died, or too many threads hang."""
        dead, episodes, stuck = self.counts["dead"], self.counts["episodes"], self.stuck
        if stuck >= _MOST_STUCK or (episodes >= _ENOUGH and dead > _MOST_DEAD * episodes):
            raise BrokenEnvironment(
                f"{self.__name__}: {dead} of {episodes} episodes died, and {stuck} calls still "
                f"hang. Last: {self.fatal}. "
                f"Mend that call, or give it more than {self.seconds:g} seconds; then run the "
                "training again: it goes on from "
                "its last checkpoint."
            )


def _short(value: object) -> str:
    text = (
        ", ".join(f"{key}={part!r}" for key, part in value.items())
        if isinstance(value, dict)
        else str(value)
    )
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _encodable(text: str) -> str:
    """The text with half characters spelt out, which no tokenizer and no file takes."""
    return text.encode(errors="backslashreplace").decode()


def _json(result: object) -> str:
    if result is None:
        raise _NoText("returned nothing, which is no text")
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise _NoText(f"returned a {type(result).__name__}, which is no text") from None


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
        if self.worker is None and not self.begin():
            return None
        return self.run("reset", columns, lambda: self.inner.reset(**columns), self.observation)

    def observation(self, text: object) -> str | None:
        return None if text is None else self.guard.text_of(text)

    def begin(self) -> bool:
        try:
            self.worker = Worker()
        except RuntimeError as error:
            raise BrokenEnvironment(
                f"{self.guard.__name__}: no thread can be started for another episode ({error}). "
                "Play fewer at a time, or "
                "raise the limit on processes (`ulimit -u`, a container's `--pids-limit`)."
            ) from None
        weakref.finalize(self, self.worker.release)
        self.inner = self.run("__init__", {}, self.guard.factory, lambda instance: instance)
        return self.inner is not None

    def run(self, call: str, arguments: dict, function: Callable, finish: Callable) -> object:
        """The outcome of what an episode cannot do without; None, and the episode is dead, where
        there is none.
        """
        try:
            value, error = self.worker.call(self.guard.seconds, function, finish)
        except OutOfTime:
            self.hang(call, arguments)
            return None
        if error is not None:
            self.guard.fatal = self.guard.note(call, arguments, f"raised {_said(error)}")
            self.worker.release()
            self.die(f"{call} failed", earns=None)
        return value

    def hang(self, call: str, arguments: dict) -> None:
        self.guard.fatal = self.guard.note(
            call, arguments, f"did not return within {self.guard.seconds:g} seconds"
        )
        self.worker.abandon()
        self.guard.abandoned.append(self.worker)
        self.die(f"{call} did not answer in {self.guard.seconds:g} seconds")

    def die(self, why: str, earns: float | None = 0.0) -> None:
        """What still runs in the old thread may change the old instance at any time: the next
        episode gets a new one.
        """
        self.guard.counts["dead"] += 1
        self.dead, self.earned, self.worker = why, earns, None

    def call(self, name: str, values: tuple, arguments: dict) -> str:
        guard, schema = self.guard, self.guard.schemas[name]
        guard.counts["calls"] += 1
        arguments = dict(zip(schema["properties"], values, strict=False)) | arguments
        if self.dead:
            raise ToolError(f"The episode is over: {self.dead}.")
        if self.calls >= guard.turns:
            guard.counts["too many"] += 1
            raise ToolError(f"The episode is over: {guard.turns} calls were allowed.")
        self.calls += 1
        if wrong := misfit(name, schema, arguments):
            guard.counts["refused"] += 1
            raise ToolError(_encodable(wrong))
        try:
            text, error = self.worker.call(
                guard.seconds, lambda: getattr(self.inner, name)(**arguments), guard.text_of
            )
        except OutOfTime:
            self.hang(name, arguments)
            raise ToolError(f"{self.dead}. The episode is over.") from None
        if isinstance(error, ToolError):
            guard.counts["refused"] += 1
            raise ToolError(guard.text_of(str(error)))
        if error is not None:
            guard.note(
                name,
                arguments,
                str(error) if isinstance(error, _NoText) else f"raised {_said(error)}",
            )
            raise ToolError(guard.text_of(f"{name} failed: {_said(error)}"))
        return text

    def reward(self) -> float | None:
        """What the environment gives; for an episode that died, 0.0 where a call hung,
        else None.
        """
        if self.dead:
            return self.earned
        score = self.run("get_reward", {}, lambda: self.inner.get_reward(), _finite)
        return self.earned if self.dead else score


def _finite(score: object) -> float:
    number = math.nan if isinstance(score, (str, bytes)) else float(score)
    if not math.isfinite(number):
        raise ValueError(f"{score!r:.100} is no finite number")
    return number


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error!s:.{_SHOWN}}"
    except Exception:  # an exception whose own __str__ raises
        return type(error).__name__


class _Episode:
    """An instance as TRL sees it; `_guarded_kind` adds the tools.

    TRL looks at the class, so they must be functions of it.
    """

    _guard: Guarded

    def __init__(self):
        self._play = _Play(self._guard)

    def __getattr__(self, name: str):
        """What the environment has beside its tools, for reward functions that take
        `environments`.
        """
        inner = self._play.inner if "_play" in self.__dict__ else None
        if inner is None:
            raise AttributeError(f"{type(self).__name__} has no {name!r} before its first episode")
        return getattr(inner, name)

    def reset(self, /, **columns) -> str | None:
        return self._play.reset(columns)


def _guarded_kind(guard: Guarded, instance: Environment) -> type:
    """A class with the environment's name and tools, each of which asks the guard first."""
    members = {"_guard": guard, "__doc__": type(instance).__doc__} | {
        name: _guarded_tool(name, getattr(instance, name)) for name in guard.schemas
    }
    if inspect.isfunction(getattr(type(instance), "get_reward", None)):
        # only then does TRL add a reward of the environment's own
        members["get_reward"] = lambda self: self._play.reward()
    return type(type(instance).__name__, (_Episode,), members)


def _guarded_tool(name: str, tool: Callable) -> Callable:
    @functools.wraps(getattr(tool, "__func__", tool))
    def call(self, *values, **arguments) -> str:
        return self._play.call(name, values, arguments)

    call.__doc__ = inspect.getdoc(tool)  # it may be inherited
    signature, receiver = (
        inspect.signature(tool),
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
    )
    # a static tool has no self
    call.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    return call
