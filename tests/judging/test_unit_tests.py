"""The tests of a task as data: which forms are read, which are refused and why, and how values are
compared.
"""

import json
import math

import numpy as np
import pandas as pd
import pytest

from helpers import PROJECT
from helpers.judging.programs.sandbox import Limits, Outcome
from helpers.judging.programs.unit_tests import Test, equal_data, read_tests
from helpers.rewards.programs import tests_reward

HUMANEVAL = PROJECT.parent / "shared" / "data" / "humaneval" / "HumanEval.jsonl"
CHECK = '''

METADATA = {
    'author': 'jt',
}


def check(candidate):
    """Simple cases."""
    import math
    assert candidate([1.0, 2.0], 0.3) == True
    assert True, "This prints if this assert fails"
    print
    assert not candidate("a")
    assert candidate(4) is None, "none"
    assert abs(candidate(3.5) - 0.5) < 1e-6
    assert tuple(candidate((1, 2))) == tuple([2, 1])

'''


# --- Forms of tests -------------------------------------------------------------------------------

CALLS = [{"call": "f", "args": [[1, 2]], "value": 3}, {"call": "f", "args": [], "value": None}]
READ = [Test("f", ([1, 2],), 3), Test("f", (), None)]
PRINTS = [Test(stdin="1\n", value="2\n", tolerance=1e-6), Test(value="3", tolerance=1e-6)]


@pytest.mark.parametrize(
    ("form", "tests"),
    [
        *[(form, READ) for form in (CALLS, json.dumps(CALLS), np.array(CALLS), tuple(CALLS))],
        ('[{"stdin": "1\\n", "stdout": "2\\n"}, {"stdout": "3"}]', PRINTS),
        # a list as Python prints it, from a CSV file
        ("['assert f(1) == 2']", [Test("f", (1,), 2)]),
    ],
)
def test_tests_are_read_from_json_lists_and_arrays(form, tests):
    assert read_tests(form) == tests


def test_a_list_from_parquet_is_read(tmp_path):
    kinds = [
        CALLS,
        [{"stdin": "1", "stdout": "2"}],
        [{"call": "f", "args": [[1]], "value": 3, "tolerance": 0.5}],
    ]
    pd.DataFrame({"tests": kinds}).to_parquet(tmp_path / "rows.parquet")
    found = map(read_tests, pd.read_parquet(tmp_path / "rows.parquet")["tests"])
    assert [[t.call, t.value, t.stdin, t.tolerance] for tests in found for t in tests] == [
        ["f", 3, "", 0.0],
        ["f", None, "", 0.0],
        [None, "2", "1", 1e-6],
        ["f", 3, "", 0.5],
    ]


def test_a_check_of_humaneval_is_read():
    assert read_tests(CHECK, "f") == [
        Test("f", ([1.0, 2.0], 0.3), True),
        Test("f", ("a",), False, wraps=("bool",)),
        Test("f", (4,), None, "is"),
        Test("f", (3.5,), 0.5, tolerance=1e-6),
        Test("f", ((1, 2),), (2, 1), wraps=("tuple",)),
    ]
    for called in ("f", "candidate"):
        assert read_tests(f"{CHECK}\ncheck({called})\n", "f") == read_tests(CHECK, "f")


ASSERTS = {
    "f(1) == 2": Test("f", (1,), 2),
    "f(1, 'a', None) == [1]": Test("f", (1, "a", None), [1]),
    "f()": Test("f", (), True, wraps=("bool",)),
    "not f()": Test("f", (), False, wraps=("bool",)),
    "f(1) is True": Test("f", (1,), True, "is"),
    "abs(f(1) - 0.5) <= 1e-6": Test("f", (1,), 0.5, tolerance=1e-6),
    "math.isclose(f(1), 0.5)": Test("f", (1,), 0.5, tolerance=5e-10),
    "math.isclose(f(1), -2, rel_tol=0.1)": Test("f", (1,), -2, tolerance=0.2),
    "isclose(f(1), 0.5, rel_tol=0.1, abs_tol=1)": Test("f", (1,), 0.5, tolerance=1.0),
    "sorted(f(1)) == [1, 2]": Test("f", (1,), [1, 2], wraps=("sorted",)),
    "len(set(f(1))) == 2": Test("f", (1,), 2, wraps=("set", "len")),
    "not len(f(1))": Test("f", (1,), False, wraps=("len", "bool")),
    "f(1) == Counter({'a': 2})": Test("f", (1,), {"a": 2}),
    "f(set([1, 2])) == {3: (1,)}": Test("f", ({1, 2},), {3: (1,)}),
    "f(-1, 2 + 3j, 6.0 / 4, 10**9 + 7, 'ab' * 2) == float('inf')": Test(
        "f", (-1, 2 + 3j, 1.5, 10**9 + 7, "abab"), math.inf
    ),
    "f([1] * 3) == frozenset({1})": Test("f", ([1, 1, 1],), frozenset({1})),
    "f(b'a') == tuple([1, 2])": Test("f", (b"a",), (1, 2)),
    "len('abc') == 3": Test("len", ("abc",), 3),
}


