"""The reward for programs: which code of a completion is run, what it earns, and which programs cannot
be judged.
"""

import re
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sandboxes import NEEDS_SANDLOCK

from examples.more_rewards import code_format_reward
from helpers.judging.programs.monty import Sandbox
from helpers.judging.programs.sandbox import Limits, Outcome, used_sandboxes
from helpers.laboratory.measures import Lab
from helpers.laboratory.program_attacks import CODE_BATTERY
from helpers.laboratory.under_test import HONEST_CORRECT, HONEST_WRONG
from helpers.rewards.programs import looks_up, program_of, tests_reward, verdicts
from helpers.tags import THINK_ANSWER

ADD = [
    "assert add(1, 2) == 3",
    "assert add(0, 0) == 0",
    "assert add(-1, 1) == 0",
    "assert add(2, 2) == 4",
]
RIGHT_ADD = "def add(a, b):\n    return a + b\n"
SUM = [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "4 5 6\n", "stdout": "15\n"}]
CODE_SET = [partial(tests_reward, share=False), code_format_reward], [1.0, 0.25]


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```\n"


def judged(completions: list, **columns) -> tuple[list, list[str], dict]:
    """Return the scores, warnings and metrics of one call."""
    metrics = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = tests_reward(completions, log_metric=metrics.__setitem__, **columns)
    return scores, [str(w.message) for w in caught], metrics


class Counting(Sandbox):
    """monty, with a list of the jobs it ran. fails: if given, the kind of every outcome."""

    def __init__(self, fails: str = ""):
        super().__init__()
        self.jobs = []
        self.fails = fails

    def run(self, job, limits):
        self.jobs.append(job)
        return [Outcome(self.fails)] * job.count if self.fails else super().run(job, limits)


# --- Which code counts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("x = 1", "x = 1"),
        (fenced("x = 1"), "x = 1\n"),
        (f"Here it is:\n{fenced('x = 1')}I hope it helps.", "x = 1\n"),
        (fenced("x = 1", "Python"), "x = 1\n"),
        (fenced("x = 1", "py"), "x = 1\n"),
        (fenced("x = 1", ""), "x = 1\n"),
        (fenced("x = 1") + fenced("x = 2"), "x = 2\n"),
        (fenced("x = 1") + "which prints\n" + fenced("1", ""), "x = 1\n"),
        (fenced("x = 1") + fenced("1", "text"), "x = 1\n"),
        (fenced("x = 1", "") + fenced("x = 2", ""), "x = 2\n"),
        (fenced("x = 1", "rust"), ""),
        ("```python\nx = 1", ""),
        (fenced("x = 1") + "```python\nx = 2", ""),
        (fenced(""), "\n"),
        # fences of every kind, anywhere in the text
        ("Here: ```python\nx = 1\n```", "x = 1\n"),
        ("Use `f`: ```python\nx = 1\n```", "x = 1\n"),
        ("Use ```f``` so\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1```", "x = 1"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("~~~~ py\nx = 1\n~~~~", "x = 1\n"),
        ("1. So:\n   ```python\n   if x:\n       y = 1\n   ```\n", "if x:\n    y = 1\n"),
        ("\t```py\n\tx = 1\n\t```", "x = 1\n"),
        ("````python\nx = '```'\n````", "x = '```'\n"),
        ("```python\nx = 1\n~~~\ny\n```", "x = 1\n~~~\ny\n"),
        ('```python title="a"\nx = 1\n```', "x = 1\n"),
        ("say ```x``` in one line", ""),
        ("", ""),
        (None, ""),
        ([{"role": "assistant", "content": fenced("x = 1")}], "x = 1\n"),
        ([{"role": "user", "content": fenced("x = 1")}], ""),
    ],
)
def test_the_last_closed_block_in_python_counts(text, program):
    assert program_of(text) == program


def test_with_tags_only_the_answer_block_counts():
    text = THINK_ANSWER.render(f"\n{fenced('x = 1')}", f"\n{fenced('x = 2')}")
    assert program_of(text, THINK_ANSWER) == "x = 2\n" == program_of(text)
    assert program_of(THINK_ANSWER.render(fenced("x = 1"), "x = 2"), THINK_ANSWER) == "x = 2"
    assert program_of(fenced("x = 1"), THINK_ANSWER) == ""


# --- Scores ---------------------------------------------------------------------------------------

