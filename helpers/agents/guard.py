"""The guard around an environment: no call of a policy can end, hang or flood a training run.

    Guarded              the factory that is given to TRL; it has the limits, counts and faults
    _GuardedEnvironment  what TRL plays with: an instance that hands `reset`, `get_reward` and tools
                         on to its session. (The factory makes a subclass with the user's tools.)
    _Session             the episodes of one such instance: it checks a call, waits for its result
                         within the time limit, and knows why an episode is over
    _run_jobs            the thread of a session, in which the user's environment runs

Without a guard, TRL 1.15 (`_tool_call_loop` in grpo_trainer.py) runs tools one after another, with
no time limit. It catches what tools raise, but not what `reset` and `get_reward` raise. It passes
any result except a list on as `str(result)`, however long. If a result does not fit into
`max_completion_length`, it drops the turn silently. Some calls that a policy can write end it, so
`Guarded` also makes sure that calls are read safely (`protocol.read_calls_safely`).

Python cannot kill a thread. A call that does not return in time is left behind in its thread, and
its late result is ignored. SystemExit is raised in that thread: this ends a loop written in Python
at its next line, but not a call that sleeps or runs in C. A call in C that keeps Python's lock,
such as a regular expression that backtracks, stops the whole process, including the clock of the
time limit. Such a tool needs a process of its own.
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
    read_calls_safely,
    schema_of,
    short_repr,
    tools_of,
)
from helpers.printing import on_one_line

_SHOWN = 200  # characters of arguments and messages in a fault
_LIMITS_BELOW = 10**9  # for each limit; Python cannot wait for more than 9e9 seconds
# a training run ends if more than this share of its episodes died, and at least this many; each may
# have left a thread behind
_MOST_DEAD = 0.01
_MANY_DEAD = 16


class BrokenEnvironment(RuntimeError):
    """Raised after too many episodes died: a tool hung, or `reset` or `get_reward` failed."""


class Guarded:
    """A factory for `GRPOTrainer(environment_factory=…)` whose episodes survive the failures of an
    environment.

        environments = Guarded(Guessing)
        trainer = GRPOTrainer(..., environment_factory=environments)

    Tools keep their names, signatures and docstrings, from which TRL describes them to the policy.
    Every tool gets

    - a check of its arguments, which answers with a sentence that a policy can learn from;
    - a time limit of `seconds`. After a call that exceeds it, the episode is dead: its tools refuse
      further calls, and the next episode gets a new instance. The dead episode earns 0.0, so that
      hanging a tool does not pay. If a server may hang through no fault of the policy, set the
      attribute `_earned_by_hanging = None` of the class: TRL then leaves the episode out;
    - a limit of `turns` calls per episode, after which every tool answers that the episode is over.
      TRL itself goes on until `max_completion_length` is full, so set
      `GRPOConfig(max_tool_calling_iterations=turns)`, too;
    - a limit of `result_characters` characters for its result, and for the text of `reset`. A
      longer text is cut, with a note. A result that is not a text becomes JSON.

    A tool that raises costs one failed call, and is a fault. ToolError is not a fault, but the
    environment's message to the policy. If `reset` or `get_reward` raises, or the reward is not a
    finite number, the episode is dead and its reward None, which TRL leaves out. Once more than 1%
    of the episodes (at least 16) have died, the next `reset` raises BrokenEnvironment. The callback
    `trainer.StopIfBroken` saves a checkpoint before that.

    counts: numbers of `episodes`, `dead` episodes, `faults`, and texts that were `cut`.
    faults: the first fault of each call. It is printed, too.

    Raise ValueError, with the problems that `check_environment` finds, if TRL cannot use the
    environment.
    """

    def __init__(
        self,
        factory: Callable[[], Environment],
        *,
        seconds: float = 10.0,
        result_characters: int = 2000,
        turns: int = 16,
    ):
        # 1. Refuse limits and environments that cannot work.
        limits = (
            ("seconds", seconds, 0.01),
            ("turns", turns, 1),
            ("result_characters", result_characters, 100),
        )
        for name, value, least in limits:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not least <= value < _LIMITS_BELOW:
                raise ValueError(
                    f"{name}={value!r} must be a number of at least {least} and below "
                    f"{_LIMITS_BELOW:,}."
                )
        if turns % 1:
            raise ValueError(f"turns={turns!r} must be a whole number.")
        problems = check_environment(factory)
        if problems:
            raise ValueError(" ".join(problems))
        read_calls_safely()

        # 2. Keep what the episodes need to know of the environment and its tools.
        instance = factory()
        tools = {name: getattr(instance, name) for name in tools_of(type(instance))}
        self.factory = factory
        self.__name__ = type(instance).__name__
        self.earned_by_hanging = getattr(instance, "_earned_by_hanging", 0.0)
        self.schemas = {name: schema_of(tool) for name, tool in tools.items()}
        self.argument_checks = {name: argument_check(tool) for name, tool in tools.items()}
        self.seconds = seconds
        self.result_characters = int(result_characters)
        self.turns = turns
        self.counts = Counter()
        self.faults: dict[str, str] = {}  # by call
        self.fatal = ""  # the last fault that ended an episode

        # 3. Make the class that TRL plays with. TRL lists the methods of a class as tools, so it
        # has the same ones.
        members = {"_guard": self, "__doc__": type(instance).__doc__}
        for name, tool in tools.items():
            members[name] = _guarded_tool(name, tool)
        self.guarded_class = type(self.__name__, (_GuardedEnvironment,), members)

    def __call__(self) -> Environment:
        return self.guarded_class()

    def text_of(self, result: object) -> str:
        """Return a result of a tool or of `reset` as the policy reads it."""
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        text = text.encode(errors="replace").decode()  # tokenizers refuse lone surrogates
        if len(text) > self.result_characters:
            self.counts["cut"] += 1
            note = f"\n[cut to {self.result_characters:,} of {len(text):,} characters]"
            text = text[: self.result_characters - len(note)] + note
        return text

    def note_fault(self, call: str, arguments: dict, problem: str) -> str:
        """Count a fault and return it as a sentence. The first fault of each call is kept and
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
        """Return why the training run should end, or "" if it can go on."""
        dead = self.counts["dead"]
        episodes = self.counts["episodes"]
        if dead < _MANY_DEAD or dead <= _MOST_DEAD * episodes:
            return ""
        return (
            f"{self.__name__}: {dead} of {episodes} episodes died. Last: {self.fatal} Correct "
            f"that call, or give it more than {self.seconds:g} seconds; then run the training "
            "again: it continues from its last checkpoint."
        )