@pytest.mark.parametrize("condition", ASSERTS)
def test_asserts_are_read(condition):
    assert (
        read_tests([f"assert {condition}, 'message'"])
        == [ASSERTS[condition]]
        == read_tests(f"import math\nassert {condition}")
    )


def test_a_tested_function_may_be_named_like_a_builtin():
    assert read_tests(["assert sorted(f(1)) == 2"], "f") == [Test("f", (1,), 2, wraps=("sorted",))]
    with pytest.raises(ValueError, match=r"`f\(1\)`"):
        read_tests(["assert sorted(f(1)) == 2"], "sorted")


# --- Tests that are refused -----------------------------------------------------------------------

REFUSED = {
    "f(g(1)) == 2": r"line 1 of the tests, .*`g\(1\)` is not plain data",
    "f(1) == g(1)": r"`g\(1\)` is not plain data",
    "f(x) == 2": "`x` is not plain data",
    "f(a=1) == 2": r"`f\(a=1\)` is not a function call with positional arguments",
    "f(*[1]) == 2": r"`\*\[1\]` is not plain data",
    "f(1) == 2 or f(1) == 3": "it is not a comparison of a call with a value",
    "1 < f(1) < 3": "it is not a comparison",
    "f(1) != 2": "it is not a comparison",
    "f(1) < 2": "it is not a comparison",
    "f(1) in [2, 3]": "it is not a comparison",
    "f([1].pop()) == 2": r"`\[1\].pop\(\)` is not plain data",
    "f(len) == 2": "a value of type builtin_function_or_method is not plain data",
    "2 == 2": "`2` is not a function call",
    "not f(1) == 2": "it is not a comparison",
    "not isclose(f(1), 2)": r"`f\(1\)` is not plain data",
    "f(1) + 1 == 2": r"`f\(1\) \+ 1` is not a function call",
    "Solution().f(1) == 2": r"`Solution\(\).f\(1\)` is not a function call",
    "f(__import__('os')) == 2": r"`__import__\('os'\)` is not plain data",
    "f(1 / 0) == 2": "division by zero",
    "f({[]: 1}) == 2": "unhashable",
    "f(10**5000) == 2": "the limit .4300 digits. for integer string",
    "f(...) == 2": "a value of type ellipsis is not plain data",
    "np.isclose(f(1), 2.0, atol=0.1)": "`isclose` can be read with `rel_tol` and `abs_tol` only",
    "abs(f(1) - 2) < x": "`x` is not plain data",
    "f(1) is 5": "`is` can be read with None, True and False only",
    "f(1) is ()": "`is` can be read with None, True and False only",
}


SHORT_CHECK = "def check(candidate):\n    pass\n    assert candidate(1) == 2\n"
NO_TESTS = [
    (float("nan"), "the tests are float nan: neither a list, nor JSON, nor asserts"),
    ("", "there are no tests"),
    ("[]", "there are no tests"),
    (["assert True"], "there are no tests"),
    (["assert False"], "it is not a comparison"),
    (["assert (f(1) == 2, 'always true')"], "it is not a comparison"),
    ("[1", r"the tests '\[1' are neither JSON nor Python"),
    ("it must add", "are neither JSON nor Python: invalid syntax"),
    ([["assert f(1) == 2"]], "test 1 is list"),
    (["assert f(1) == 2", CALLS[0]], "test 1 is 'assert f.*: give asserts only"),
    ([CALLS[0], {"stdin": "", "stdout": ""}], "some tests are calls and some are stdin/stdout"),
    ([{"call": "f", "args": [1]}], "test 1 is .*needs `call`"),
    ([CALLS[0], CALLS[0] | {"args": 1}], "test 2 is .*`args`, a list"),
    ([CALLS[0] | {"call": "f("}], "test 1 is .*the name of a function"),
    ([{"function": "f", "args": [], "value": 1}], "test 1 is "),
    ([{"stdout": "2", "value": 2}], "the test of a script .* has nothing else"),
    ([{"stdin": 1, "stdout": "2"}], "the texts `stdin` and `stdout`"),
    ([CALLS[0] | {"weight": 1}], "the test of a call .* has nothing else"),
    ([CALLS[0] | {"tolerance": -1}], "a number of 0 or more"),
    ([CALLS[0] | {"args": [object()]}], "Only plain data"),
    ("x = 3\nassert f(x) == 3", "line 1 of the tests, `x = 3`.*set-up code and loops"),
    ("for x in [1]:\n    assert f(x) == 3", "line 1 of the tests, `for x in .1.:`"),
    ("import os\nos._exit(0)\nassert f(1) == 1", r"line 2 of the tests, `os._exit\(0\)`"),
]
LOST = "line [1-5] of the tests"
NO_NAME = "is not the name of a function"


