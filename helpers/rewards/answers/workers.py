"""Judgements that may hang, made in worker processes that can be killed.

math-verify stops itself with an alarm, which works in a main thread only, and not inside one long
operation of big integers. Here every judgement has a limit of processor time: the worker stops
itself where it can; where it cannot, the kernel ends it. A worker imports what judging needs, and
forks a child that judges, and another one in the place of a child that was ended. So a verdict
comes in time from any thread, and what a completion makes a parser do, it does in a process that
holds nothing of the training. This file is also the worker's program: no worker imports, or runs
again, the script that a training was started as, which `multiprocessing` and what is built on it
would do.
"""

import gc
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache

# Seconds of processor time. An honest judgement takes 5 to 50 ms, and some take 300. Every row has
# a moment of its own; those that need longer share what the batch has left.
_ROW_SECONDS = 0.02
_BATCH_SECONDS = 0.7
_GRACE = 0.1  # seconds more, then the kernel ends the child, also inside one long operation
# Seconds on the clock, for a process that sleeps or does not come up; many, because a machine may
# be busy with something else.
_REPLY_SECONDS = 40.0
_START_SECONDS = 180.0
_ROWS_A_WORKER = 8  # below that, one more worker costs more than it saves
_MOST_WORKERS = min(8, os.cpu_count() or 1)
_MEMORY = 4 << 30  # bytes of address space
_POSIX = os.name == "posix"  # elsewhere a judgement has its time on the clock only


