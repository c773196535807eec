"""Programs in a sandbox: every sandbox gives the same outcomes, and only plain data comes out."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sandboxes import NEEDS_SANDLOCK, SAME, SANDBOXES, SHORT, call, script

from helpers.judging.programs import sandlock
from helpers.judging.programs.sandbox import Job, Limits, Outcome, run_code

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


@SANDBOXES
def test_plain_data_goes_in_and_comes_out_the_same(sandbox):
    outcomes = call(SAME, *((value,) for value in VALUES), sandbox=sandbox)
    assert [outcome.kind for outcome in outcomes] == ["value"] * len(VALUES)
    assert [repr(outcome.value) for outcome in outcomes] == [repr(value) for value in VALUES]


@SANDBOXES
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
def test_a_value_of_any_other_type_is_an_error(sandbox, value):
    source = f"from collections import deque\ndef f():\n    return {value}"
    [outcome] = call(source, (), sandbox=sandbox)
    assert (outcome.kind, outcome.error) == ("error", "TypeError")
    assert "plain data" in outcome.message


LIBRARY = """
from collections import Counter, defaultdict
def f(x):
    d = defaultdict(list)
    d[1] += x
    return [Counter(x), d]
"""
GUARDED = """
from dataclasses import dataclass
@dataclass
class A:
    x: int
def f():
    return [__name__, A(1).x]
if __name__ == '__main__':
    print(input())