@pytest.mark.parametrize(
    ("tests", "entry_point", "says"),
    [
        *[([f"assert {condition}"], None, says) for condition, says in REFUSED.items()],
        *[(tests, None, says) for tests, says in NO_TESTS],
        (CHECK, None, "nothing says which function that is: give the column `entry_point`"),
        *[(CHECK, name, NO_NAME) for name in ("", "a b", 3, float("nan"), "f()")],
        (f"{SHORT_CHECK}    assert all([True, True])", "f", "line 4 .*it does not call candidate"),
        # if one part cannot be read, the whole row is refused
        (f"{SHORT_CHECK}assert g(1) == 1".replace("candidate)", "candidate, n=3)"), "g", LOST),
        (f"{SHORT_CHECK}check(g)\ncheck(h)", "g", LOST),
        (
            "def check(candidate):\n    def check(c):\n        assert c(1)\n    check(candidate)\n"
            "    assert candidate(1) == 1",
            "g",
            LOST,
        ),
    ],
)
def test_anything_else_is_refused_with_a_reason(tests, entry_point, says):
    with pytest.raises(ValueError, match=says):
        read_tests(tests, entry_point)


def test_output_is_compared_by_lines_which_end_only_at_a_line_feed():
    (test,) = read_tests([{"stdin": "", "stdout": "1\n2\n"}])
    for printed, passes in {
        "1\n2": True,
        "1 \r\n2\n\n": True,
        "1\u20282": False,
        "1\x0c2": False,
        "1\r2": False,
        "1\n2\u3000": False,
    }.items():
        assert test.passes(Outcome("value", output=printed)) == passes, repr(printed)


# --- Comparing values -----------------------------------------------------------------------------

