"""Judge answers in worker processes, where a judgement that hangs can be killed.

Three kinds of processes take part, in this order:

1. The training process calls `scores_in_time`. The first call for a kind of judgement starts up to
   eight workers, each with this file as its program (`serve`).
2. A worker imports what its judgements need, such as sympy, and forks a child. From then on the
   worker only waits for the child to end; it never reads a completion.
3. The child shares the worker's pipes. It reads one row at a time from the training process, judges
   it within a limit of processor time, and replies with the score.

A judgement can go wrong in three ways:

- It reaches its limit. A first timer raises `JudgementTimeout` in the child, which replies without
  a score.
- It is inside one long operation, where Python handles no signal. A second timer kills the child
  soon after. The worker then replies without a score and forks another child.
- No reply comes at all. The training process kills the worker and starts another one.

When the training process ends, the pipe closes, and the worker and its child end, too.

A busy or slow machine needs more processor time for the same judgement. So limits are in seconds of
a quiet machine, and are multiplied by `slowness`: a worker measures it when it starts and after
each judgement that took long.

To read this file: `scores_in_time` and `Worker` run in the training process, `serve` and what is
below it in the worker and its child. The judges, one per kind, are at the end.

Left out: math-verify's own limit, an alarm, which works in a main thread only and not inside one
long operation of big integers; and `multiprocessing`, which would import the training script again
in each worker.
"""

import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, lru_cache
from typing import NamedTuple

# Limits of processor time, in seconds of a quiet machine. Most honest judgements take 5 to 50 ms, a
# few take 300 ms. In the first round, every row of a batch has the same limit, whatever the other
# rows do. In later rounds, rows that need longer share what is left of the batch's time.
_FIRST_ROUND_SECONDS = 0.12  # per row
_ROW_SECONDS = 0.7  # the most that one row gets in any round
_BATCH_SECONDS = 4.5  # for all rows of a worker, or
_BATCH_SECONDS_PER_ROW = 0.14  # this much per row, if that is more
_GRACE = 0.02  # between the timer that stops a judgement and the one that kills the child
# Limits of clock time, in seconds, for a process that sleeps or does not start. They are long,
# because the machine may be busy.
_REPLY_SECONDS = 40.0
_START_SECONDS = 180.0
_ROWS_PER_WORKER = 8  # with fewer rows, another worker costs more than it saves
_MOST_WORKERS = min(8, os.cpu_count() or 1)
_POSIX = os.name == "posix"  # other systems have no fork and no timers: clock time alone limits


def scores_in_time(
    kind: str, rows: list[tuple], log: Callable[[float], None] | None = None
) -> list[float | None]:
    """Return the score of each row, or None for a row that was not judged in time; one warning
    counts these rows.

    log: called with the share of these rows, if there are rows.

    kind, and what its rows are:
        "equal": (gold, given) in LaTeX; 1.0 if math-verify finds them equal.
        "task": (family, answer, entry as JSON); the score of reasoning-gym's verifier.
        "patterns": (patterns, texts), both lists as JSON; 1.0 if a pattern matches in a text.
        "schema": (schema, document), both JSON; 1.0 if the document satisfies the JSON Schema.

    Raise LookupError if a worker does not start.

    >>> scores_in_time("equal", [("x^2 + 2x + 1", "(x+1)^2"), ("x", "y")])
    [1.0, 0.0]
    >>> scores_in_time("schema", [('{"type": "array"}', "[1]"), ('{"type": "array"}', "{}")])
    [1.0, 0.0]
    """
    scores = scores_or_none(kind, rows)
    if log and rows:
        log(scores.count(None) / len(rows))
    if None in scores:
        warnings.warn(
            f"{scores.count(None)} of {len(rows)} answers could not be judged in time; they earn "
            "nothing.",
            stacklevel=3,
        )
    return scores


