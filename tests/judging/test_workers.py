"""Judgements in worker processes: honest pairs get the correct verdict, hostile ones a wrong one,
in time.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from helpers.judging import workers
from helpers.rewards.correctness import correctness_reward

linux = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="reads /proc")
numbers = itertools.count(1000)


def fresh(same: bool = True) -> tuple[str, str]:
    """Return two new expressions, equal or not, which no cache has seen."""
    number = next(numbers)
    return f"{number}x + x", f"{number + 1 if same else number}x"


def are_equal(pairs: list[tuple[str, str]]) -> list[bool]:
    return [score == 1.0 for score in workers.scores_in_time("equal", pairs)]


def alive() -> list[int]:
    """Return the process ids of the running workers of this process."""
    every = [worker for several in workers._workers.values() for worker in several]
    return [w.process.pid for w in every if w.process is not None and w.process.poll() is None]


# --- Questions ------------------------------------------------------------------------------------


def test_the_answers_come_in_the_order_of_the_questions():
    # Enough rows for several workers, with repeats.
    pairs = [(f"{n}x + x", f"{n + n % 2 + 1}x") for n in range(24)] * 2
    assert are_equal(pairs) == [n % 2 == 0 for n in range(24)] * 2
    assert are_equal([]) == []


# --- Hostile ones ---------------------------------------------------------------------------------

BOMBS = [
    "9^{9^{9^{9}}}",
    r"\binom{10^8}{10^7}",
    "10000000!",
    r"\sum_{n=1}^{10^{9}} n^n",
    r"\prod_{n=1}^{10^{9}} n",
    r"\int_0^1 x^{x^{x^x}} dx",
    "(x+1)^{9999999}",
    "(x+y+z)^{500}",
    r"\sqrt[9999999]{9^{99999999}}",
    "{" * 10_000 + "x" + "}" * 10_000,
    "(" * 5_000 + "x" + ")" * 5_000,
    r"\frac{" * 3_000,
    "x" * 100_000,
    "1+" * 5_000 + "1",
    "9" * 100_000,
    "x_" * 2_000,
    "\x00",
    "\ud800",
    '"\n\\u0000\n',
    "\u202e42",
]


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_no_right_answer_and_the_next_question_is_answered(bomb):
    assert are_equal([("x^2 + 2x + 1", bomb), fresh()]) == [False, True]


CODE = [
    "__import__('os').system('touch {path}')",
    "__import__('pathlib').Path('{path}').touch()",
    "open('{path}', 'w')",
    "exec(\"open('{path}', 'w')\")",
    "eval(\"open('{path}', 'w')\")",
    "[open('{path}', 'w') for x in (1,)]",
    "sympify(\"open('{path}', 'w')\")",
    r"\input{{|touch {path}}}",
    r"}} + open('{path}', 'w') + \boxed{{",
    r"\operatorname{{open}}('{path}', 'w')",
    '"], "w"]\nopen("{path}", "w")\n',
]


@pytest.mark.parametrize("code", CODE, ids=range(len(CODE)))
def test_code_is_not_run(tmp_path, code):
    path = tmp_path / "ran"
    code = code.format(path=path)
    assert are_equal([("4", code), (code, "4"), ("x+1", code)]) == [False] * 3
    assert not path.exists()


# The last pair takes a third of a second in a worker that has just started.
FIRST = [
    (r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}", r"F_n = \sum_{k=0}^{n-1} F_{n-k-1} F_k"),
    (r"-2 \le x \le 7", "[-2,7]"),
    (
        r"(\frac{1}{2}+\frac{31\sqrt{5}}{216}, \frac{1}{2}-\frac{31\sqrt{5}}{216})",
        r"(\frac{108 + 31\sqrt{5}}{216}, \frac{108 - 31\sqrt{5}}{216})",
    ),
]


@pytest.mark.parametrize("pair", FIRST, ids=range(len(FIRST)))
def test_the_first_verdict_of_a_worker_is_right(pair, monkeypatch):
    worker = workers.Worker("equal")
    monkeypatch.setitem(workers._workers, "equal", [worker])
    right = are_equal([pair])
    worker.process.kill()
    worker.process.communicate()
    assert right == [True]


def test_a_row_whose_child_was_killed_in_its_slice_gets_the_time_that_a_late_row_gets(monkeypatch):
    """On a slow machine an honest judgement may be in one long operation when its slice ends."""
    worker = workers.Worker("equal")
    worker.wait_until_ready()
    reply, killed = worker.next_line, iter([workers._KILLED])

    def first_is_killed(seconds: float) -> str:
        line = reply(seconds)
        return next(killed, line)

    monkeypatch.setattr(worker, "next_line", first_is_killed)
    pair = fresh()
    scores = worker.scores_of([pair])
    worker.end()
    assert scores == {pair: 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", ["9^{{9^{{9^{{{n}}}}}}}", "{n}0000000!", "(x+{n}){parts}"])
def test_bombs_that_are_half_a_batch_are_bounded_and_cost_no_answer_its_verdict(bomb):
    are_equal([fresh() for _ in range(16)])
    parts = "".join(f"(x+{n})" for n in range(100, 140))
    bombs = [("x^2 + 2x + 1", bomb.format(n=n, parts=parts)) for n in range(1, 33)]
    honest = [  # longer than most bombs
        (f"(x+{n})(x+{n + 9})", f"x^2 + {2 * n + 9}x + {n * (n + 9) + (n % 3 == 0)}")
        for n in range(32)
    ]
    processes = [psutil.Process(pid) for pid in alive()]
    before = [process.cpu_times().user for process in processes]
    with pytest.warns(UserWarning, match="32 of 64"):
        assert are_equal(bombs + honest) == [False] * 32 + [n % 3 > 0 for n in range(32)]
    for process, used in zip(processes, before, strict=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # killed with a bomb
            assert process.cpu_times().user - used < 8, "seconds; 0.7 each would be 22 in all"


@pytest.mark.parametrize("beside", ["hostile answers", "hostile answers and busy processes"])
def test_no_answer_of_the_table_loses_its_verdict_to_its_neighbours(beside):
    """A sample of the table's mathematics, each beside 62 answers that never end."""
    table = Path(__file__).parent / "answers.jsonl"
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    right = [row for row in rows if row["kind"] == "mathematics" and row["right"]][::8]
    hostile = [f"9^{{9^{{9^{{{n}}}}}}} x" for n in range(62)]
    count = 8 if "busy" in beside else 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        given = [row["given"] for row in right] + hostile
        golds = [row["gold"] for row in right] + ["x"] * len(hostile)
        blocks = [f"<think>so</think><answer>{text}</answer>" for text in given]
        scores = correctness_reward(blocks, answer=golds, kind="mathematics")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    lost = [row for row, score in zip(right, scores, strict=False) if score != 1.0]
    assert lost == [] and set(scores[len(right) :]) == {0.0}