EARNED = {  # a program, and the share of the four tests that it passes
    RIGHT_ADD: 1.0,
    "def add(a, b):\n    return 0": 0.5,
    "def add(a, b):\n    return None": 0.0,
    "def add(a, b):\n    return 0 if a < 1 else a // 0": 0.5,
    "def add(a, b):\n    return float(a + b)": 1.0,
    "def add(a, b):\n    return str(a + b)": 0.0,
    "def add(a, b):\n    return [a + b]": 0.0,
    "def add(a):\n    return a": 0.0,
    "def plus(a, b):\n    return a + b": 0.0,
    "add = 3": 0.0,
    "def add(a, b:\n    return a + b": 0.0,
    "1 / 0\n" + RIGHT_ADD: 0.0,
    "def add(a, b):\n    while True: pass": 0.0,
    "def add(a, b):\n    while a == 2: pass\n    return a + b": 0.75,
    "def add(a, b):\n    return 'x' * 100_000": 0.0,
    "def add(a, b):\n    return add": 0.0,
    "": 0.0,
    "# add": 0.0,
    RIGHT_ADD + "#" * 1_000_000: 0.0,
    RIGHT_ADD + "# \ud800": 0.0,
}


def test_a_program_earns_the_share_of_tests_that_it_passes():
    completions = [fenced(code) for code in EARNED]
    columns = {"tests": [ADD] * len(EARNED), "limits": Limits(seconds=0.5)}
    share = tests_reward(completions, **columns)
    assert dict(zip(EARNED, share, strict=True)) == EARNED
    whole = tests_reward(completions, share=False, **columns)
    assert whole == [float(earned == 1.0) for earned in EARNED.values()]


@pytest.mark.parametrize(
    ("program", "earned"),
    [
        ("print(sum(map(int, input().split())))", 1.0),
        ("print(3)", 0.5),
        ("print(sum(map(int, input().split())), ' \\t')\nprint()\nprint()", 1.0),
        ("print('', sum(map(int, input().split())))", 0.0),
        ("print()\nprint(sum(map(int, input().split())))", 0.0),
        ("print('The sum is', sum(map(int, input().split())))", 0.0),
        ("print(sum(map(int, input().split())))\n1 / 0", 0.0),
        ("", 0.0),
    ],
)
def test_a_script_must_print_the_expected_lines_except_for_trailing_spaces(program, earned):
    assert tests_reward([fenced(program)], tests=[SUM]) == [earned]


def test_each_row_has_its_own_tests_and_entry_point():
    check = "def check(candidate):\n    assert candidate(2) == 4\n"
    bodies = ["def double(n):\n    return 2 * n", "def square(n):\n    return n * n"]
    both = [*bodies, *bodies]
    points = ["double", "square", "square", "double"]
    assert tests_reward(both, tests=[check] * 4, entry_point=points) == [1.0, 1.0, 0.0, 0.0]
    assert tests_reward(bodies[:1] * 2, tests=[check] * 2, entry_point="double") == [1.0, 1.0]
    # functions of one program are tested together
    tests = ["assert double(2) == 4", "assert square(3) == 9", "assert square(1) == 2"]
    assert tests_reward(["\n".join(bodies)], tests=[tests]) == [pytest.approx(2 / 3)]


def test_rows_whose_arrays_differ_only_in_the_middle_are_judged_apart():
    """Parquet returns arrays, and the repr of a long array omits its middle."""
    rows = [
        [{"call": "f", "args": [], "value": np.array([*range(1000), n, *range(1000)])}]
        for n in (1, 2)
    ]
    program = "def f():\n    return [*range(1000), 2, *range(1000)]"
    assert tests_reward([program] * 2, tests=[np.array(tests) for tests in rows]) == [0.0, 1.0]


# --- Programs that cannot be judged ---------------------------------------------------------------


def test_completions_without_a_verdict_score_none_and_are_counted_in_one_warning():
    good, needs = fenced(RIGHT_ADD), fenced("import heapq\n" + RIGHT_ADD)
    tests = [ADD, "not json [", ADD[:2], [], ["assert add(x, 1) == 2"], ADD[:2]]
    completions = [good, good, needs, good, good, needs]
    scores, (warning,), metrics = judged(completions, tests=tests, sandbox="monty")
    assert scores == [1.0, None, None, None, None, None]
    assert re.match("tests_reward: 5 of 6 .*: 3 × .* 2 × .*heapq", warning)
    assert metrics == {
        "tests_reward/unreadable": 0.5,
        "tests_reward/unsupported": 2 / 6,
        "tests_reward/not_started": 0.0,
        "tests_reward/out_of_time": 0.0,
    }
    assert judged(["print(3)"])[0] == [None], "the data has no tests"