"""
ASKING = "input('? ')\nprint('one')\ninput()"
DOUBLE = "def f(x):\n    return x\ndef g(x):\n    return -x"
OVERWRITTEN = "list = dict = type = len = repr = isinstance = 3\nsum = lambda x: x"
DIVIDED = "def f(a, b=2):\n    print('got', a)\n    return a / b"
DEEP = "def f(depth):\n    x = []\n    for at in range(depth):\n        x = [x]\n    return x"
NESTED: list = []
for _ in range(99):
    NESTED = [NESTED]
CASES = {  # a job, and the outcome of each input
    "the library's dictionaries become plain ones": (
        Job(LIBRARY, [("f", (["a", "a"],))]),
        [Outcome("value", [{"a": 2}, {1: ["a", "a"]}])],
    ),
    "a value above the limit": (
        Job("def f(n):\n    return 'x' * n", [("f", (n,)) for n in (4_000, 6_000, 1)]),
        [Outcome("value", "x" * 4_000), Outcome("output"), Outcome("value", "x")],
    ),
    "every input has its own outcome": (
        Job(DIVIDED, [("f", (4,)), ("f", (1, 0)), ("f", ())]),
        [
            Outcome("value", 2.0, output="got 4\n"),
            Outcome("error", error="ZeroDivisionError", output="got 1\n"),
            Outcome("error", error="TypeError"),
        ],
    ),
    "inputs for different functions": (
        Job(DOUBLE, [("f", (1,)), ("g", (2,)), ("h", (3,))]),
        [Outcome("value", 1), Outcome("value", -2), Outcome("error", error="NameError")],
    ),
    "a builtin instead of the program's function": (
        Job("def f(x):\n    return sum(x)", [("sum", ([1, 2],))]),
        [Outcome("error", error="NameError")],
    ),
    "a function named like a builtin": (
        Job("def sum(x):\n    return 'mine'", [("sum", ([1, 2],))]),
        [Outcome("value", "mine")],
    ),
    "builtins with another meaning": (
        Job(OVERWRITTEN, [("sum", ([1, 2],))]),
        [Outcome("value", [1, 2])],
    ),
    "a block for scripts is not run for a function": (
        Job(GUARDED, [("f", ())]),
        [Outcome("value", ["program", 1])],
    ),
    "a program that fails fails for every input": (
        Job("x = [][1]\n" + SAME, [("f", (1,)), ("f", (2,))]),
        [Outcome("error", error="IndexError")] * 2,
    ),
    "a script that reads too much": (
        Job(ASKING, stdin=("a", "a\n")),
        [Outcome("error", error="EOFError", output="? one\n")] * 2,
    ),
    "containers in containers": (
        Job(DEEP, [("f", (99,)), ("f", (101,))]),
        [Outcome("value", NESTED), Outcome("error", error="TypeError")],
    ),
    "an incomplete assignment": (Job("x = "), [Outcome("error", error="SyntaxError")]),
    "a missing bracket": (
        Job("def f(:\n    pass"),
        [Outcome("error", error="SyntaxError")],
    ),
    "a return outside a function": (Job("return 1"), [Outcome("error", error="SyntaxError")]),
}


@SANDBOXES
@pytest.mark.parametrize("case", CASES)
def test_the_outcomes_of_a_program(sandbox, case):
    job, expected = CASES[case]
    [outcomes] = run_code([job], SHORT, sandbox)
    for outcome, wanted in zip(outcomes, expected, strict=True):
        error = wanted.error if "EOF when reading a line" in outcome.message else outcome.error
        assert replace(outcome, message="", error=error) == wanted, outcome


@SANDBOXES
@pytest.mark.parametrize("returned", ["x", "[x] * 99", "{1: x}", "(x, [x, x])"])
def test_a_value_that_contains_itself_is_refused_quickly(sandbox, returned):
    source = f"def f():\n    x = [1]\n    x.append(x)\n    return {returned}"
    [outcome] = call(source, (), sandbox=sandbox, limits=Limits(seconds=20.0))
    assert outcome.kind in ("error", "output"), "it does not reach the time limit"


# --- Scripts, and programs beside one another -----------------------------------------------------


@SANDBOXES
def test_a_script_reads_many_lines_and_more_than_a_pipe_holds(sandbox):
    stdin = "\n".join(["x" * 97, *map(str, range(3000)), "y" * 90_000])
    source = "print(len(input()), sum(int(input()) for at in range(3000)), len(input()))\n"
    source += "if __name__ == '__main__':\n    print('end')"
    outcome = script(source, stdin, sandbox)
    assert (outcome.kind, outcome.output) == ("value", "97 4498500 90000\nend\n")


@SANDBOXES
def test_nothing_passes_from_one_program_or_input_to_the_next(sandbox):
    keeps = "import math\nleft = 5\ndef f(x):\n    x.append(1)\n    return x"
    first = Job(keeps, [("f", ([],)), ("f", ([],))])
    second = Job("def f():\n    return left", [("f", ())])
    runs = Job("n = input()\nprint(n)\nprint = None", stdin=["1", "2"])
    outcomes = run_code([first, second, runs], SHORT, sandbox, workers=1)
    assert [outcome.value for outcome in outcomes[0]] == [[1], [1]]
    assert outcomes[1][0].error == "NameError"
    assert [outcome.output for outcome in outcomes[2]] == ["1\n", "2\n"]


@SANDBOXES
def test_a_verdict_is_the_same_each_time(sandbox):
    source = "import random\nprint([random.random() for at in range(3)], {'a', 'b', 'c', 'd'})"
    assert len({script(source, sandbox=sandbox).output for at in range(3)}) == 1


# --- Limits ---------------------------------------------------------------------------------------


@SANDBOXES
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("while True: pass", "timeout"),
        ("return len([0] * 10 ** 9)", "memory"),
        ("while True: print('x' * 99)", "output"),
    ],
)
def test_an_exceeded_limit_is_the_outcome_of_the_remaining_inputs_too(sandbox, body, kind):
    source = f"def f(n):\n    if n == 1:\n        return 'first'\n    {body}"
    outcomes = call(source, (1,), (2,), (3,), sandbox=sandbox)
    assert outcomes[0].value == "first" and [outcome.kind for outcome in outcomes[1:]] == [kind] * 2


@SANDBOXES
def test_all_inputs_or_runs_of_a_program_share_its_time(sandbox):
    # half a minute's work on the fastest machine; a slow one still has time for the first input
    source = "def f(n):\n    x = 0\n    for at in range(10 ** 6 * (n > 0)):\n        x += at\n    return n"
    outcomes = call(source, *((n,) for n in range(1000)), sandbox=sandbox)
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds[0] == "value" and kinds[-1] == "timeout" and kinds == sorted(kinds, reverse=True)
    source = "if input() == 'loop':\n    while True: pass\nprint('done')"
    job = Job(source, stdin=["go", "loop", "loop", "loop", "go"])
    [outcomes] = run_code([job], Limits(seconds=1.0), sandbox)
    assert [one.kind for one in outcomes] == ["value"] + ["timeout"] * 4
    assert outcomes[0].output == "done\n"


# --- Back ends that are not available -------------------------------------------------------------


class Clocked:
    """A sandbox on a clock of its own. A program of `source` seconds uses them in its last call,
    and is stopped at its limit; "n/seconds" answers only the first n calls.
    """

    def __init__(self, monkeypatch):
        self.now = 0.0
        module = "helpers.judging.programs.sandbox"
        monkeypatch.setattr(f"{module}._margin", lambda: 1.0)
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: self.now))

    def run(self, job, limits):
        answered, _, seconds = job.source.rpartition("/")
        late = float(seconds) > limits.seconds
        self.now += min(float(seconds), limits.seconds)
        values = [Outcome("value", 1)] * job.count
        if not late:
            return values
        before = int(answered or job.count - 1)
        return values[:before] + [Outcome("timeout")] * (job.count - before)


def test_what_does_not_suffice_for_all_goes_to_those_with_the_fewest_calls_left(monkeypatch):
    """63 slices of 1/8 s use 7.7 s of the 10 s, and another for each would exceed them."""
    clocked = Clocked(monkeypatch)
    jobs = [Job("0/9", [("f", ())] * 2)] * 60 + [Job("1/9", [("f", ())] * 5)] * 2
    jobs += [Job("0.2", [("f", ())] * 3)]
    with pytest.warns(UserWarning, match=r"62 of 63 .* 0\.12 s"):
        *endless, right = run_code(jobs, Limits(seconds=1.0), clocked, workers=1)
    assert [one.kind for one in right] == ["value"] * 3
    assert all(each[-1].kind == "timeout" and each[-1].cut_short for each in endless)
    assert clocked.now <= 10.0


def test_a_program_that_had_all_of_its_time_was_not_cut_short(monkeypatch):
    """Two programs of 9 s get 1/8 s, and then the whole second."""
    clocked = Clocked(monkeypatch)
    jobs = [Job("9", [("f", ())])] * 2 + [Job("0.01", [("f", ())])] * 20
    outcomes = run_code(jobs, Limits(seconds=1.0), clocked, workers=1)
    assert [each[0].kind for each in outcomes] == ["timeout"] * 2 + ["value"] * 20
    assert not any(each[0].cut_short for each in outcomes)


@NEEDS_SANDLOCK
def test_programs_that_cpython_cannot_read_keep_its_verdict_without_a_run_of_their_own(monkeypatch):
    """Nor do those run twice whose braces are a string's."""
    unread = [
        "def f(:",
        "So the answer is 4.",
        "(" * 300,
        "class A:\n\tx = 1\n        y = 2",
        "return 5",
    ]
    fine = ["print(f'{1 + 1}')", "print('{} of {}'.format(1, 2))", "print(1)"]
    sets = ["print(len({1, 1}))", "print(f'{list({2, 1})}', '{')"]
    jobs = [Job(source) for source in unread + fine + sets]
    ran = []
    run = sandlock.Sandbox.run
    monkeypatch.setattr(
        sandlock.Sandbox, "run", lambda *given: ran.append(given[1].source) or run(*given)
    )
    found = [(one.kind, one.error, one.message, one.output) for [one] in run_code(jobs)]
    assert not {*ran} & {*unread, *fine} and {*sets} <= {*ran}
    alone = [one for [one] in run_code(jobs, sandbox="sandlock")]
    assert found == [(one.kind, one.error, one.message, one.output) for one in alone]


def test_an_unknown_or_missing_back_end_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"'docker'.*monty, sandlock"):
        run_code([Job("1")], sandbox="docker")
    monkeypatch.setitem(sys.modules, "sandlock", None)
    sandlock._confinement.cache_clear()
    with pytest.raises(ValueError, match="pip install sandlock=="):
        run_code([Job("1")], sandbox="sandlock")