def scores_in_time(kind: str, rows: list[tuple]) -> list[float | None]:
    """Return the score of each row; None where there was none in time, with one warning for all.

    kind: "equal" for rows (gold, given) of LaTeX, 1.0 where math-verify finds the two equal; "task"
    for (family, answer, entry as JSON), scored by reasoning-gym's own verifier; "schema" for
    (schema, document), both JSON, 1.0 where the document fulfils the JSON Schema.

    Every distinct row is judged once. LookupError where the process that judges does not start.

    >>> scores_in_time("equal", [("x^2 + 2x + 1", "(x+1)^2"), ("x", "y")])
    [1.0, 0.0]
    >>> scores_in_time("schema", [('{"type": "array"}', "[1]"), ('{"type": "array"}', "{}")])
    [1.0, 0.0]
    """
    if not rows:
        return []
    if kind not in _workers:  # all start now: no later batch waits for one
        _workers.setdefault(kind, [Worker(kind) for _ in range(_MOST_WORKERS)])

    # Deal the distinct rows out to workers, the shortest answers first: what takes long costs no
    # plain answer its verdict.
    distinct = sorted(dict.fromkeys(rows), key=lambda row: len(row[1]))
    count = max(1, min(len(_workers[kind]), len(distinct) // _ROWS_A_WORKER))
    shares = [distinct[first::count] for first in range(count)]
    score_of = {}
    with ThreadPoolExecutor(count) as pool:
        for scores_of_share in pool.map(Worker.scores_of, _workers[kind], shares):
            score_of |= scores_of_share

    scores = [score_of[row] for row in rows]
    if None in scores:
        warnings.warn(
            f"{scores.count(None)} of {len(rows)} answers could not be judged in time; they earn "
            "nothing.",
            stacklevel=3,
        )
    return scores


class Worker:
    """One process for one kind of judgement, started again when it is asked and does not run; it
    ends when its standard input does, with the process that started it.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.lock = threading.Lock()
        self.process = None
        self.start()

    def scores_of(self, rows: list[tuple]) -> dict[tuple, float | None]:
        """Return the score of each row, None where there was none in time."""
        scores = dict.fromkeys(rows)
        budget = _BATCH_SECONDS + _ROW_SECONDS * len(rows)
        with self.lock:
            self.wait_until_ready()
            # A moment for each; then a fair share of what is left for those that need longer.
            waiting = rows
            while waiting and budget > 0:
                slow = []
                for position, row in enumerate(waiting):
                    seconds = _ROW_SECONDS
                    if waiting is not rows:
                        seconds = max(seconds, budget / (len(waiting) - position))
                    with suppress(OSError):  # it has just ended, and answers nothing
                        self.process.stdin.write(json.dumps([seconds, row]) + "\n")
                        self.process.stdin.flush()
                    line = self.next_line(_REPLY_SECONDS)
                    if not line:  # the worker has ended
                        self.start()
                        return scores
                    scores[row], used = json.loads(line)
                    if used is None:  # the kernel has ended the judgement
                        used = seconds + _GRACE
                    elif scores[row] is None:  # it has stopped itself
                        slow.append(row)
                    budget -= used
                    if budget <= 0:
                        break
                waiting = slow
        return scores

    def wait_until_ready(self) -> None:
        """Start the process again if it has ended; LookupError if it does not come up."""
        if self.process.poll() is not None:
            self.start()
        if not self.ready and not self.next_line(_START_SECONDS):
            raise LookupError(
                "a process that judges answers did not start; `python "
                f"helpers/rewards/answers/workers.py {self.kind}` says why."
            )
        self.ready = True

    def start(self) -> None:
        """Start the process, in the place of one that there may be; it says when it is ready."""
        if self.process is not None:
            self.end()
            self.process.communicate()
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, self.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            start_new_session=_POSIX,
        )
        self.ready = False

    def end(self) -> None:
        """Kill the process, and the child that judges."""
        if _POSIX:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()

    def next_line(self, seconds: float) -> str:
        """Return the next line of the process; "" if it ended, or was killed after that time."""
        deadline = threading.Timer(seconds, self.end)
        deadline.start()
        try:
            return self.process.stdout.readline()
        finally:
            deadline.cancel()


_workers: dict[str, list[Worker]] = {}  # by kind


# --- The worker's side ----------------------------------------------------------------------------


class OutOfTime(BaseException):
    """Not an Exception: sympy and math-verify catch those."""


def serve(kind: str) -> None:
    """Judge a row a line, [seconds, row] as JSON, until standard input ends."""
    # What a verifier prints must not end up among the replies, and `exit()` closes standard input.
    requests = os.fdopen(os.dup(0))
    replies = os.fdopen(os.dup(1), "w")
    sys.stdin = None
    sys.stdout = sys.stderr
    os.dup2(2, 1)

    # Import what judging needs, by judging; then take away what it does not need.
    judge, examples = _JUDGES[kind]
    for row in examples:
        judge(*row)
    gc.freeze()  # no collection goes through what was imported, in the time of a judgement
    print("ready", file=replies, flush=True)

    # A child judges. In the place of one that the kernel ended, at its limit or by a crash, comes
    # another, and the reply is no score.
    while _POSIX:
        child = os.fork()
        if not child:
            break
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):  # as standard input did
            return
        print("[null, null]", file=replies, flush=True)
    if _POSIX:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.signal(signal.SIGPROF, raise_out_of_time)  # the other signals end the process
    sys.addaudithook(refuse)
    for line in requests:
        seconds, row = json.loads(line)
        began = time.process_time()
        try:
            try:
                set_timers(seconds)
                score = judge(*row)
            finally:
                set_timers(0)
        except OutOfTime:
            score = None
        # whatever a completion did to the parser, or had a verifier do, it is no right answer
        except (Exception, SystemExit):
            score = 0.0
        print(json.dumps([score, time.process_time() - began]), file=replies, flush=True)


def set_timers(seconds: float) -> None:
    """Stop the judgement after so much processor time, and end the process soon after; 0 for no
    limit.
    """
    if _POSIX:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds and seconds + _GRACE)


def raise_out_of_time(signum, frame):
    """Handle the first signal."""
    raise OutOfTime


def refuse(event: str, arguments: tuple) -> None:
    """Raise PermissionError, as an audit hook, for whatever does more than read and compute.

    Some verifiers evaluate the answer that they judge. This is no sandbox for a determined author,
    but a policy is none: what it stumbles upon writes no file, starts no process and opens no
    connection.
    """
    if event == "open":
        _, mode, flags = arguments
        acts = set("wax+") & set(str(mode)) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    elif event in ("os.listdir", "os.scandir", "os.walk"):
        acts = False
    else:
        acts = event.startswith(("os.", "subprocess.", "socket.", "ctypes.", "builtins.input"))
    if acts:
        raise PermissionError(event)


def judge_equal(gold: str, given: str) -> float:
    """Return 1.0 where math-verify finds the two equal, and a second look at equations agrees."""
    from math_verify import verify
    from sympy import N, preorder_traversal

    gold_parts = parse_latex(gold)
    given_parts = parse_latex(given)
    # math-verify rounds to places behind the point: six digits, and fifteen where nothing is
    # rounded, need more of them where a number is small.
    zeros = 0
    for expression in gold_parts + given_parts:
        for part in preorder_traversal(expression):
            size = abs(complex(N(part, 3))) if getattr(part, "is_number", False) else 0
            if 0 < size < 1:
                zeros = max(zeros, -math.floor(math.log10(size)))
    equal = verify(
        list(gold_parts),
        list(given_parts),
        float_rounding=6 + zeros,
        numeric_precision=15 + zeros,
        allow_set_relation_comp=True,
        timeout_seconds=None,
    )
    return float(equal and all(map(same_equation, gold_parts, given_parts)))


def same_equation(gold, given) -> bool:
    """Return whether one of two equations is a multiple of the other; True for anything else.

    math-verify compares their solutions, and finds x^2+1=0 and x^2+5=0, which have no real ones,
    equal.
    """
    from sympy import Eq, simplify

    if not (isinstance(gold, Eq) and isinstance(given, Eq)):
        return True
    ratio = simplify((gold.lhs - gold.rhs) / (given.lhs - given.rhs))
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


@lru_cache(maxsize=4096)
def parse_latex(text: str) -> tuple:
    """Return what math-verify reads of a whole text: sympy's expressions."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    # Plain text is never evaluated as Python. Units stay: math-verify's list of them takes the t
    # off `1 + t`.
    normalised = NormalizationConfig(
        units=False, basic_latex=True, malformed_operators=True, nits=True, boxed="all"
    )
    whole = LatexExtractionConfig(normalization_config=normalised)
    return tuple(parse(f"${text}$", [whole], fallback_mode="no_fallback", parsing_timeout=None))


def judge_task(family: str, answer: str, entry: str) -> float:
    """Return what the family's own verifier gives."""
    from reasoning_gym import get_score_answer_fn

    return float(get_score_answer_fn(family)(answer, json.loads(entry)))


def judge_schema(schema: str, document: str) -> float:
    """Return 1.0 where the document fulfils the schema."""
    from jsonschema.validators import validator_for

    rules = json.loads(schema)
    return float(validator_for(rules)(rules).is_valid(json.loads(document)))


# How each kind of row is judged, and rows whose judgement imports what the time of one would not
# suffice for, much of sympy above all.
_JUDGES = {
    "equal": (
        judge_equal,
        [
            (r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"),
            ("x^2+2x+1", "(x+1)^2"),
            ("[0,1)", "[1,2)"),
            (r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}", r"F_n = \sum_{k=0}^{n-1} F_{n-k-1} F_k"),
            (r"(10^{\frac{1+\sqrt{13}}{6}}, 2)", r"(10^{\frac{\sqrt{13}+1}{6}}, 2)"),
            (r"(\frac{1}{2}+\frac{\sqrt{5}}{3}, 2)", r"(\frac{3+2\sqrt{5}}{6}, 2)"),
            (r"-2 \leq x \leq 7", "[-2,7]"),
            ("x < 1 or x > 3", "x > 4 or x < 1"),
            ("x=2, y=3", "x=3, y=2"),
            (r"\{a, b, c\}", r"\{a, b\}"),
            ("(x-2)^2+(y+1)^2=9", "(x+2)^2+(y-1)^2=9"),
            (
                r"\begin{pmatrix} 1 & x \\ 3 & 4 \end{pmatrix}",
                r"\begin{pmatrix} 1 & 2 \end{pmatrix}",
            ),
            (r"2\sin x \cos x + \ln 2", r"\sin 2x + \log 3"),
            (r"|x| + 3i + \pi", r"\infty"),
        ],
    ),
    "task": (judge_task, [("chain_sum", "1", '{"answer": "1"}')]),
    "schema": (judge_schema, [("{}", "{}")]),
}

if __name__ == "__main__":
    serve(sys.argv[1])
elif _POSIX:
    os.register_at_fork(after_in_child=_workers.clear)  # they are the parent's
