"""Programs in a sandbox: the same outcomes from every back end, plain data only, and a sentence for
what cannot be run.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from helpers.rewards.code import SOURCE_MOST, Job, Limits, Outcome, backend_named, run_code
from helpers.rewards.code.gaps import before
from helpers.rewards.code.starter import starter

SAME = "def f(x):\n    return x"
SHORT = Limits(seconds=1.0, memory=150_000_000, output=5_000)


NO_SANDLOCK = ""  # why this machine cannot have it
try:
    backend_named("sandlock")
except ValueError as error:
    NO_SANDLOCK = str(error)
NEEDS_SANDLOCK = pytest.mark.skipif(bool(NO_SANDLOCK), reason=NO_SANDLOCK)
SANDLOCK = pytest.param("sandlock", marks=NEEDS_SANDLOCK)
BACKENDS = pytest.mark.parametrize("backend", ["monty", SANDLOCK])


def call(
    source: str, *inputs, name: str = "f", backend="monty", limits: Limits = SHORT
) -> list[Outcome]:
    [outcomes] = run_code([Job(source, name, inputs)], limits, backend)
    return outcomes


def script(
    source: str, stdin: str | None = None, backend="monty", limits: Limits = SHORT
) -> Outcome:
    [[outcome]] = run_code([Job(source, stdin=stdin)], limits, backend)
    return outcome


# --- Values ---------------------------------------------------------------------------------------

VALUES = [
    None,
    True,
    0,
    -7,
    2**53,
    -(2**200),
    0.1,
    -0.0,
    float("inf"),
    1e300,
    float("nan"),
    2 - 1j,
    "",
    "é\n\0",
    b"\x00\xff",
    [],
    [[1], []],
    (),
    (1, "a"),
    {1, 2},
    frozenset({"a"}),
    {"a": [1, {2: (3,)}]},
    {(1, 2): b"x", None: True},
]


@BACKENDS
def test_plain_data_goes_in_and_comes_out_the_same(backend):
    outcomes = call(SAME, *((value,) for value in VALUES), backend=backend)
    assert {outcome.backend for outcome in outcomes} == {backend}
    assert [outcome.kind for outcome in outcomes] == ["value"] * len(VALUES)
    assert [repr(outcome.value) for outcome in outcomes] == [repr(value) for value in VALUES]


@BACKENDS
@pytest.mark.parametrize(
    "value",
    [
        "range(3)",
        "lambda: 1",
        "int",
        "{1: 2}.items()",
        "iter([1])",
        "[1, len]",
        "...",
        "ValueError('x')",
        "{'a': range(2)}",
        "deque([1])",
        "type('A', (), {'__repr__': lambda self: '5'})()",
        "[type('A', (), {'__repr__': lambda self: '5'})()]",
        "{type('A', (), {'__repr__': lambda self: '5'})()}",
    ],
)
def test_another_type_is_an_error(backend, value):
    [outcome] = call(
        f"from collections import deque\ndef f():\n    return {value}", (), backend=backend
    )
    assert (outcome.kind, outcome.error) == (
        "error",
        "TypeError",
    ) and "only plain data" in outcome.message


@BACKENDS
def test_a_dictionary_of_the_library_is_one(backend):
    source = (
        "from collections import Counter, defaultdict\ndef f(x):\n    d = "
        "defaultdict(list)\n    d[1] += x\n"
    )
    source += "    return [Counter(x), d]"
    assert call(source, (["a", "a"],), backend=backend)[0].value == [{"a": 2}, {1: ["a", "a"]}]


@BACKENDS
def test_more_than_the_limit_is_no_value(backend):
    source = "def f(n):\n    return 'x' * n"
    short, long = call(source, (4_000,), (6_000,), backend=backend)
    assert short.value == "x" * 4_000 and long.kind == "output" and long.value is None


# --- Calls and scripts ----------------------------------------------------------------------------


@BACKENDS
def test_every_input_has_its_own_outcome(backend):
    source = "def f(a, b=2):\n    print('got', a)\n    return a / b"
    right, wrong, few = call(source, (4,), (1, 0), (), backend=backend)
    assert (right.kind, right.value, right.output) == ("value", 2.0, "got 4\n")
    assert (wrong.kind, wrong.error, wrong.line, wrong.output) == (
        "error",
        "ZeroDivisionError",
        3,
        "got 1\n",
    )
    assert (few.kind, few.error) == ("error", "TypeError")


@BACKENDS
def test_each_input_may_have_a_function_of_its_own(backend):
    source = "def f(x):\n    return x\ndef g(x):\n    return -x"
    job = Job(source, ("f", "g", "h"), ((1,), (2,), (3,)))
    [[one, other, none]] = run_code([job], SHORT, backend)
    assert (one.value, other.value, none.error) == (1, -2, "NameError") and "'h'" in none.message


@BACKENDS
@pytest.mark.parametrize(
    ("source", "value", "error"),
    [
        ("def f(x):\n    return sum(x)", None, "NameError"),
        ("def sum(x):\n    return 'mine'", "mine", ""),
        ("list = dict = type = len = repr = isinstance = 3\nsum = lambda x: x", [1, 2], ""),
    ],
)
def test_only_what_the_program_names_is_there(backend, source, value, error):
    [outcome] = call(source, ([1, 2],), name="sum", backend=backend)
    assert (outcome.value, outcome.error) == (value, error)


@BACKENDS
def test_a_block_for_scripts_is_not_run_for_a_function(backend):
    source = (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef f():\n    "
        "return [__name__, A(1).x]\n"
    )
    [outcome] = call(
        source + "if __name__ == '__main__':\n    print(input())\n", (), backend=backend
    )
    assert outcome.value == ["program", 1] and outcome.output == ""


@BACKENDS
def test_a_program_that_fails_fails_for_every_input(backend):
    outcomes = call("x = [][1]\n" + SAME, (1,), (2,), backend=backend)
    assert [(outcome.kind, outcome.error, outcome.line) for outcome in outcomes] == [
        ("error", "IndexError", 1)
    ] * 2


@BACKENDS
def test_a_script_reads_many_lines_and_more_than_a_pipe_holds(backend):
    stdin = "\n".join(["x" * 97, *map(str, range(3000)), "y" * 90_000])
    source = "print(len(input()), sum(int(input()) for at in range(3000)), len(input()))\n"
    source += "if __name__ == '__main__':\n    print('end')"
    outcome = script(source, stdin, backend)
    assert (outcome.kind, outcome.output) == ("value", "97 4498500 90000\nend\n")


@BACKENDS
def test_a_script_that_reads_too_much(backend):
    for stdin in ("a", "a\n"):
        outcome = script("input('? ')\nprint('one')\ninput()", stdin, backend)
        assert (outcome.kind, outcome.error, outcome.output) == ("error", "EOFError", "? one\n")


def test_what_a_script_reads_counts_for_its_memory_and_must_be_text():
    job = Job("print(len(input()))", stdin=("x", "x" * 10**7, "\ud800"))
    [outcomes] = run_code([job], Limits(memory=1_000_000))
    assert [one.kind for one in outcomes] == ["value", "memory", "error"]


@BACKENDS
@pytest.mark.parametrize(
    "source", ["x = ", "def f(:\n    pass", "if True:\nx = 1", "return 1", "x = 08"]
)
def test_what_is_no_python_is_a_syntax_error(backend, source):
    outcome = script(source, backend=backend)
    assert (
        outcome.kind == "error"
        and outcome.error in ("SyntaxError", "IndentationError")
        and outcome.line
    )


@BACKENDS
def test_nothing_passes_from_one_program_or_input_to_the_next(backend):
    first = Job(
        "import math\nleft = 5\ndef f(x):\n    x.append(1)\n    return x", "f", (([],), ([],))
    )
    second = Job("def f():\n    return left", "f", ((),))
    for jobs in ([first, second], [second]):
        outcomes = run_code(jobs, SHORT, backend, workers=1)
        assert outcomes[-1][0].error == "NameError"
    assert [outcome.value for outcome in run_code([first], SHORT, backend)[0]] == [[1], [1]]


@BACKENDS
def test_a_verdict_is_the_same_each_time(backend):
    source = "import random\nprint([random.random() for at in range(3)], {'a', 'b', 'c', 'd'})"
    assert len({script(source, backend=backend).output for at in range(3)}) == 1


# --- Limits ---------------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("while True: pass", "timeout"),
        ("return len([0] * 10 ** 9)", "memory"),
        ("while True: print('x' * 99)", "output"),
    ],
)
def test_a_limit_ends_the_inputs_that_follow_too(backend, body, kind):
    source = f"def f(n):\n    if n == 1:\n        return 'first'\n    {body}"
    outcomes = call(source, (1,), (2,), (3,), backend=backend)
    assert outcomes[0].value == "first" and [outcome.kind for outcome in outcomes[1:]] == [kind] * 2


@BACKENDS
def test_the_time_is_for_all_inputs_together(backend):
    source = "def f(n):\n    x = 0\n    for at in range(10 ** 5):\n        x += at\n    return n"
    kinds = [
        outcome.kind for outcome in call(source, *((n,) for n in range(1000)), backend=backend)
    ]
    assert kinds[0] == "value" and kinds[-1] == "timeout" and kinds == sorted(kinds, reverse=True)


@BACKENDS
def test_the_time_is_for_all_runs_of_a_script_together(backend):
    source = "if input() == 'loop':\n    while True: pass\nprint('done')"
    began = time.monotonic()
    job = Job(source, stdin=("go", "loop", "loop", "loop", "go"))
    [outcomes] = run_code([job], Limits(seconds=1.0), backend)
    assert [one.kind for one in outcomes] == ["value"] + ["timeout"] * 4
    assert outcomes[0].output == "done\n" and time.monotonic() - began < 3.0


@BACKENDS
def test_no_program_starts_after_the_batchs_time(backend):
    looping = Job("while True: pass")
    limits = Limits(seconds=0.5, batch=0.2)
    found = run_code([looping, Job(SAME, "f", ((1,), (2,)))], limits, backend, workers=1)
    assert [[one.kind for one in outcomes] for outcomes in found] == [
        ["timeout"],
        ["not started"] * 2,
    ]
    assert "the batch's 0.2 seconds were over" in found[1][0].message


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": 0},
        {"seconds": "2"},
        {"memory": 1.5},
        {"output": -1},
        {"seconds": True},
        {"seconds": 1e999},
        {"batch": 0},
    ],
)
def test_limits_that_are_none(limits):
    [name] = limits
    with pytest.raises(ValueError, match=f"the limit {name}=.* is not a positive"):
        Limits(**limits)


# --- What is refused ------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\n" * 170_000, f"more than {SOURCE_MOST} characters"),
        ("x = '\ud800'", "surrogates not allowed"),
        ("x = 1\0", "null bytes"),
    ],
)
def test_programs_that_are_none(backend, source, words):
    outcomes = call(source, (1,), (2,), backend=backend)
    assert [outcome.kind for outcome in outcomes] == ["error"] * 2 and words in outcomes[0].message


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (Job("x = 1", inputs=((1,),)), "needs call"),
        (Job("x = 1", call="f(1)"), "not the name of a function"),
        (Job("x = 1", call="f", inputs=(1,)), r"write \(1,\)"),
        (Job("x = 1", call="f", inputs=((range(3),),)), "a value of type range"),
        (Job("x = 1", call=("f", "g(1)"), inputs=((1,), (2,))), "not the name of a function"),
    ],
)
def test_jobs_that_a_caller_got_wrong(job, words):
    with pytest.raises(ValueError, match=words):
        run_code([job])


def test_a_back_end_that_is_not_known():
    with pytest.raises(ValueError, match=r"'docker' is not known.*Known: monty, sandlock, auto"):
        run_code([Job("1")], backend="docker")


@pytest.mark.parametrize(
    ("name", "module"), [("monty", "pydantic_monty"), ("sandlock", "sandlock")]
)
def test_a_back_end_that_is_not_installed(name, module, monkeypatch):
    from helpers.rewards.code import sandlock

    monkeypatch.setitem(sys.modules, module, None)
    sandlock._possible.cache_clear()
    with pytest.raises(
        ValueError, match=f"'{name}' is not installed: `pip install {module.replace('_', '-')}=="
    ):
        run_code([Job("1")], backend=name)


@NEEDS_SANDLOCK
def test_a_machine_that_cannot_have_sandlock(monkeypatch):
    from helpers.rewards.code import sandlock

    monkeypatch.setattr(sandlock, "_python", lambda: "/no/such/python")
    sandlock._possible.cache_clear()
    with pytest.raises(ValueError, match=r"does not start here .*older than Linux"):
        run_code([Job("1")], backend="sandlock")


def test_the_limits_that_the_docs_name():
    assert Limits() == Limits(seconds=2.0, memory=256_000_000, output=64_000, batch=300.0)


def test_nothing_to_do():
    assert run_code([]) == [] and run_code([Job(SAME, "f", ())]) == [[]]


# --- What monty lacks -----------------------------------------------------------------------------

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
    "raise ValueError('too deeply nested')",
    "def f(g):\n    await g",
    "raise NotImplementedError('The monty syntax parser does not yet support this')",
    "raise ModuleNotFoundError('it is gone')",
    "raise SystemExit(1)",
    "[].no_such_method()",
    "class Counter:\n    pass\nCounter().most_common",
    "class int:\n    pass\nint().bit_length",
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
]


@pytest.mark.parametrize("source", LACKING)
def test_what_monty_lacks_is_no_failure_of_the_program(source):
    outcome = script(source)
    assert outcome.kind == "unsupported" and outcome.message, outcome


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


# --- Our own process ------------------------------------------------------------------------------

REFUSED = {  # what the docs say that no program can do, with PID for our process and FILE for a file
    "read a file": "open(FILE)",
    "list a folder": "os.listdir(os.path.dirname(FILE))",
    "read another process's environment": "open(f'/proc/{PID}/environ')",
    "change a file's mode": "os.chmod(FILE, 0o777)",
    "change its mode at once": "os.fchmod(os.open(os.__file__, 0), 0o777)",
    "change its owner": "os.chown(FILE, 0, 0)",
    "change its times": "os.utime(FILE, (1, 1))",
    "change its attributes": "os.setxattr(FILE, 'user.x', b'1')",
    "change its flags": "fcntl.ioctl(os.open(os.__file__, 0), 0x40086602, b'0' * 8)",
    "write a file": "open('x', 'w')",
    "write a file without a name": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "write a file of memory": "os.memfd_create('x')",
    "watch files": "libc(294, 0)",
    "open a socket": "socket.socket(socket.AF_UNIX)",
    "open a socket of the kernel": "socket.socket(socket.AF_NETLINK)",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "read the kernel's log": "libc(103, 10, 0, 0)",
    "change its root": "os.chroot('/')",
    "start a process": "os.fork()",
    "start a process beside its own": "libc(56, 0x8011, 0, 0, 0, 0)",
    "signal the process that forked it": "os.kill(os.getppid(), 0)",
    "signal another process": "os.kill(PID, 0)",
    "slow another process": "os.setpriority(0, PID, 19)",
    "bind another process": "os.sched_setaffinity(PID, {0})",
    "limit another process": "resource.prlimit(PID, resource.RLIMIT_NOFILE, (77, 77))",
    "hold another process": "os.pidfd_open(PID)",
    "see what another process has open": "os.readlink(f'/proc/{PID}/exe')",
    "leave a lock": "fcntl.flock(2, fcntl.LOCK_EX)",
    "leave a note among the locks": "fcntl.fcntl(2, 37, struct.pack('hhqqi4x', 1, 0, 5, 1, 0))",
    "leave a flag of a file": "fcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK)",
    "outlive the process that forked it": "libc(157, 1, 0, 0, 0, 0)",
    "hold memory that no limit counts": "libc(278, 1, 0, 0, 0)",
}


@NEEDS_SANDLOCK
def test_sandlock_refuses_what_the_docs_say(tmp_path):
    file = tmp_path / "bait"
    file.write_text("x")
    before_it = (file.stat().st_mode, file.stat().st_uid, file.stat().st_mtime_ns)
    tries = ",\n".join(f"({name!r}, lambda: {code})" for name, code in REFUSED.items())
    source = f"""