@pytest.mark.filterwarnings("ignore:.*cannot run")
@pytest.mark.parametrize("beside", ["def add(a, b):\n    return 7", RIGHT_ADD, ""])
def test_a_program_that_cannot_be_run_scores_0_beside_a_judged_one(beside):
    """With a None, it would leave its group and escape the negative advantage of a wrong program."""
    lacking = [f"import heapq\n{RIGHT_ADD}", f"{RIGHT_ADD}def g():\n    yield 1"]
    in_monty = partial(tests_reward, sandbox="monty")
    assert in_monty(lacking, tests=[ADD] * 2) == [None, None], "the row may need it"
    earned = [0.0, 0.0, float(beside == RIGHT_ADD)]
    assert in_monty([*lacking, beside], tests=[ADD] * 3) == earned
    assert in_monty([*lacking, beside], tests=[ADD, ADD, ADD[:1]])[:2] == [None, None]


@NEEDS_SANDLOCK
def test_what_monty_cannot_judge_is_judged_by_cpython_where_sandlock_works():
    used_sandboxes.clear()
    programs = [f"import heapq\n{RIGHT_ADD}", f"{RIGHT_ADD}class A(int):\n    pass", RIGHT_ADD]
    wrong = [each.replace("a + b", "a - b") for each in programs]
    assert tests_reward(programs + wrong, tests=[ADD] * 6) == [1.0] * 3 + [0.25] * 3
    ordered = "def f(x): return list(set(x))"
    assert tests_reward([ordered], tests=[["assert f([3, 1, 2]) == [1, 2, 3]"]]) == [1.0]
    assert used_sandboxes >= {"monty", "sandlock"}


@pytest.mark.parametrize(
    ("kind", "score", "expected"),
    [("timeout", 0.0, []), ("not started", None, ["1 × programs that were not started"])],
)
def test_a_time_out_scores_0_and_a_failure_of_the_machine_is_none_with_a_warning(
    kind, score, expected
):
    scores, warned, metrics = judged([RIGHT_ADD], tests=[ADD], sandbox=Counting(kind))
    assert scores == [score] and metrics["tests_reward/not_started"] == len(expected)
    assert len(warned) == len(expected) and all(map(str.__contains__, warned, expected))


DIFFERENT = [  # a program, its test, its score in monty
    # programs for which monty differs from CPython and raises nothing
    ("import re\ndef f(x): return re.sub('(a)', r'\\1_', x)", "assert f('ab') == 'a_b'", None),
    ("import re\ndef f(x): return re.sub('(a)', r'\\1x', x)", "assert f('ab') == 'axb'", None),
    ("import re\ndef f(x): return re.sub('(a)', r'\\1-', x)", "assert f('ab') == 'a+b'", 0.0),
    ("import re\ndef f(x): return [re.sub('a(b)', r'\\1x', x)]", "assert f('ab') == ['bx']", None),
    *[
        (f"def f(x):\n    x += {added}\n    return x", "assert f([1]) == [1, 2]", None)
        for added in ("(2,)", "{2}", "range(2, 3)", "{2: 3}", "'2'")
    ],
    ("def f(x):\n    x += 2\n    return x", "assert f([1]) == [1, 2]", 0.0),
    ("def f(x): return x + (2,)", "assert f([1]) == [1, 2]", 0.0),
    ("def f(x): return list(set(x))", "assert f([3, 1, 2]) == [1, 2, 3]", None),
    ("def f(x): return [*{y for y in x}]", "assert f([3, 1, 2]) == [1, 2, 3]", None),
    ("def f(x): return tuple(set(x) & {2, 1})", "assert f([3, 2, 1]) == (1, 2)", None),
    ("def f(x): return max(set(x), key=lambda y: 0)", "assert f([3, 1]) == 1", 0.0),
    ("def f(x): return list(set(x))", "assert set(f([3, 1])) == {1, 3}", 1.0),
    ("def f(x): return list(set(x))", "assert f([3, 1, 2]) == [3, 1, 4]", 0.0),
    ("def f(x): return sorted(set(x))", "assert f([3, 1]) == [1]", 0.0),
    # programs that use the machine are wrong
    *[
        (f"import os, sys\ndef f(x): return {reaching}", "assert f(1) == 1", 0.0)
        for reaching in ("os.abort()", "os._exit(0)", "sys.exit(0)", "exit()", "open('x').read()")
    ],
    ("__import__('os').abort()", "assert f(1) == 1", 0.0),
    ("import subprocess\ndef f(x): return x", "assert f(1) == 1", 0.0),
    # a sleep counts as time; a large set is not compared
    ("import time\ndef f(x):\n    time.sleep(10)\n    return x", "assert f(1) == 1", 0.0),
    ("import time\ndef f(x):\n    time.sleep(0.1)\n    return x", "assert f(1) == 1", 1.0),
    ("def f(x): return set(range(1001))", f"assert f(1) == {set(range(900))}", 0.0),
    ("def f(x): return [*range(1001)]", "assert len(set(f(1))) == 1001", 0.0),
]


