"""Judgements that may hang, made in processes that can be killed.

math-verify stops itself with an alarm, which works in a main thread only, and not inside one long
operation of big integers. Here every judgement runs in a worker process with a deadline: the worker
stops itself where it can, and is killed and replaced where it cannot. So a verdict comes in time
from any thread, and what a completion makes a parser do, it does in a process that holds nothing of
the training. This file is also the worker's program.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

SECONDS = 0.5  # of processor time that a worker gives one judgement; an honest one takes 5 to 50 ms
# seconds of processor time more, then the kernel ends it, also inside one long operation
_GRACE = 0.3
# each judgement of a batch that runs out of time halves what the next ones get, down to this
_LEAST_SECONDS = 0.03
_MOST_KILLED = 2  # workers in one batch; what is then not yet judged is not judged
# What may take long is judged last, so that it costs no honest answer its verdict.
_HEAVY = re.compile(r"\d{5}|\^[^+=,]*\^|\^\s*\{?\d\d\d|!|\\(?:sum|prod|int|binom|sqrt\[|lim)")
# seconds; for a worker that sleeps, or a system that cannot count processor time
_GIVEN_UP_AFTER = 5.0
_START_SECONDS = 60
_PAIRS_A_WORKER = 8  # below that, starting one more costs more than it saves
_MOST_WORKERS = 8
_WARM_WORKERS = 2  # more are started when a batch is large enough
_MEMORY = 4 << 30  # bytes of address space
_REMEMBERED = 1 << 14


def equal(pairs: list[tuple[str, str]]) -> list[bool]:
    """For each pair (gold, given) of mathematical texts: whether math-verify finds them equal.

    False where it cannot tell in time.

    Every distinct pair is judged once, every distinct text parsed once a worker; the answers are
    remembered. A batch is bounded too: the more of its judgements ran out of time, the less time
    the next ones get, so that a batch of nothing but bombs takes some two seconds. What was not
    judged for that is False, and asked again in the next batch.

    >>> equal([("x^2 + 2x + 1", "(x+1)^2"), ("x", "y")])
    [True, False]
    """
    return [score == 1.0 for score in _judged([("equal", *pair) for pair in pairs])]


def task_scores(rows: list[tuple[str, str, str]]) -> list[float | None]:
    """For each (family, answer, entry as JSON): the score of reasoning-gym's own verifier, None
    where it failed or was too slow.

    LookupError says that reasoning-gym is not installed, or which family is unknown to it.
    """
    return _judged([("task", *row) for row in rows])


_memory: dict[tuple, float | None] = {}
_idle: queue.LifoQueue = queue.LifoQueue()
_lock = threading.Lock()
_most_workers = min(_MOST_WORKERS, os.cpu_count() or 1)


def forget(workers: int | None = None) -> None:
    """Forget every answer, in order to measure; with a number, also start anew with at most so many
    workers.
    """
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
    new.sort(key=lambda request: bool(_HEAVY.search(request[-1])))
    if new:
        _wait_for_the_warm()
        threads, patience = max(1, min(_most_workers, len(new) // _PAIRS_A_WORKER)), _Patience()
        with ThreadPoolExecutor(threads) as pool:
            known.update(
                zip(new, pool.map(lambda request: _judge(request, patience), new), strict=True)
            )
        with _lock:
            if len(_memory) + len(new) > _REMEMBERED:
                _memory.clear()
            # None is not remembered: the worker was killed, perhaps from outside, or the time of
            # the batch was up. The next call may find out more.
            _memory.update(
                (request, known[request]) for request in new if known[request] is not None
            )
    return [known[request] for request in requests]


class _Patience:
    """The time that a judgement of one batch gets: less and less, the more of them ran out
    of it.
    """

    def __init__(self):
        self.seconds, self.killed = SECONDS, 0

    def lost(self, worker_too: bool) -> None:
        self.seconds, self.killed = max(_LEAST_SECONDS, self.seconds / 2), self.killed + worker_too


def _judge(request: tuple, patience: _Patience) -> float | None:
    if patience.killed >= _MOST_KILLED:
        return None
    worker = _taken()
    if worker is None:
        _wait_for_the_warm()
        worker = _taken() or _Worker()
    seconds = patience.seconds
    try:
        score = worker.ask(request, seconds)
    finally:
        killed = worker.process is None
        if killed:  # by the time the next batch comes it is loaded again
            _begin(worker)
        else:
            _put_back(worker)
    if score is None:
        patience.lost(killed)
        # with all the time there is: it is no right answer
        return None if killed or seconds < SECONDS else 0.0
    return score


_warming: list[threading.Thread] = []


def warm_up() -> None:
    """Start the workers that judge mathematics and let them load, without waiting for them.

    Later calls do nothing.

    Starting takes a second or more, which the first answer would wait for.
    """
    with _lock:
        if _warming or not _idle.empty():
            return
        for _ in range(min(_WARM_WORKERS, _most_workers)):
            _begin(_Worker())


def _begin(worker: _Worker) -> None:
    thread = threading.Thread(target=_load_worker, args=(worker,), daemon=True)
    thread.start()
    # another thread may join whatever stands here, and only what has started can be joined
    _warming.append(thread)


def _load_worker(worker: _Worker) -> None:
    with contextlib.suppress(LookupError, OSError):  # said by the first answer that needs it
        worker.ask(("equal", "1", "1"), SECONDS)
    _put_back(worker)


def _wait_for_the_warm() -> None:
    for thread in list(_warming):
        thread.join()
        with contextlib.suppress(ValueError):  # another thread waited for it too
            _warming.remove(thread)


def _taken() -> _Worker | None:
    try:
        return _idle.get_nowait()
    except queue.Empty:
        return None


def _put_back(worker: _Worker) -> None:
    if _idle.qsize() < _most_workers:
        _idle.put(worker)
    else:
        worker.stop()


class _Worker:
    """One process, started when it is first asked, replaced when it had to be killed or was another
    process's.
    """

    def __init__(self):
        self.process, self.owner, self.loaded = None, None, set()
        atexit.register(self.stop)

    def ask(self, request: tuple, seconds: float) -> float | None:
        """The worker's answer, or None where there was none in `seconds`.

        LookupError for what it says it cannot do at all.
        """
        if self.process is None or self.process.poll() is not None or self.owner != os.getpid():
            self._start()
        if request[0] not in self.loaded:
            problem = self._exchange([0, "load", request[0]], _START_SECONDS)
            if problem != "":
                raise LookupError(
                    problem
                    or "a process that judges answers did not start: it said nothing for a minute."
                )
            self.loaded.add(request[0])
        reply = self._exchange([seconds, *request], _GIVEN_UP_AFTER)
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
        # killed, or about to be though it did answer
        if not reply or time.monotonic() - started >= seconds:
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


# --- The worker's side ----------------------------------------------------------------------------


class _OutOfTime(BaseException):
    """Not an Exception: sympy and math-verify catch those."""


class _Impossible(Exception):
    """What no answer could change: a package or a family that is not there."""


def _serve() -> None:
    # whatever a verifier prints must not end up among the replies
    replies, sys.stdout = sys.stdout, sys.stderr
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
    """An audit hook: some verifiers evaluate the answer they judge, so this process may read and
    compute, and no more.

    No sandbox for a determined author, but a policy is none: what it stumbles upon writes no file,
    starts no process and opens no connection.
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