import ctypes, fcntl, os, resource, socket, struct, time
FILE, PID = {str(file)!r}, {os.getpid()}
def libc(*given):
    if ctypes.CDLL(None).syscall(*given) < 0:
        raise OSError
def f():
    done = []
    for name, one in [{tries}]:
        try:
            one()
            done.append(name)
        except OSError:
            pass
    return done + [os.getuid() == 0]
"""
    [outcome] = call(source, (), backend="sandlock", limits=Limits(seconds=20.0))
    assert outcome.value == [False], outcome
    assert before_it == (file.stat().st_mode, file.stat().st_uid, file.stat().st_mtime_ns)


AFTER = [  # what a program does, and what it comes to
    ("os.kill(-1, 9)", "value"),
    ("os.killpg(os.getpgid(os.getppid()), 9)", "error"),
    ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
    ("os.closerange(0, 32)\nwhile True: pass", "error"),
    ("os.execv(sys.executable, ['', '-c', 'while True: pass'])", "error"),
    ("os._exit = lambda code: None", "value"),
    ("os._exit(0)", "error"),
    ("while True: os.write(3, b'x' * 65_536)", "output"),
    ("os.write(3, b'\\n' * 9)", "error"),
    ("os.write(3, b'[' * 50_000 + b'\\n')", "error"),
    ("x = bytearray(110_000_000)\nrandom.seed(1)", "value"),
    ("x = bytearray(160_000_000)", "memory"),
]


def ours() -> set[int]:
    """The processes under this one."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


