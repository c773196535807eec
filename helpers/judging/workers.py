"""Judge answers in worker processes, where a judgement that hangs can be killed.

Three kinds of processes take part, in this order:

1. The training process calls `scores_in_time`. The first call for a kind of judgement starts up to
   eight workers, each with this file as its program (`serve`).
2. A worker imports what its judgements need, such as sympy, and forks a child. From then on the
   worker only waits for the child to end; it never reads a completion.
3. The child shares the worker's pipes. It reads one row at a time from the training process, judges
   it within a limit of processor time, and replies with the score.
4. At the limit, a first timer raises `JudgementTimeout` in the child, which replies without a
   score. If the child is inside one long operation, where Python handles no signal, a second timer
   kills it soon after. The worker then replies without a score and forks another child.

   A busy or slow machine needs more processor time for the same judgement. So a limit is a multiple
   of the time that a reference computation takes here (`slowness`), which a worker measures when it
   starts and after each judgement that took long.
5. If no reply comes at all, the training process kills the worker and starts another one. When the
   training process ends, the pipe closes, and the worker and its child end, too.

math-verify's own limit is an alarm, which works in a main thread only and not inside one long
operation of big integers. `multiprocessing` would import the training script again in each worker.
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

# Limits of processor time, in seconds of a quiet machine. Most honest judgements take 5 to 50 ms, a
# few take 300 ms. Every row gets a slice, whatever the other rows of its batch do. Rows that need
# longer share what is left of the batch's budget.
_SLICE_SECONDS = 0.12
_ROW_SECONDS = 0.7  # the most that one row gets
_BATCH_SECONDS = 4.5  # the budget of a worker, or
_SHARE_SECONDS = 0.14  # this much per row, if it has many rows
_GRACE = 0.02  # between the timer that stops a judgement and the one that kills the child
_SLOWER = 1.3  # a judgement is repeated if the machine has become slower by this factor
# Limits of clock time, in seconds, for a process that sleeps or does not start. They are long,
# because the machine may be busy.
_REPLY_SECONDS = 40.0
_START_SECONDS = 180.0
_ROWS_PER_WORKER = 8  # with fewer rows, another worker costs more than it saves
_MOST_WORKERS = min(8, os.cpu_count() or 1)
_MEMORY = 4 << 30  # bytes of address space per child
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

    Raises LookupError if a worker does not start.

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

    # 2. Deal the distinct rows out to the workers. Short answers come first, so that a slow one
    # cannot use up the budget before them.
    distinct = sorted(dict.fromkeys(rows), key=lambda row: len(row[1]))
    count = max(1, min(len(_workers[kind]), len(distinct) // _ROWS_PER_WORKER))
    shares = [distinct[first::count] for first in range(count)]
    score_of = {}
    with ThreadPoolExecutor(count) as pool:
        for scores_of_share in pool.map(Worker.scores_of, _workers[kind], shares):
            score_of |= scores_of_share

    # 3. Put the scores in the order of the rows.
    return [score_of[row] for row in rows]


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
        budget = max(_BATCH_SECONDS, _SHARE_SECONDS * len(rows))
        with self.lock:
            self.wait_until_ready()
            # In the first round, every row gets a slice. In later rounds, the rows that were
            # stopped share the rest of the budget, as long as they get much more time than before.
            waiting = rows
            seconds = _SLICE_SECONDS
            while waiting:
                late = []
                for row in waiting:
                    scores[row], used, stopped = self.judge(row, seconds)
                    budget -= used
                    if stopped:
                        late.append(row)
                had = seconds
                seconds = min(_ROW_SECONDS, budget / max(1, len(late)))
                waiting = late if seconds >= 1.5 * had else []
        return scores

    def judge(self, row: tuple, seconds: float) -> tuple[float | None, float, bool]:
        """Return the score of a row, or None without one; the processor time that it took; and
        whether it was stopped at its limit. Times are those of a quiet machine.
        """
        while True:
            # 1. Send the row and wait for the reply. If there is none, the worker has ended; then
            # writing to it may fail as well.
            with suppress(OSError):
                self.process.stdin.write(json.dumps([seconds * self.slowness, row]) + "\n")
                self.process.stdin.flush()
            line = self.next_line(_REPLY_SECONDS)
            if not line:
                self.start()
                self.wait_until_ready()
                return None, seconds + _GRACE, False
            score, used, now = json.loads(line)
            # A child is killed inside one long operation. On a slow machine an honest judgement has
            # such operations, too, so the row may get more time in a later round.
            if used is None:
                return None, seconds + _GRACE, True
            # 2. If the machine has become slower, a late row did not get its time: judge it again.
            before = self.slowness
            self.slowness = now or before
            if score is not None or self.slowness <= _SLOWER * before:
                return score, used / before, score is None

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


_KILLED = "[null, null, null]"  # the reply for a child that was killed


class JudgementTimeout(BaseException):
    """The judgement has reached its limit. Not an Exception, because sympy and math-verify catch
    every Exception.
    """


def serve(kind: str) -> None:
    """Judge rows until standard input ends. The first line that it writes is the machine's
    slowness. A request is a line of JSON, [seconds, row]; the reply is [score, processor seconds,
    slowness], with a slowness only if the row took long.
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
        judge(*row)
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

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.signal(signal.SIGPROF, raise_timeout)
    sys.addaudithook(refuse)

    # 5. Judge one row after another. What the row's own data needs is prepared without a limit.
    for line in requests:
        seconds, row = json.loads(line)
        prepare(kind, row)
        began = time.process_time()
        score = judge_within(seconds, judge, row)
        used = time.process_time() - began
        # A slowness that was high for a moment gives later rows too much time, so such a row
        # corrects it.
        now = slowness() if score is None or used > _SLICE_SECONDS else None
        print(json.dumps([score, used, now]), file=replies, flush=True)


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
    began = clock()
    for _ in range(times):
        table = {str(n): n * n % 7919 for n in range(6000)}
        sorted(table, key=table.get)
    each = (clock() - began) / times
    return min(max(1.0, each / _REFERENCE_SECONDS), _SLOWEST)