# --- Episodes -------------------------------------------------------------------------------------


class _GuardedEnvironment:
    """A guarded instance as TRL sees it. `Guarded` makes a subclass with the environment's tools.

    All state is in `_session`, so that it cannot hide an attribute of the environment.
    """

    _guard: Guarded

    def __init__(self):
        self._session = _Session(self._guard)

    def __getattr__(self, name: str):
        """Return an attribute of the environment, for reward functions that take `environments`."""
        return getattr(object.__getattribute__(self, "_session").instance, name)

    def reset(self, /, **columns) -> str:
        return self._session.reset(columns)

    def get_reward(self) -> float | None:
        return self._session.reward()


def _guarded_tool(name: str, tool: Callable) -> Callable:
    """Return a method with a tool's signature and docstring that calls the tool via the session."""

    @functools.wraps(getattr(tool, "__func__", tool))
    def call(self, /, **arguments) -> str:
        return self._session.call(name, arguments)

    call.__doc__ = inspect.getdoc(tool)  # may be inherited
    signature = inspect.signature(tool)
    # a static tool has no `self`, but this method needs one
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    return call


class _Session:
    """The episodes of one instance, one after another.

    All calls of an instance run in one thread, because some objects, such as a connection to
    SQLite, belong to the thread that made them.
    """

    def __init__(self, guard: Guarded):
        self.guard = guard
        self.instance: Environment | None = None
        self.jobs: SimpleQueue | None = None
        self.thread: Thread | None = None
        # why there is no episode to play, as the policy is told; None while an episode is played
        self.why_over: str | None = "no episode has begun"
        self.earned: float | None = None  # the reward of an episode that died
        self.calls = 0

    def reset(self, columns: dict) -> str:
        """Begin an episode and return its text. If the episode cannot begin, return "", and the
        tools will refuse all calls.
        """
        guard = self.guard
        if guard.broken:
            raise BrokenEnvironment(guard.broken)
        guard.counts["episodes"] += 1
        self.why_over = None
        self.calls = 0

        def reset_instance() -> str:
            return guard.text_of(self.instance.reset(**columns) or "")

        try:
            if self.thread is None:  # the first episode, or the previous one died
                self.jobs = SimpleQueue()
                # a daemon thread lets the program end while a call still hangs
                self.thread = Thread(target=_run_jobs, args=(self.jobs,), daemon=True)
                self.thread.start()
                weakref.finalize(self, self.jobs.put, None)
                self.instance = self.run("__init__", {}, guard.factory)
            return self.run("reset", columns, reset_instance)
        except ToolError:
            return ""

    def call(self, name: str, arguments: dict) -> str:
        """Return the tool's reply. Raise ToolError if the call failed, or was refused."""
        guard = self.guard
        if self.why_over is not None:
            raise ToolError(f"The episode is over: {self.why_over}.")
        if self.calls >= guard.turns:
            raise ToolError(f"The episode is over: {guard.turns} calls were allowed.")
        self.calls += 1
        problem = guard.argument_checks[name](arguments)
        if problem:
            raise ToolError(guard.text_of(problem))

        def call_tool() -> str:
            return guard.text_of(getattr(self.instance, name)(**arguments))

        return self.run(name, arguments, call_tool)

    def reward(self) -> float | None:
        """Return the environment's reward, or that of a dead episode."""

        def finite_reward() -> float:
            reward = float(self.instance.get_reward())
            if not math.isfinite(reward):
                raise ValueError(f"{reward} is not a finite number")
            return reward

        if self.why_over is None:
            with suppress(ToolError):
                return self.run("get_reward", {}, finite_reward)
        return self.earned

    def run(self, call: str, arguments: dict, function: Callable) -> object:
        """Run a function in the thread of the instance and return its result.

        call, arguments: how a fault names the function.

        If the function raises or does not return in time, raise ToolError with words for the
        policy. The episode is then dead, unless a tool raised.
        """
        guard = self.guard
        outcome = Future()
        self.jobs.put((function, outcome))

        # 1. Too late: ask the thread to end. (The module docstring says when it cannot.)
        if not wait([outcome], timeout=guard.seconds).done:
            fault = guard.note_fault(
                call, arguments, f"did not return within {guard.seconds:g} seconds"
            )
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread.ident), ctypes.py_object(SystemExit)
            )
            over = f"{call} did not answer in {guard.seconds:g} seconds"
            raise self.die(fault, over, guard.earned_by_hanging)

        # 2. In time, and without an error.
        error = outcome.exception()
        if error is None:
            return outcome.result()

        # 3. The environment refused the policy's call.
        is_tool = call in guard.schemas
        if is_tool and isinstance(error, ToolError):
            raise ToolError(guard.text_of(str(error)))

        # 4. The environment failed.
        said = f"{type(error).__name__}: {error!s:.{_SHOWN}}"
        fault = guard.note_fault(call, arguments, f"raised {said}")
        if is_tool:
            raise ToolError(guard.text_of(f"{call} failed: {said}"))
        raise self.die(fault, f"{call} failed", None)

    def die(self, fault: str, why_over: str, earned: float | None) -> ToolError:
        """End the episode, and return the error for the policy. The next episode gets a new
        instance, because a call left in the old thread may still change the old instance.

        fault: the words for the user. why_over: the words for the policy. earned: the reward.
        """
        self.guard.counts["dead"] += 1
        self.guard.fatal = fault
        self.why_over = why_over
        self.earned = earned
        self.jobs.put(None)
        self.thread = None
        return ToolError(f"{why_over}. The episode is over.")


def _run_jobs(jobs: SimpleQueue) -> None:
    """Run jobs, each a function and the Future for its outcome, until the job None. This function
    does not know the session: otherwise its thread would keep the session in memory for ever.
    """
    while job := jobs.get():
        function, outcome = job
        try:
            outcome.set_result(function())
        # also SystemExit: a tool must not end the training run, nor this thread
        except BaseException as error:
            outcome.set_exception(error)
        # while this thread waits, these variables would keep the episode in memory
        del job, function, outcome