@NEEDS_SANDLOCK
def test_whatever_a_program_does_the_next_is_run_as_ever():
    asked = Job("import os, random, sys\nprint(sys.argv, random.random(), os.getppid())")
    [[first]] = run_code([asked], SHORT, "sandlock", workers=1)
    at_first = ours()
    for source, kind in AFTER:
        job = Job("import os, random, signal, sys\n" + source)
        [one], [then] = run_code([job, asked], SHORT, "sandlock", workers=1)
        assert (one.kind, then) == (kind, first), source
    assert ours() == at_first, "the same starter served them all, and nothing is left"
    [[large]] = run_code([Job("x = bytearray(160_000_000)")], Limits(), "sandlock", workers=1)
    assert large.kind == "value", "the limit is the program's, not the starter's"


@NEEDS_SANDLOCK
def test_a_program_holds_nothing_but_its_own_pipes():
    source = """
import os, stat
held = []
for file in range(64):
    try:
        mode = os.fstat(file).st_mode
        held.append("pipe" if stat.S_ISFIFO(mode) else os.fstat(file).st_rdev)
    except OSError:
        pass
print(held == ["pipe", os.makedev(1, 3), os.makedev(1, 3), "pipe"], held)
"""
    assert script(source, backend="sandlock").output.startswith("True")


@NEEDS_SANDLOCK
def test_the_processes_end_with_ours():
    program = """
import os, psutil, threading, time
from helpers.rewards.code import Job, Limits, run_code
run_code([Job("1")], Limits(), "sandlock")
looping = lambda: run_code([Job("while True: pass")], Limits(seconds=99), "sandlock", workers=1)
threading.Thread(target=looping, daemon=True).start()
below = []
while len(below) < 3:  # the launcher, the starter, and the child
    below = [process.pid for process in psutil.Process().children(recursive=True)]
print(*below, flush=True)
os.kill(os.getpid(), 9)
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    below = [int(number) for number in done.stdout.split()]
    ends = time.monotonic() + 30
    while any(map(psutil.pid_exists, below)) and time.monotonic() < ends:
        time.sleep(0.1)
    assert len(below) == 3 and not any(map(psutil.pid_exists, below)), done.stderr


@NEEDS_SANDLOCK
def test_a_starter_that_failed_is_ended():
    with pytest.raises(KeyboardInterrupt), starter({}, ["/no/such/program"]) as one:
        raise KeyboardInterrupt
    assert one.launcher.returncode is not None