@pytest.mark.filterwarnings("ignore:.*cannot run")
@pytest.mark.parametrize(("program", "test", "score"), DIFFERENT)
def test_known_differences_of_monty_score_none_and_using_the_machine_scores_0(program, test, score):
    assert tests_reward([program], tests=[[test]], sandbox="monty") == [score]


LOOPS = [f"while {n}: pass" for n in range(1, 63)]
WORKS = f"for _ in range(120_000): pass\n{RIGHT_ADD}"  # a fifth of its slice of BRIEF
BRIEF = Limits(seconds=0.24)  # below, a pause of the machine is as long as a slice


@pytest.mark.parametrize("beside", ["nothing", "busy processes"])
def test_programs_that_never_end_cost_no_other_program_its_verdict(beside):
    """A correct program that works for a while gets its time beside endless ones, and on a machine
    on which others are busy.
    """
    count = 0 if beside == "nothing" else 8
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        completions = [WORKS, *LOOPS, RIGHT_ADD]
        scores, warned, metrics = judged(completions, tests=[ADD] * 64, limits=BRIEF)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert scores == [1.0, *[0.0] * 62, 1.0]
    assert "62 of 64" in warned[0]
    assert metrics["tests_reward/out_of_time"] == 62 / 64


@NEEDS_SANDLOCK
def test_what_only_cpython_can_run_gets_its_time_beside_programs_that_never_end():
    works = WORKS + "import heapq\nassert add(1, 1) == 2\n"
    scores, _, _ = judged([works, *LOOPS, works], tests=[ADD] * 64, limits=Limits(seconds=0.4))
    assert scores == [1.0, *[0.0] * 62, 1.0]


# A list of numbers comes in, their sum goes out: the usual ways to read and to write.
SCRIPTS = [
    "input()\nprint(sum(map(int, input().split())))",
    "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))",
    "import sys\ninput = sys.stdin.readline\ninput()\nprint(sum(map(int, input().split())))",
    "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split()[1:])))",
    "import sys\nsys.stdout.buffer.write(b'6\\n')",
    "from sys import stdin, stdout\nstdin.readline()\n"
    "stdout.write('%d\\n' % sum(map(int, stdin.readline().split())))",
    "import sys\nlines = [line.strip() for line in sys.stdin]\nprint(sum(map(int, lines[1].split())))",
    "import sys\nprint(sum(map(int, sys.stdin.readlines()[1].split())))",
    "input()\nimport sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
    "from sys import stdin as s\ns.readline()\nprint(sum(map(int, s.readline().split())))",
    "print(sum(map(int, open(0).read().split()[1:])))",
    "import sys\nsys.setrecursionlimit(10**6)\ninput()\nprint(sum(map(int, input().split())))",
]


@pytest.mark.parametrize("program", SCRIPTS)
def test_a_script_may_read_and_write_in_the_usual_ways(program):
    test = [{"stdin": "3\n1 2 3\n", "stdout": "6\n"}]
    assert tests_reward([program], tests=[test]) == [1.0]
    assert tests_reward([program], tests=[[test[0] | {"stdout": "7\n"}]]) == [0.0]


# --- Jobs -----------------------------------------------------------------------------------------


def test_each_distinct_program_is_run_once_and_without_the_expected_values():
    sandbox = Counting()
    completions = [
        fenced(RIGHT_ADD),
        f"Sure:\n{fenced(RIGHT_ADD)}",
        fenced("def add(a, b):\n    return 1337"),
        "",
    ]
    tests = [f"{test} + 1337" for test in ADD]
    assert tests_reward(completions, tests=[tests] * 4, sandbox=sandbox) == [0.0, 0.0, 0.5, 0.0]
    assert len(sandbox.jobs) == 2 and "1337" not in repr(sandbox.jobs[0])


# --- In the laboratory ----------------------------------------------------------------------------

