"""Judgements that may hang, made in processes that can be killed.

math-verify stops itself with an alarm, which works in a main thread only, and not inside one long operation of big integers.
Here every judgement runs in a worker process with a deadline: the worker stops itself where it can, and is killed and replaced
where it cannot. So a verdict comes in time from any thread, and what a completion makes a parser do, it does in a process that
holds nothing of the training. This file is also the worker's program.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

SECONDS = 0.5  # of processor time that a worker gives one judgement; an honest one takes 5 to 50 ms
_KILLED_AFTER = 0.8  # seconds of processor time; the kernel does it, also inside one long operation
_GIVEN_UP_AFTER = 5.0  # seconds; for a worker that sleeps, or a system that cannot count processor time
_START_SECONDS = 60
_PAIRS_A_WORKER = 8  # below that, starting one more costs more than it saves
_MOST_WORKERS = 8
_MEMORY = 4 << 30  # bytes of address space
_REMEMBERED = 1 << 14


def equal(pairs: list[tuple[str, str]]) -> list[bool]:
    """For each pair (gold, given) of mathematical texts: whether math-verify finds them equal. False where it cannot tell in
    time.

    Every distinct pair is judged once, every distinct text parsed once a worker; the answers are remembered.

    >>> equal([("x^2 + 2x + 1", "(x+1)^2"), ("x", "y")])
    [True, False]
    """
    return [score == 1.0 for score in _judged([("equal", *pair) for pair in pairs])]


def task_scores(rows: list[tuple[str, str, str]]) -> list[float | None]:
    """For each (family, answer, entry as JSON): the score of reasoning-gym's own verifier, None where it failed or was too
    slow.

    LookupError says that reasoning-gym is not installed, or which family is unknown to it.
    """
    return _judged([("task", *row) for row in rows])


_memory: dict[tuple, float | None] = {}
_idle: queue.LifoQueue = queue.LifoQueue()
_lock = threading.Lock()
_most_workers = min(_MOST_WORKERS, os.cpu_count() or 1)


def forget(workers: int | None = None) -> None:
    """Forget every answer, in order to measure; with a number, also start anew with at most so many workers."""
    global _most_workers
    with _lock:
        _memory.clear()
    if workers is not None:
        with contextlib.suppress(queue.Empty):
            while True:
                _idle.get_nowait().stop()
        _most_workers = min(_MOST_WORKERS, workers)


def _judged(requests: list[tuple]) -> list[float | None]:
    with _lock:
        known = {request: _memory[request] for request in requests if request in _memory}
    new = [request for request in dict.fromkeys(requests) if request not in known]
    if new:
        threads = max(1, min(_most_workers, len(new) // _PAIRS_A_WORKER))
        with ThreadPoolExecutor(threads) as pool:
            known.update(zip(new, pool.map(_judge, new), strict=True))
        with _lock:
            if len(_memory) + len(new) > _REMEMBERED:
                _memory.clear()
            # None is not remembered: the worker was killed, perhaps from outside, and the next call may find out more.
            _memory.update((request, known[request]) for request in new if known[request] is not None)
    return [known[request] for request in requests]


def _judge(request: tuple) -> float | None:
    try:
        worker = _idle.get_nowait()
    except queue.Empty:
        worker = _Worker()
    try:
        return worker.ask(request)
    finally:
        _idle.put(worker)


class _Worker:
    """One process, started when it is first asked, replaced when it had to be killed or was another process's."""

    def __init__(self):
        self.process, self.owner, self.loaded = None, None, set()
        atexit.register(self.stop)

    def ask(self, request: tuple) -> float | None:
        """The worker's answer, or None where there was none in time. LookupError for what it says it cannot do at all."""
        if self.process is None or self.process.poll() is not None or self.owner != os.getpid():
            self._start()
        if request[0] not in self.loaded:
            problem = self._exchange(["load", request[0]], _START_SECONDS)
            if problem != "":
                raise LookupError(problem or "a process that judges answers did not start: it said nothing for a minute.")
            self.loaded.add(request[0])
        reply = self._exchange(request, _GIVEN_UP_AFTER)
        if isinstance(reply, str):
            raise LookupError(reply)
        return reply

    def _start(self):
        self.loaded, self.owner = set(), os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        )

    def _exchange(self, request: list | tuple, seconds: float):
        started, deadline = time.monotonic(), threading.Timer(seconds, self.process.kill)
        deadline.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            reply = self.process.stdout.readline()
        except OSError:  # killed while it was being written to
            reply = ""
        finally:
            deadline.cancel()
        if not reply or time.monotonic() - started >= seconds:  # killed, or about to be though it did answer
            self.stop()
        return json.loads(reply) if reply else None

    def stop(self):
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(OSError):  # a request it never read
                self.process.stdin.close()
            self.process.stdout.close()
        self.process = None