NAN = float("nan")
SAME_HASH = [n * (2**61 - 1) for n in range(1200)]  # a set of them takes quadratic time


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, True),
        (0, False, True),
        ("1", 1, False),
        ([1], (1,), False),
        ([1, [2]], [1, [2.0]], True),
        ({1, 2}, {2, 1}, True),
        ({1}, frozenset({1}), True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("a", b"a", False),
        (None, 0, False),
        (None, None, True),
        (NAN, NAN, True),
        ([1, NAN], [1, NAN], True),
        ({"a": NAN}, {"a": NAN}, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (0.1 + 0.2, 0.3, False),
        (10**400, 1.0, False),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_values_are_compared_as_in_python_except_that_nan_equals_nan(one, other, equal):
    assert equal_data(one, other) is equal


@pytest.mark.parametrize(
    ("one", "other", "close"),
    [
        (0.1 + 0.2, 0.3, True),
        ([0.1 + 0.2, {"a": (1.0,)}], [0.3, {"a": (1,)}], True),
        (0.31, 0.3, False),
        ([0.3], (0.3,), False),
        ("a", "b", False),
        (NAN, 0.3, False),
        (True, 1 + 1e-12, True),
    ],
)
def test_a_tolerance_applies_to_every_number_in_a_value(one, other, close):
    assert equal_data(one, other, tolerance=1e-9) is close


@pytest.mark.parametrize(
    ("condition", "right", "wrong"),
    [
        ("f() == 3", [3, 3.0], [4, "3", None, [3]]),
        ("f() is True", [True], [1, "yes", [1]]),
        ("f() is None", [None], [0, False, ""]),
        ("f()", [1, "a", [0]], [0, "", None, []]),
        ("not f()", [0, "", None], [1]),
        ("sorted(f()) == [1, 2]", [[2, 1], (1, 2), {1, 2}], [[1], 3, [1, "a"], None]),
        ("set(f()) == {1}", [[1, 1], [1] * 1200, [1, True, 1.0]], [[[1]], 1, SAME_HASH]),
        ("len(set(f())) == 1200", [], [SAME_HASH, SAME_HASH + [0] * 9000]),
        ("len(frozenset(f())) == 2", [[(1,), (2,)] * 1200], [[(1,)] * 1200]),
        ("Counter(f()) == {'a': 2}", ["aa", ["a", "a"]], ["ab", 2, [[]]]),
        ("abs(f() - 0.5) < 0.1", [0.45, 0.55], [0.7, "0.5", None, NAN, math.inf, 10**400]),
        ("round(f()) == 2", [2.2], ["2", NAN, math.inf, 3]),
        ("int(f()) == 2", [2.9, "2"], ["two", None]),
    ],
)
def test_a_test_passes_only_for_the_right_values(condition, right, wrong):
    (test,) = read_tests([f"assert {condition}"])
    assert [test.passes(Outcome("value", one)) for one in right] == [True] * len(right)
    assert [test.passes(Outcome("value", one)) for one in wrong] == [False] * len(wrong)


@pytest.mark.parametrize("kind", ["error", "timeout", "memory", "output", "unsupported"])
def test_only_outcomes_with_a_value_pass(kind):
    for test in [*read_tests(["assert f() is None", "assert not f()"]), Test(value="3")]:
        assert not test.passes(Outcome(kind, value=None, output="3"))


# --- HumanEval ------------------------------------------------------------------------------------

UNREADABLE = {
    "HumanEval/32",
    "HumanEval/33",
    "HumanEval/38",
    "HumanEval/44",
    "HumanEval/50",
    "HumanEval/53",
    "HumanEval/151",
}
humaneval = pytest.mark.needs("shared/data/humaneval")


@humaneval
def test_the_checks_of_humaneval_are_read_and_only_its_solutions_pass():
    """A solution that always returns the same value must fail."""
    problems = [json.loads(line) for line in HUMANEVAL.read_text(encoding="utf-8").splitlines()]
    refused, known = {}, []
    for problem in problems:
        try:
            read = read_tests(problem["test"], problem["entry_point"])
        except ValueError as error:
            refused[problem["task_id"]] = str(error)
            continue
        known.append(problem)
        # every assert except `assert True` becomes a test
        lines = [line.strip() for line in problem["test"].splitlines()]
        asserts = [line for line in lines if line.startswith("assert ")]
        idle = [line for line in asserts if line.startswith("assert True")]
        assert len(read) == len(asserts) - len(idle), problem["task_id"]
    assert set(refused) == UNREADABLE and len(known) == 157
    assert all(said.startswith("line ") for said in refused.values())

    tests, points = ([problem[name] for problem in known] for name in ("test", "entry_point"))
    whole = {"share": False, "limits": Limits(seconds=30.0), "tests": tests, "entry_point": points}
    solutions = [f"```python\n{p['prompt']}{p['canonical_solution']}\n```" for p in known]
    right = tests_reward(solutions, **whole)
    assert right.count(1.0) + right.count(None) == len(known) and right.count(None) <= 4
    for body in ("True", "[]", "given[0] if given else 0"):
        wrong = [f"def {point}(*given):\n    return {body}" for point in points]
        assert tests_reward(wrong, **whole) == [0.0] * len(known)


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("0.3333333333333333\n", "0.333333", True),
        ("0.33334", "0.333333", False),
        ("1000000.4", "1000000.0", True),  # a share of the number
        ("x = 0.5", "x = 0.50", True),
        ("3.0", "3", False),  # whole numbers are exact
        ("123457", "123456", False),
        ("nan", "0.5", False),
        ("0.5 0.5", "0.5", False),
        ("0.5\n0.5", "0.5 0.5", False),
        (" 0.50", "0.5", False),
    ],
)
def test_printed_decimals_are_compared_with_a_tolerance(printed, expected, same):
    (test,) = read_tests([{"stdin": "", "stdout": expected}])
    assert test.passes(Outcome("value", output=printed)) is same
    (exact,) = read_tests([{"stdin": "", "stdout": expected, "tolerance": 0}])
    assert not exact.passes(Outcome("value", output=printed))