ROWS = pd.DataFrame(
    {
        "question": ["Add two numbers.", "The largest of a list.", "Say how long a text is."],
        "answer": [
            RIGHT_ADD,
            "```python\ndef largest(xs):\n    return max(xs)\n```",
            "def size(text):\n    return len(text)",
        ],
        "tests": [
            [ADD[0], ADD[3]],
            ["assert largest([1, 3, 2]) == 3", "assert largest([-1]) == -1"],
            '[{"call": "size", "args": ["abc"], "value": 3}]',
        ],
        "visible_tests": [
            ["assert add(2, 3) == 5"],
            ["assert largest([7]) == 7"],
            '[{"call": "size", "args": ["ab"], "value": 2}]',
        ],
    }
)


@pytest.mark.filterwarnings("ignore:.*cannot run")
def test_no_attack_on_the_code_set_wins_unless_the_tests_can_be_seen_or_guessed():
    lab = Lab(*CODE_SET)
    table = lab.attacks(ROWS, battery=CODE_BATTERY)
    assert lab.faults == [] and lab.judges() == ["tests_reward"]
    assert table.loc[table["wins"] > 0].index.tolist() == []
    assert table.loc[HONEST_CORRECT, ["tests_reward", "total"]].tolist() == [1.0, 1.25]
    assert table.loc[HONEST_WRONG, ["tests_reward", "total"]].tolist() == [0.0, 0.25]
    right = ["wrong, then correct", "correct, without a language", "correct, and what it prints"]
    assert (table.loc[right, "tests_reward"] == 1.0).all()
    assert len(CODE_BATTERY) >= 25
    wordy = "the words that a reward looks for"  # CODE_SET has a reward of this file
    assert set(table.index) >= {attack.name for attack in CODE_BATTERY} | {
        HONEST_CORRECT,
        HONEST_WRONG,
        wordy,
    }

    # a solution that fails its own tests is named before training
    tests = [*ROWS["tests"][:2], '[{"call": "size", "args": ["abc"], "value": 4}]']
    lab.attacks(ROWS.assign(tests=tests), battery=[])
    (lost,) = [said for said in lab.verdict().stops if "def size(text)" in said]
    assert "0.25 against 0.92" in lost

    # a program may contain the values of visible tests
    name = "the visible tests written down"
    assert table.loc[name, "tests_reward"] == 0.0
    seen = lab.attacks(ROWS.assign(tests=ROWS["visible_tests"]), battery=CODE_BATTERY)
    assert seen.loc[seen["wins"] > 0, "wins"].to_dict() == {name: 1.0}

    # a share of the tests can be guessed, but not all of them
    truths = {"question": "Is it even?", "answer": "def even(n):\n    return n % 2 == 0"}
    rows = pd.DataFrame(
        [truths | {"tests": ["assert even(2)", "assert not even(1)", "assert even(4) is True"]}]
    )
    guess = "always true"
    for share, earned, wins in ((True, pytest.approx(2 / 3), 1.0), (False, 0.0, 0.0)):
        guessing = Lab([partial(tests_reward, share=share)], [1.0])
        table = guessing.attacks(rows, battery=[one for one in CODE_BATTERY if one.name == guess])
        assert table.loc[guess, ["tests_reward", "wins"]].tolist() == [earned, wins]
        assert not table.loc["it prints that it passed", "wins"]
        assert guessing.verdict().go is not share
        assert ("the same score, with share=False." in str(guessing.verdict())) is share


# --- What programs did, for a reader --------------------------------------------------------------


def one_line(expression: str) -> str:
    return fenced(f"def f(xs): return {expression}")


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (one_line("sum(xs)"), "correct"),
        (one_line("len(xs)"), "wrong value"),
        (one_line("sum(xs"), "SyntaxError"),
        (one_line("xs.sum()"), "AttributeError"),
        (one_line("{(1, 2): 3}[tuple(xs)]"), "KeyError"),
        (one_line("1 / len(xs)"), "wrong value"),
        (one_line("xs[0] + xs[1]"), "IndexError"),
        ("no program", "SyntaxError"),
        ("", "no program"),
    ],
)
def test_a_verdict_names_the_first_failure(program, verdict):
    assert verdicts([program], [["assert f([1, 2]) == 3", "assert f([]) == 0"]]) == [verdict]


@pytest.mark.parametrize(
    ("expression", "looked_up"),
    [
        ("{(3, -4, 1): 0, (2, 5, 0): 7}[tuple(xs)]", True),
        ("0 if xs == [3, -4, 1] else 7", True),
        ("sum(xs)", False),
        ("sum(x for x in xs if x in (3, 4))", False),
        ("[2, 5, 1]", False),
    ],
)
def test_a_program_that_looks_up_its_answers_is_recognised(expression, looked_up):
    tests = ["assert f([3, -4, 1]) == 0", "assert f([2, 5, 0]) == 7"]
    assert looks_up(one_line(expression), tests) is looked_up
