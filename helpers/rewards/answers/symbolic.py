"""Judgements that may hang, each made in a process that holds nothing of the training.

math-verify stops itself with an alarm, which works in a main thread only, and not inside one long
operation of big integers. So a process of `symbolic_worker.py` judges, one row at a time: a row
that runs out of processor time there costs itself its verdict, and its neighbours nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from helpers import subprocesses

_PROGRAM = os.path.join(os.path.dirname(__file__), "symbolic_worker.py")
_SECONDS = 1.0  # of processor time for one judgement; most honest ones take 5 to 50 ms
# Once so many rows of a batch have run out of time, the rows after them get this much.
_MOST_LATE, _LEAST_SECONDS = 5, 0.1
# Seconds on the clock, for a judgement that sleeps and for a process that does not come up; many,
# because a machine may be busy with something else.
_GIVEN_UP_AFTER, _START_SECONDS = 20.0, 180.0
_MOST_LOST = 2  # processes that one batch may cost a worker; then it has no more verdicts for it
_ROWS_A_WORKER = 8  # below that, one more worker costs more than it saves
_MOST_WORKERS = 8
WORKERS = min(_MOST_WORKERS, os.cpu_count() or 1)  # processes for each kind of judgement
_MOST_REMEMBERED = 1 << 14
_remembered: dict[tuple[str, str], float] = {}


def equal(pairs: list[tuple[str, str]]) -> list[bool]:
    """For each pair (gold, given) of mathematical texts: whether math-verify finds them equal.

    False where it cannot tell in time. Every distinct pair is judged once, and remembered if it was
    in time.

    >>> equal([("x^2 + 2x + 1", "(x+1)^2"), ("x", "y")])
    [True, False]
    """
    known = {pair: score for pair in pairs if (score := _remembered.get(pair)) is not None}
    new = [pair for pair in pairs if pair not in known]
    judged = dict(zip(new, scores("equal", new), strict=True))
    if len(_remembered) + len(judged) > _MOST_REMEMBERED:
        _remembered.clear()
    _remembered.update({pair: score for pair, score in judged.items() if score is not None})
    known |= judged
    return [known[pair] == 1.0 for pair in pairs]


def scores(kind: str, rows: list[tuple[str, ...]]) -> list[float | None]:
    """The score of each row, None where it was not found in time.

    kind: "equal", of (gold, given); "task", of (family, answer, entry as JSON), the score of
    reasoning-gym's own verifier, with LookupError for a family that it does not know; "schema", of
    (JSON Schema, JSON document), 1.0 where the document fulfils the schema.

    >>> scores("schema", [('{"type": "array"}', "[1]"), ('{"type": "array"}', "{}")])
    [1.0, 0.0]
    """
    distinct = list(dict.fromkeys(rows))
    count = max(1, min(WORKERS, len(distinct) // _ROWS_A_WORKER))
    shares = [distinct[at::count] for at in range(count)]
    found = {}
    with ThreadPoolExecutor(count) as pool:
        for part in pool.map(_Worker.ask, _workers(kind, os.getpid()), shares):
            found |= part
    for score in found.values():
        if isinstance(score, str):
            raise LookupError(score)
    return [found[row] for row in rows]


def forget() -> None:
    """Forget every answer, in order to measure."""
    _remembered.clear()


class _Worker:
    """One process for one kind of judgement, started when it is asked and does not run."""

    def __init__(self, kind: str):
        self.kind, self.lock, self.process = kind, threading.Lock(), None

    def ask(self, rows: list[tuple]) -> dict[tuple, float | str | None]:
        """The score of each row; None where there was none in time, a text where no answer could
        have one.
        """
        found, late, lost = dict.fromkeys(rows), 0, 0
        with self.lock:
            for row in rows:
                if self.process is None or self.process.poll() is not None:
                    self.start()
                seconds = _SECONDS if late < _MOST_LATE else _LEAST_SECONDS
                with suppress(OSError):  # it has just ended, and answers nothing
                    self.process.stdin.write(json.dumps([seconds, row]) + "\n")
                    self.process.stdin.flush()
                line = self.reply(_GIVEN_UP_AFTER)
                found[row] = json.loads(line) if line else None
                late += found[row] is None
                if not line:
                    self.process.wait()
                    lost += 1
                if lost == _MOST_LOST:
                    break
        return found

    def start(self) -> None:
        """Start the process, and wait until it has imported what it needs."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", _PROGRAM, self.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        if not self.reply(_START_SECONDS):
            raise LookupError(
                f"a process that judges answers ({_PROGRAM} {self.kind}) did not start: is "
                "everything in requirements.txt installed?"
            )

    def reply(self, seconds: float) -> str:
        """The next line of the process; "" if it has ended, or was ended after so many seconds."""
        deadline = threading.Timer(seconds, subprocesses.end, ([self.process], 0))
        deadline.start()
        try:
            return self.process.stdout.readline()
        finally:
            deadline.cancel()


@cache
def _workers(kind: str, process: int) -> list[_Worker]:
    """The workers of a process: one that was forked has workers of its own."""
    return [_Worker(kind) for _ in range(_MOST_WORKERS)]