def _answer(seconds: float, kind: str, *arguments) -> float | str | None:
    try:
        if kind == "load":
            return _load(*arguments)
        return _within_time(seconds, _equal if kind == "equal" else _task, arguments)
    except _Impossible as error:
        return str(error)
    except _OutOfTime:
        return None
    except Exception:  # whatever a completion did to the parser, it is no right answer
        return 0.0


def _within_time(seconds: float, judge, arguments: tuple) -> float:
    global _judging
    timers = (
        {"ITIMER_VIRTUAL": seconds + _GRACE, "ITIMER_PROF": seconds} if os.name == "posix" else {}
    )
    try:
        for timer, limit in timers.items():
            signal.setitimer(getattr(signal, timer), limit)
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
            for gold, given in (
                (r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"),
                ("x^2+2x+1", "(x+1)^2"),
                ("[0,1)", "[1,2)"),
            ):
                _equal(gold, given)  # the first of a kind imports much of sympy
        else:
            import reasoning_gym  # noqa: F401
    except ImportError as error:
        wanted = (
            "-r requirements.txt"
            if kind == "equal"
            else "reasoning-gym (the pin is in requirements-optional.txt)"
        )
        raise _Impossible(f"{error.name} is not installed: pip install {wanted}") from None
    return ""


def _equal(gold: str, given: str) -> float:
    from math_verify import verify

    wanted, said = _parsed(gold), _parsed(given)
    return float(
        verify(list(wanted), list(said), timeout_seconds=None)
        and all(map(_same_equation, wanted, said))
    )


def _same_equation(gold, given) -> bool:
    """Of two equations: whether one is a multiple of the other.

    math-verify compares their solutions, and finds x^2+1=0 and x^2+5=0, which have no real ones,
    equal.
    """
    from sympy import Eq, simplify

    if not (isinstance(gold, Eq) and isinstance(given, Eq)):
        return True
    ratio = simplify((gold.lhs - gold.rhs) / (given.lhs - given.rhs))
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    # As TRL's accuracy_reward reads a completion: the content of one box. Plain text is never
    # evaluated as Python. Units stay: math-verify's list of them takes the t off `1 + t`.
    normalised = NormalizationConfig(
        units=False, basic_latex=True, malformed_operators=True, nits=True, boxed="all"
    )
    boxed = LatexExtractionConfig(
        normalization_config=normalised, boxed_match_priority=0, try_extract_without_anchor=False
    )
    return tuple(
        parse(f"\\boxed{{{text}}}", [boxed], fallback_mode="no_fallback", parsing_timeout=None)
    )


def _task(family: str, answer: str, entry: str) -> float:
    from reasoning_gym import get_score_answer_fn

    try:
        score = get_score_answer_fn(family)
    except ValueError:
        raise _Impossible(f"reasoning-gym has no family {family!r}.") from None
    return float(score(answer, json.loads(entry)))


if __name__ == "__main__":
    _serve()