# --- Threads and processes ------------------------------------------------------------------------


def test_several_threads_can_ask_at_once():
    batches = [[fresh(), fresh(False), fresh()] for _ in range(10)] * 2
    with ThreadPoolExecutor(4) as pool:
        hostile = pool.submit(are_equal, [fresh(), ("6x", "10000001!"), fresh(False)])
        assert list(pool.map(are_equal, batches)) == [[True, False, True]] * 20
        assert hostile.result() == [True, False, False]


@linux
def test_a_worker_killed_from_outside_is_replaced():
    assert are_equal([fresh()]) == [True]
    killed = alive()
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    assert are_equal([fresh(), fresh(False)]) == [True, False]
    assert killed and alive() and not set(alive()) & set(killed)


ASKS = """
from helpers.judging import workers
print(workers.scores_in_time("equal", [("x+1", "1+x")]), workers._workers["equal"][0].process.pid)
"""


def test_a_script_on_standard_input_has_a_worker_that_ends_with_it():
    done = subprocess.run([sys.executable], input=ASKS, capture_output=True, text=True, timeout=300)
    answer, worker = done.stdout.split()
    assert answer == "[1.0]" and done.stderr == ""
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, as it should
        psutil.Process(int(worker)).wait(20)


@linux
def test_a_forked_process_starts_its_own_worker():
    assert are_equal([fresh()]) == [True]
    ours = alive()
    child = os.fork()
    if not child:
        try:
            right = are_equal([fresh()]) == [True] and not set(alive()) & set(ours)
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert alive() == ours and are_equal([fresh()]) == [True]
