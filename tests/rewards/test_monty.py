"""What monty lacks is no failure of a program, and a failure no lack; its workers."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.rewards.code import Job, Limits, run_code
from helpers.rewards.code.gaps import before
from tests.rewards.test_sandbox import NEEDS_SANDLOCK, SAME, SHORT, script

LACKING = [
    "import sys\nsys.stdout.write('3')",
    "import heapq",
    "from string import ascii_letters",
    "from typing import NamedTuple",
    "def f():\n    yield 1",
    "class A:\n    pass\nclass B(A):\n    pass",
    "class A:\n    @property\n    def x(self):\n        return 1",
    "x = [1]\ndel x[0]",
    "print(callable(3))",
    "print((5).bit_length())",
    "print(int.from_bytes(b'a', 'big'))",
    "import sys\nprint(sys.stdin.read())",
    "from math import *",
    "print(next(x for x in [1, 2]))",
    "def f(x):\n    return map(str, x)",
    "g = (x for x in [1])\nprint(list(g), list(g))",
    "pairs = zip([1], [2])\nprint(len(list(pairs)), len(list(pairs)))",
    "try:\n    raise ValueError(3)\nexcept ValueError:\n    print('caught')",
    "class A:\n    def __len__(self):\n        return 3\nprint(len(A()))",
    "print(object() is None)",
    "from collections.abc import Iterable",
    "from collections import OrderedDict",
    "class A:\n    def __bool__(self):\n        return False\nprint(bool(A()))",
    "import re\nprint(re.sub('a', lambda found: 'b', 'a'))",
    "print(bytes([1, 2]))",
    "import datetime\nprint(datetime.datetime(2020, 1, 1).toordinal())",
    "print(pow(3, -1, 7))",
    "print('é'.encode('latin1'))",
    "print(" + "+".join(["1"] * 250) + ")",
    "print(''.join(set('ab')))",
    "print([i for i in {3, 1}])",
    "print({3}.pop())",
]
FAILING = [
    "import no_such_module",
    "from math import no_such_name",
    "print(no_such_name)",
    "print(1)\nreturn",
    "raise ModuleNotFoundError('it is gone')",
    "def f():\n    raise NotImplementedError('later')\nf()",
    "raise AttributeError(\"module 'this' has no attribute 's'\")",
    "raise SystemExit(1)",
    "[].no_such_method()",
    "sorted([1, 'a'])",
    "import math\nmath.no_such_function()",
    "assert 1 == 2",
]
FINE = [
    "print(sum(x * x for x in range(4)), any(x for x in [0]), ' '.join(map(str, [1])), "
    "dict(zip('a', [1])))",
    "for at, x in enumerate(reversed([1, 2])):\n    print(at, x)",
    "a, b = map(int, '1 2'.split())\nprint(a, b, *map(str, [3]), 3 in map(int, '3'))",
    "print(sorted(filter(None, [2, 0, 1])), list(map(lambda x: x, [1])), max(x for x in [1]))",
    "print(sorted(list(set('ba'))), len(list({1, 2})), [1].pop())",
    "import os.path\nfrom math import pi\nprint(os.path.join('a', 'b'), pi)",
    "try:\n    import no_such_module\nexcept ImportError:\n    print('without')",
    "class A:\n    pass\n{A()}",
    "def f(x):\n    if x:\n        return 1\nprint(f(1))",
]


@pytest.mark.parametrize("source", LACKING)
def test_what_monty_lacks_is_no_failure_of_the_program(source):
    outcome = script(source)
    assert outcome.kind == "unsupported" and outcome.message, outcome


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError('unknown encoding')",
        "raise NameError(\"name 'memoryview' is not defined\")",
        "class date:\n    pass\ndate().year",
    ],
)
def test_what_a_program_raises_itself_is_its_own_failure(source):
    assert script(source).kind == "error"


def test_a_program_however_nested_costs_no_other_its_verdict():
    long = "d = {1: 2}\nx = " + "+".join(["1"] * 1000)
    fine = Job(SAME, "f", ((1,),))
    found = run_code([fine, Job(long), Job("x = " + "-" * 40_000 + "1"), fine], SHORT)
    assert [outcome.kind for [outcome] in found] == ["value", "unsupported", "error", "value"]


@NEEDS_SANDLOCK
def test_auto_has_sandlock_run_what_monty_cannot():
    jobs = [Job(SAME, "f", ((1,),)), Job("import heapq\nprint(1)"), Job("1 / 0")]
    found = [outcome for [outcome] in run_code(jobs, SHORT, "auto")]
    assert [(one.kind, one.backend) for one in found] == [
        ("value", "monty"),
        ("value", "sandlock"),
        ("error", "monty"),
    ]


@pytest.mark.parametrize("source", FAILING)
def test_a_failure_of_the_program_is_no_lack_of_monty(source):
    assert script(source).kind == "error"


@pytest.mark.parametrize("source", FINE)
def test_what_is_used_up_at_once_is_no_lack_of_monty(source):
    assert before(source) is None and script(source).kind == "value"


@NEEDS_SANDLOCK
def test_cpython_agrees_about_failures():
    """What monty lacks, CPython runs; what fails in monty fails there; what is fine prints
    the same.
    """
    lacking, failing, fine = (
        run_code([Job(source) for source in group], SHORT, "sandlock")
        for group in (LACKING, FAILING, FINE)
    )
    assert [outcome.kind for [outcome] in lacking] == ["value"] * len(LACKING)
    assert [outcome.kind for [outcome] in failing] == ["error"] * len(FAILING)
    assert [outcome.output for [outcome] in fine] == [script(source).output for source in FINE]


# --- Many at once ---------------------------------------------------------------------------------


def test_waiting_for_a_worker_is_not_the_programs_time():
    jobs = [Job("while True: pass")] * 3 + [Job("1")]
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda job: run_code([job], Limits(seconds=0.4), workers=1), jobs)
    assert [one.kind for [[one]] in found] == ["timeout"] * 3 + ["value"]


def test_a_fork_is_told_instead_of_waiting_for_ever():
    program = """
import os, sys
from helpers.rewards.code import Job, run_code
run_code([Job('1')])
if os.fork() == 0:
    try:
        run_code([Job('1')])
    except ValueError as error:
        sys.exit(0 if 'forked' in str(error) else 1)
print(os.wait()[1], run_code([Job('print(1)')])[0][0].output)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "0 1\n\n", done.stderr


class Rubbish:
    """What the collector of garbage finds while another object is made, and then runs code for."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        for _ in range(50):
            pass


def test_programs_are_parsed_in_many_threads():
    """Python 3.11's parser fails where a thread begins in the middle of another's work."""

    def parsed(_):
        Rubbish()
        return before("def f(x):\n    return [x + 1 for x in range(3)]\n" * 8)

    switch, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(3) as threads:
            assert set(threads.map(parsed, range(800))) == {None}
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*thresholds)