def scores_or_none(kind: str, rows: list[tuple]) -> list[float | None]:
    """Return the scores as `scores_in_time` does, without a warning."""
    if not rows:
        return []
    # 1. Start all workers of this kind at once, so that no later batch has to wait.
    if kind not in _workers:
        _workers.setdefault(kind, [Worker(kind) for _ in range(_MOST_WORKERS)])
    workers = _workers[kind]

    # 2. Judge equal rows once. Short answers come first, so that a slow one cannot use up the time
    # before them. In each kind of row, the answer or the text is the second item.
    distinct = sorted(dict.fromkeys(rows), key=lambda row: len(row[1]))

    # 3. Deal the rows out like cards: with two workers, every other row to each. A thread per
    # worker waits for its replies.
    count = max(1, min(len(workers), len(distinct) // _ROWS_PER_WORKER))
    hands = [distinct[first::count] for first in range(count)]
    score_of = {}
    with ThreadPoolExecutor(count) as threads:
        for scores_of_hand in threads.map(Worker.scores_of, workers, hands):
            score_of |= scores_of_hand

    # 4. Put the scores in the order of the rows.
    return [score_of[row] for row in rows]


class Attempt(NamedTuple):
    """An attempt to judge a row: its score, or None without one; the processor time that it took,
    in seconds of a quiet machine; and whether it was stopped at its limit.
    """

    score: float | None
    seconds: float
    was_stopped: bool


class Worker:
    """The training process's side of one worker process, which is started again if it has ended."""

    def __init__(self, kind: str):
        self.kind = kind
        self.lock = threading.Lock()
        self.process = None
        self.start()

    def scores_of(self, rows: list[tuple]) -> dict[tuple, float | None]:
        """Return the score of each row, or None for a row that was not judged in time."""
        scores = dict.fromkeys(rows)
        time_left = max(_BATCH_SECONDS, _BATCH_SECONDS_PER_ROW * len(rows))
        limit = _FIRST_ROUND_SECONDS
        waiting = rows
        with self.lock:
            self.wait_until_ready()
            while waiting:
                # 1. Judge each row, and collect those that need longer.
                stopped = []
                for row in waiting:
                    attempt = self.judge(row, limit)
                    scores[row] = attempt.score
                    time_left -= attempt.seconds
                    if attempt.was_stopped:
                        stopped.append(row)
                # 2. In another round, they share the time that is left. They start from the
                # beginning, so without much more time each would be stopped again.
                share = min(_ROW_SECONDS, time_left / max(1, len(stopped)))
                if share < 1.5 * limit:
                    break
                limit = share
                waiting = stopped
        return scores

    def judge(self, row: tuple, seconds: float) -> Attempt:
        """Judge a row. seconds: its limit of processor time, on a quiet machine."""
        while True:
            # 1. Send the row, with the limit that it needs on this machine. If the worker has
            # ended, writing fails, and there is no reply either.
            slowness_when_sent = self.slowness
            request = json.dumps([seconds * slowness_when_sent, row])
            with suppress(OSError):
                self.process.stdin.write(request + "\n")
                self.process.stdin.flush()

            # 2. Without a reply, start the worker again. The row might hang the next one, too, so
            # it is given up.
            reply = self.next_line(_REPLY_SECONDS)
            if not reply:
                self.start()
                self.wait_until_ready()
                return Attempt(None, seconds + _GRACE, was_stopped=False)
            score, processor_seconds, new_slowness = json.loads(reply)

            # 3. The child was killed, inside one long operation. On a slow machine an honest
            # judgement has such operations, too, so the row may get more time in a later round.
            if processor_seconds is None:
                return Attempt(None, seconds + _GRACE, was_stopped=True)

            # 4. The child replied. If it stopped the row on a machine that has become slower, the
            # row did not get its time: judge it again.
            if new_slowness:
                self.slowness = new_slowness
            was_stopped = score is None
            became_slower = self.slowness > 1.3 * slowness_when_sent
            if not (was_stopped and became_slower):
                return Attempt(score, processor_seconds / slowness_when_sent, was_stopped)

    def wait_until_ready(self) -> None:
        """Start the process again if it has ended; raise LookupError if it does not get ready."""
        if self.process.poll() is not None:
            self.start()
        if self.slowness:
            return
        line = self.next_line(_START_SECONDS)
        if not line:
            raise LookupError(
                "a process that judges answers did not start; `python "
                f"helpers/judging/workers.py {self.kind}` says why."
            )
        self.slowness = float(line)

    def start(self) -> None:
        """Start the process, and end the previous one if there is one."""
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
        self.slowness = 0.0  # not known until it is ready

    def end(self) -> None:
        """Kill the worker process and its child."""
        if _POSIX:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()

    def next_line(self, seconds: float) -> str:
        """Return the next line from the process; "" if it ended, or if the time was up and it was
        killed.
        """
        deadline = threading.Timer(seconds, self.end)
        deadline.start()
        try:
            return self.process.stdout.readline()
        finally:
            deadline.cancel()


_workers: dict[str, list[Worker]] = {}  # by kind


# --- The worker's side ----------------------------------------------------------------------------


# A request is a line of JSON, [limit in processor seconds, row]. The reply to it is a line
# [score, processor seconds, slowness]: without a score if the row reached its limit, and with a
# slowness only if the row took long.
_KILLED = "[null, null, null]"  # the reply for a child that was killed


class JudgementTimeout(BaseException):
    """The judgement has reached its limit. Not an Exception, because sympy and math-verify catch
    every Exception.
    """


def serve(kind: str) -> None:
    """Judge rows until standard input ends: the program of a worker. Its first line of output is
    the machine's slowness.
    """
    # 1. Keep standard input and output for requests and replies. A verifier may print, which now
    # goes to standard error, or call `exit()`, which would close standard input.
    requests = os.fdopen(os.dup(0))
    replies = os.fdopen(os.dup(1), "w")
    sys.stdin = None
    sys.stdout = sys.stderr
    os.dup2(2, 1)

    # 2. Judge the examples, which imports what judgements need. Freezing these objects keeps the
    # garbage collector from going through them during a judgement.
    judge, examples = _JUDGES[kind]
    for row in examples:
        judge(*row)  # ty: ignore
    gc.freeze()
    print(slowness(), file=replies, flush=True)

    # 3. Fork a child that judges, and wait for its end. If it was killed or crashed, reply without
    # a score and fork another one. If it exited, standard input has ended.
    while _POSIX:
        child = os.fork()
        if not child:
            break
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            return
        print(_KILLED, file=replies, flush=True)

    # 4. In the child, limit the memory and refuse everything that acts on the machine.
    if _POSIX:
        import resource

        memory = 4 << 30  # bytes of address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        signal.signal(signal.SIGPROF, raise_timeout)
    sys.addaudithook(refuse)

    # 5. Judge one row after another.
    for line in requests:
        seconds, row = json.loads(line)
        # Importing a family's verifier is not the policy's doing, and so has no limit.
        if kind == "task":
            with suppress(Exception):  # an unknown family: the judgement will fail, too
                verifier_of(row[0])
        began = time.process_time()
        score = judge_within(seconds, judge, row)
        used = time.process_time() - began
        # Measure again after a long row: the machine may have become slower; or it was slow for a
        # moment when last measured, which gives all rows too much time.
        took_long = score is None or used > _FIRST_ROUND_SECONDS
        new_slowness = slowness() if took_long else None
        print(json.dumps([score, used, new_slowness]), file=replies, flush=True)


def judge_within(seconds: float, judge: Callable, row: list) -> float | None:
    """Return the score of a row, or None if it reached the limit. An answer that makes a parser or
    a verifier fail is wrong.
    """
    _expired.clear()
    try:
        try:
            set_timers(seconds)
            score = judge(*row)
        finally:
            set_timers(0)
    except JudgementTimeout:
        set_timers(0)
    except (Exception, SystemExit):
        score = 0.0
    # A bare `except:` of a verifier may have caught the JudgementTimeout.
    return None if _expired else score


def set_timers(seconds: float) -> None:
    """Raise JudgementTimeout after this processor time, and end the process `_GRACE` seconds later;
    0 cancels both.
    """
    if _POSIX:
        # 1. The first timer sends SIGPROF, whose handler raises JudgementTimeout.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        # 2. The second one sends SIGVTALRM, which has no handler, so the kernel ends the process.
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds + _GRACE if seconds else 0)


def raise_timeout(signum, frame):
    """Handle the signal of the first timer."""
    _expired.append(signum)
    raise JudgementTimeout


_expired: list[int] = []  # the signals of this judgement's first timer


def slowness(clock: Callable[[], float] = time.process_time, times: int = 4) -> float:
    """Return how much slower this machine is now than a quiet one of 2026, by the time that a
    computation takes `times` times; 1.0 for a machine that is as fast or faster.

    clock: what to measure, processor time or the time of a clock.
    """
    on_a_quiet_machine = 0.002  # seconds, with two cores (x86-64, 2026)
    began = clock()
    for _ in range(times):
        table = {str(n): n * n % 7919 for n in range(6000)}
        sorted(table, key=table.get)
    each = (clock() - began) / times
    return min(max(1.0, each / on_a_quiet_machine), 30.0)


def refuse(event: str, arguments: tuple) -> None:
    """Raise PermissionError for every action but reading and computing; an audit hook.

    Some verifiers of reasoning-gym evaluate the answer as Python. With this hook, code that a
    policy finds by chance cannot write a file, start a process or open a connection. It is not a
    sandbox: an author who knows the hook can get around it.
    """
    if event == "open":
        _, mode, flags = arguments
        opens_to_write = set("wax+") & set(str(mode))
        has_write_flag = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        acts = opens_to_write or has_write_flag
    elif event in ("os.listdir", "os.scandir", "os.walk"):
        acts = False
    else:
        acts = event.startswith(("os.", "subprocess.", "socket.", "ctypes.", "builtins.input"))
    if acts:
        raise PermissionError(event)


# --- The judges, one per kind ---------------------------------------------------------------------


def judge_equal(gold: str, given: str) -> float:
    """Return 1.0 if math-verify finds two expressions equal, and `same_equation` agrees."""
    from math_verify import verify
    from sympy import N, preorder_traversal

    # 1. Read both texts. A text may have several expressions.
    gold_parts = parse_latex(gold)
    given_parts = parse_latex(given)

    # 2. math-verify rounds to a number of decimal places. Small numbers need more places, so count
    # the zeros after the point of the smallest number.
    zeros = 0
    for expression in gold_parts + given_parts:
        for part in preorder_traversal(expression):
            if not getattr(part, "is_number", False):
                continue
            size = abs(complex(N(part, 3)))
            if 0 < size < 1:
                zeros = max(zeros, -math.floor(math.log10(size)))

    # 3. Compare.
    given_parts = tuple(with_exact_values(part, given, gold_parts) for part in given_parts)
    equal = verify(
        list(gold_parts),
        list(given_parts),
        float_rounding=6 + zeros,
        numeric_precision=15 + zeros,
        allow_set_relation_comp=True,
        timeout_seconds=None,
    )
    return float(equal and all(map(same_equation, gold_parts, given_parts)))


def with_exact_values(expression, text: str, gold_parts: tuple):
    """Return a given expression with the row's irrational values in place of the decimals that
    round them correctly to six significant digits or more.
    """
    from sympy import Abs, Float, Rational, preorder_traversal

    decimals = expression.atoms(Float)
    if not decimals:
        return expression

    # 1. Collect the row's irrational values.
    irrational = []
    for gold in gold_parts:
        for part in preorder_traversal(gold):
            if getattr(part, "is_number", False) and part.is_real and not part.is_rational:
                irrational.append(part)

    # 2. Find the value that each decimal rounds. Its digits are those of the text, because sympy
    # keeps a binary number.
    digits_of = {float(digits): digits for digits in re.findall(r"\d*\.\d+", text)}
    exact = {}
    for decimal in decimals:
        digits = digits_of.get(abs(float(decimal)), "0.0")
        last_place = Rational(1, 10 ** len(digits.partition(".")[2]))
        rounded = Rational(digits) * (-1 if decimal < 0 else 1)
        has_six_digits = abs(rounded) >= 10**5 * last_place
        for value in irrational:
            if has_six_digits and Abs(value - rounded) < last_place / 2:
                exact[decimal] = value
    return expression.xreplace(exact)


def same_equation(gold, given) -> bool:
    """Return whether each given equation is a multiple of one of the row's; True if the row has
    none. The equations may be members of a list, but not the steps of a chain.

    math-verify compares real solutions only, so x^2+1=0 and x^2+5=0, which have none, are equal to
    it.
    """
    from sympy import And, Eq, simplify

    gold_equations = gold.atoms(Eq)
    if isinstance(gold, And) or not gold_equations:
        return True
    for equation in given.atoms(Eq):
        # left side - right side = 0: one equation is a multiple of another if the ratio of these
        # differences is a number
        difference = equation.lhs - equation.rhs
        ratios = [simplify((one.lhs - one.rhs) / difference) for one in gold_equations]
        if not any(ratio.is_number and ratio.is_finite and ratio != 0 for ratio in ratios):
            return False
    return True


@lru_cache(maxsize=4096)
def parse_latex(text: str) -> tuple:
    """Return the sympy expressions that math-verify reads from a text, taken as LaTeX as a whole.

    Only LaTeX is read, so a text is never evaluated as Python. Units are kept, because math-verify
    would take the t of `1 + t` for one.
    """
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    normalised = NormalizationConfig(
        units=False, basic_latex=True, malformed_operators=True, nits=True, boxed="all"
    )
    whole = LatexExtractionConfig(normalization_config=normalised)
    return tuple(parse(f"${text}$", [whole], fallback_mode="no_fallback", parsing_timeout=None))


def judge_task(family: str, answer: str, entry: str) -> float:
    """Return the score of the family's own verifier."""
    return float(verifier_of(family)(answer, json.loads(entry)))


@cache
def verifier_of(family: str) -> Callable:
    """Return a family's verifier. A few read a large file first, which takes half a second."""
    from reasoning_gym import get_score_answer_fn

    return get_score_answer_fn(family)


def judge_patterns(patterns: str, readings: str) -> float:
    """Return 1.0 if a pattern matches in one of the readings of a text, else 0.0; both are JSON."""
    import regex

    compiled = [regex.compile(pattern, regex.IGNORECASE) for pattern in json.loads(patterns)]
    texts = json.loads(readings)
    return float(any(pattern.search(text) for text in texts for pattern in compiled))


def judge_schema(schema: str, document: str) -> float:
    """Return 1.0 if the document satisfies the schema."""
    from jsonschema.validators import validator_for

    rules = json.loads(schema)
    validator = validator_for(rules)
    checked = validator(rules, format_checker=validator.FORMAT_CHECKER)
    return float(checked.is_valid(json.loads(document)))


# The judge of each kind, and the examples that a worker judges when it starts. They import the
# parts of sympy that honest answers need, which takes longer than the limit of a judgement.
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
    "patterns": (judge_patterns, [('["a"]', '["b"]')]),
    "schema": (judge_schema, [("{}", "{}")]),
}

if __name__ == "__main__":
    serve(sys.argv[1])
elif _POSIX:
    os.register_at_fork(after_in_child=_workers.clear)  # a forked process needs its own
