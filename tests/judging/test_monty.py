"""monty: a program that needs something monty lacks is "unsupported", other failures are errors; and
its worker processes.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandboxes import SAME, SHORT, script

from helpers.judging.programs.sandbox import Job, Limits, run_code

LACKING = [
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
    "from math import *",
    "try:\n    raise ValueError(3)\nexcept ValueError:\n    print('caught')",
    "print(object() is None)",
    "from collections.abc import Iterable",
    "from collections import OrderedDict",
    "import re\nprint(re.sub('a', lambda found: 'b', 'a'))",
    "print(bytes([1, 2]))",
    "import datetime\nprint(datetime.datetime(2020, 1, 1).toordinal())",
    "print(pow(3, -1, 7))",
    "print('é'.encode('latin1'))",
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
    # raised by the program itself, with a message like monty's
    "raise ValueError('unknown encoding')",
    "raise ValueError('above the limit')",
    "raise NameError(\"name 'memoryview' is not defined\")",
    "class date:\n    pass\ndate().year",
]


@pytest.mark.parametrize(
    ("source", "kind"),
    [*((source, "unsupported") for source in LACKING), *((source, "error") for source in FAILING)],
)
def test_a_feature_that_monty_lacks_is_unsupported_and_other_failures_are_errors(source, kind):
    outcome = script(source)
    assert outcome.kind == kind and (outcome.message or kind == "error"), outcome


# --- Worker processes -----------------------------------------------------------------------------


def test_a_deeply_nested_program_does_not_affect_the_others():
    fine = Job(SAME, [("f", (1,))])
    found = run_code([fine, Job("x = " + "-" * 40_000 + "1"), fine], SHORT, "monty")
    assert [outcome.kind for [outcome] in found] == ["value", "error", "value"]


def test_the_clock_starts_when_a_worker_is_free():
    jobs = [Job("while True: pass")] * 6 + [Job("1")]
    with ThreadPoolExecutor(7) as threads:
        found = threads.map(lambda job: run_code([job], Limits(seconds=0.4)), jobs)
    assert [one.kind for [[one]] in found] == ["timeout"] * 6 + ["value"]


def test_a_fork_raises_instead_of_waiting_forever():
    program = """
import os, sys
from helpers.judging.programs.sandbox import Job, run_code
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