_REFERENCE_SECONDS = 0.002  # on a quiet two-core machine (x86-64, 2026)
_SLOWEST = 30.0


def refuse(event: str, arguments: tuple) -> None:
    """Raise PermissionError for every action but reading and computing; an audit hook.

    Some verifiers of reasoning-gym evaluate the answer as Python. With this hook, code that a
    policy finds by chance cannot write a file, start a process or open a connection. It is not a
    sandbox: an author who knows the hook can get around it.
    """
    if event == "open":
        mode, flags = arguments[1:]
        acts = set("wax+") & set(str(mode)) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    elif event in ("os.listdir", "os.scandir", "os.walk"):
        acts = False
    else:
        acts = event.startswith(("os.", "subprocess.", "socket.", "ctypes.", "builtins.input"))
    if acts:
        raise PermissionError(event)


def judge_equal(gold: str, given: str) -> float:
    """Return 1.0 if math-verify finds two expressions equal, and `same_equation` agrees."""
    from math_verify import verify
    from sympy import N, preorder_traversal

    gold_parts = parse_latex(gold)
    given_parts = parse_latex(given)
    # math-verify rounds to a number of decimal places. Small numbers need more places, so count
    # the zeros after the point of the smallest number.
    zeros = 0
    for expression in gold_parts + given_parts:
        for part in preorder_traversal(expression):
            size = abs(complex(N(part, 3))) if getattr(part, "is_number", False) else 0
            if 0 < size < 1:
                zeros = max(zeros, -math.floor(math.log10(size)))
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

    digits_of = {float(digits): digits for digits in re.findall(r"\d*\.\d+", text)}
    exact = {}
    for decimal in expression.atoms(Float):
        digits = digits_of.get(abs(float(decimal)), "0.0")
        unit = Rational(1, 10 ** len(digits.partition(".")[2]))
        rounded = Rational(digits) * (-1 if decimal < 0 else 1)
        for part in (part for gold in gold_parts for part in preorder_traversal(gold)):
            is_value = getattr(part, "is_number", False) and part.is_real and not part.is_rational
            if is_value and abs(rounded) >= 10**5 * unit and Abs(part - rounded) < unit / 2:
                exact[decimal] = part
    return expression.xreplace(exact)


def same_equation(gold, given) -> bool:
    """Return whether each given equation is a multiple of one of the row's; True if the row has
    none. The equations may be members of a list, but not the steps of a chain.

    math-verify compares real solutions only, so x^2+1=0 and x^2+5=0, which have none, are equal to
    it.
    """
    from sympy import And, Eq, simplify

    equations = set() if isinstance(gold, And) else gold.atoms(Eq)
    for equation in given.atoms(Eq) if equations else ():
        sides = equation.lhs - equation.rhs
        ratios = [simplify((one.lhs - one.rhs) / sides) for one in equations]
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


def prepare(kind: str, row: list) -> None:
    """Prepare what a row's own data needs, which is not the policy's doing and has no limit."""
    if kind == "task":
        with suppress(Exception):  # an unknown family: the judgement will fail, too
            verifier_of(row[0])


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