# --- The worker's side ---------------------------------------------------------------------------------------------------


class _OutOfTime(BaseException):
    """Not an Exception: sympy and math-verify catch those."""


class _Impossible(Exception):
    """What no answer could change: a package or a family that is not there."""


def _serve() -> None:
    replies, sys.stdout = sys.stdout, sys.stderr  # whatever a verifier prints must not end up among the replies
    if os.name == "posix":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.signal(signal.SIGPROF, _stop)  # SIGVTALRM keeps its default, which ends the process
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)
    for line in sys.stdin:
        replies.write(json.dumps(_answer(*json.loads(line))) + "\n")
        replies.flush()


def _stop(signum, frame):
    raise _OutOfTime


def _refuse(event: str, arguments: tuple) -> None:
    """An audit hook: some verifiers evaluate the answer they judge, so this process may read and compute, and no more.

    No sandbox for a determined author, but a policy is none: what it stumbles upon writes no file, starts no process and
    opens no connection.
    """
    if not _judging:
        return
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        if not (set("wax+") & set(str(mode)) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
    elif event in _HARMLESS or not event.startswith(_REFUSED):
        return
    raise PermissionError(event)


_REFUSED = (
    "os.",
    "subprocess.",
    "socket.",
    "shutil.",
    "ctypes.",
    "pty.",
    "urllib.",
    "webbrowser.",
    "tempfile.",
    "builtins.input",
)
_judging = False
_HARMLESS = ("os.listdir", "os.scandir", "os.walk")


def _answer(kind: str, *arguments) -> float | str:
    try:
        if kind == "load":
            return _load(*arguments)
        return _within_time(_equal if kind == "equal" else _task, arguments)
    except _Impossible as error:
        return str(error)
    except (Exception, _OutOfTime):  # whatever a completion did to the parser, it is no right answer
        return 0.0


def _within_time(judge, arguments: tuple) -> float:
    global _judging
    timers = {"ITIMER_VIRTUAL": _KILLED_AFTER, "ITIMER_PROF": SECONDS} if os.name == "posix" else {}
    try:
        for timer, seconds in timers.items():
            signal.setitimer(getattr(signal, timer), seconds)
        _judging = True
        return judge(*arguments)
    finally:
        _judging = False
        for timer in timers:
            signal.setitimer(getattr(signal, timer), 0)


def _load(kind: str) -> str:
    """Import what the judgements need, outside their time; "" or what is missing."""
    import logging

    logging.disable()
    try:
        if kind == "equal":
            for gold, given in ((r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"), ("x^2+2x+1", "(x+1)^2"), ("[0,1)", "[1,2)")):
                _equal(gold, given)  # the first of a kind imports much of sympy
        else:
            import reasoning_gym  # noqa: F401
    except ImportError as error:
        requirements = "requirements.txt" if kind == "equal" else "requirements-optional.txt"
        raise _Impossible(f"{error.name} is not installed: pip install -r {requirements}") from None
    return ""


def _equal(gold: str, given: str) -> float:
    from math_verify import verify

    return float(verify(list(_parsed(gold)), list(_parsed(given)), timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple:
    from math_verify import LatexExtractionConfig, parse

    # As TRL's accuracy_reward reads a completion: the content of one box. Plain text is never evaluated as Python.
    boxed = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    return tuple(parse(f"\\boxed{{{text}}}", [boxed], fallback_mode="no_fallback", parsing_timeout=None))


def _task(family: str, answer: str, entry: str) -> float:
    from reasoning_gym import get_score_answer_fn

    try:
        score = get_score_answer_fn(family)
    except ValueError:
        raise _Impossible(f"reasoning-gym has no family {family!r}.") from None
    return float(score(answer, json.loads(entry)))


if __name__ == "__main__":
    _serve()
