"""Calls that may never return, each instance's in a thread of its own.

Python cannot kill a thread. What has not answered in time is left to itself: its late result goes
nowhere, and `SystemExit` is raised in it, which ends a loop written in Python at its next line and
does nothing to one that sleeps or sits in C. A call in C that keeps Python's lock (a regular
expression that backtracks) stops the whole process, this clock too: such a tool needs a process of
its own. All calls of one instance share its thread, because a connection to SQLite or an event loop
belongs to the thread that made it.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread


class OutOfTime(Exception):
    """The call has not returned in time."""


class Worker:
    """A thread for the calls of one instance."""

    def __init__(self):
        self.jobs = SimpleQueue()
        # A daemon: the program may end while a call still hangs. It must not hold the worker, or
        # nobody would ever release it.
        self.thread = Thread(target=_work, args=(self.jobs,), daemon=True, name="environment")
        self.thread.start()

    def call(
        self, seconds: float, function: Callable, finish: Callable = lambda value: value
    ) -> tuple[object, object]:
        """What finish(function()) returns, awaited where it must be, and what it raised: one of the
        two is None.

        OutOfTime where both together take longer; the worker is then to be abandoned. `finish` runs
        in the thread, too, for turning 10 GB into a text takes as long as making them.
        """
        answer = SimpleQueue()
        self.jobs.put((function, finish, answer))
        try:
            return answer.get(timeout=seconds)
        except Empty:
            raise OutOfTime from None

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
