"""The tests of a programming task, as data: what to call, with what, and what must come out.

Read, never executed.

    read_tests('[{"call": "add", "args": [1, 2], "value": 3}]')             # JSON: calls and values
    read_tests(["assert add(1, 2) == 3", "assert add(0, 0) == 0"])          # MBPP: a list of
    asserts read_tests("def check(candidate):\\n    assert candidate(1, 2) == 3", "add")   #
    HumanEval: the text of check, entry_point read_tests([{"stdin": "1 2\\n", "stdout": "3\\n"}])
    # a script: what it reads and what it prints

Inputs go into a sandbox, expected values never do: a value comes out as plain data, and
`Test.passes` compares it here.

Left out: set-up code, loops, random inputs, helper functions and names. A test that needs them is
refused with its line, and the whole row with it: a task with a test left out would be easier than
it says. Of HumanEval's 164, 157 can be read.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from helpers.rewards.code.plain import TooMuch, not_plain, value_of
from helpers.rewards.code.types import Outcome

_MOST_TESTS = 1000
_LONGEST = 200_000  # characters, and items of a sequence that is written as a product
_KEYS = {"call", "args", "value", "tolerance", "stdin", "stdout"}
_SHOWN = 80  # characters of what cannot be read


@dataclass(frozen=True)
class Test:
    """One test. With `call`: that function, called with `args`, must give something that is `value`
    under `compare`.

    compare: "==", "!=", "is", "is not", "<", "<=", ">", ">=" or "in", with the function's value on
    the left. wraps: what is done to that value first, the innermost first. tolerance, relative: how
    far numbers may be apart, as math.isclose has it (absolute, and as a share of the larger).
    Without `call`: a script that reads `stdin` must print `value`.
    """

    call: str | None = None
    args: tuple = ()
    value: object = None
    compare: str = "=="
    tolerance: float = 0.0
    relative: float = 0.0
    wraps: tuple[str, ...] = ()
    stdin: str = ""

    __test__ = False  # no test case of pytest's

    def passes(self, outcome: Outcome) -> bool:
        """Whether an outcome is what the test asks for.

        An error, a time-out or a lack of memory is not.
        """
        if outcome.kind != "value":
            return False
        if self.call is None:
            return _lines(outcome.output) == _lines(self.value)
        try:
            value = outcome.value
            for name in self.wraps:
                value = _WRAPS[name](value)
            if self.compare == "==":
                return same(value, self.value, self.tolerance, self.relative)
            return bool(_COMPARES[self.compare](value, self.value))
        except (TypeError, ValueError, OverflowError, RecursionError):  # sorted([1, "a"]), None < 1
            return False


def same(value: object, expected: object, tolerance: float = 0.0, relative: float = 0.0) -> bool:
    """Whether plain data are equal, as Python's `==` has it, which is what HumanEval and MBPP mean:
    1 == 1.0 == True.

    A list is no tuple, and text is no bytes. nan is equal to nan: a test that nothing can pass is a
    test that nobody meant. With a tolerance, numbers inside of lists, tuples and the values of
    dictionaries may be that far apart, too.

    >>> same([1, 2.0], [1.0, 2]), same([1], (1,))
    (True, False)
    >>> same(0.30000000000000004, 0.3), same([0.1 + 0.2], [0.3], 1e-9)
    (False, True)
    """
    if value == expected:
        return True
    if isinstance(expected, (int, float)) and isinstance(value, (int, float)):
        if expected != expected or value != value:
            return expected != expected and value != value
        return bool(tolerance or relative) and math.isclose(
            value, expected, rel_tol=relative, abs_tol=tolerance
        )
    if (
        type(value) is not type(expected)
        or not isinstance(expected, (list, tuple, dict))
        or len(value) != len(expected)
    ):
        return False
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            same(value[k], expected[k], tolerance, relative) for k in expected
        )
    return all(
        same(one, other, tolerance, relative) for one, other in zip(value, expected, strict=True)
    )


def read_tests(tests: object, entry_point: str | None = None) -> list[Test]:
    """The tests in a column's value: JSON or lists of calls, of asserts, or of stdin/stdout; or
    HumanEval's `check`.

    entry_point: the function that a check text calls `candidate`. ValueError says which test cannot
    be read, and why.

    >>> test = read_tests(["assert add(1, 2) == 3"])[0]
    >>> test.call, test.args, test.value, test.compare
    ('add', (1, 2), 3, '==')
    """
    try:
        return _counted(_read(tests, entry_point))
    except (RecursionError, MemoryError):
        raise ValueError("the tests are nested too deeply to be read.") from None


def _read(tests: object, entry_point: str | None) -> list[Test]:
    if entry_point is not None and not (
        isinstance(entry_point, str) and entry_point.isidentifier()
    ):
        raise ValueError(f"entry_point={entry_point!r} is not the name of a function.")
    if isinstance(tests, str):
        if len(tests) > _LONGEST:
            raise ValueError(f"the tests have {len(tests)} characters; {_LONGEST} at most.")
        listed = _json(tests)
        if listed is None:
            return _checked(tests, entry_point)
        tests = listed
    tests = [tests] if isinstance(tests, dict) else as_lists(tests)
    if not isinstance(tests, (list, tuple)):
        raise ValueError(f"the tests are {_short(tests)}: neither a list, nor JSON, nor asserts.")
    kinds = {
        "text" if isinstance(test, str) else "object" if isinstance(test, dict) else _short(test)
        for test in tests
    }
    if len(kinds) > 1 or kinds - {"text", "object"}:
        raise ValueError(
            f"the tests are a list of {' and '.join(sorted(kinds))}: give asserts only, or "
            "objects only."
        )
    if kinds == {"text"}:
        return [test for text in tests for test in _checked(text, entry_point)]
    read = [_object(test, f"test {number}") for number, test in enumerate(tests, start=1)]
    if len({test.call is None for test in read}) > 1:
        raise ValueError(
            "some tests are calls and some are stdin/stdout: a program is either called or run."
        )
    return read


def _counted(tests: list[Test]) -> list[Test]:
    if not tests:
        raise ValueError("the tests are empty: there is nothing to check.")
    if len(tests) > _MOST_TESTS:
        raise ValueError(f"there are {len(tests)} tests; {_MOST_TESTS} at most.")
    return tests


def as_lists(value: object) -> object:
    """Arrays as lists, inside of them, too: Parquet gives a list back as an array."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [as_lists(item) for item in value]
    return (
        {key: as_lists(item) for key, item in value.items()} if isinstance(value, dict) else value
    )


def _odd(value: object) -> str | None:
    """What a value holds that no test can ask for, in words; None if it is plain data of a sensible
    size.
    """
    try:
        return not_plain(value, _LONGEST)
    except TooMuch:
        return f"more than {_LONGEST} bytes"


def _json(text: str) -> object:
    """The list or object of a JSON text; None where it is meant as Python.

    ValueError where it is neither.
    """
    try:
        found = json.loads(text)
    except ValueError as error:  # and JSONDecodeError
        if text.lstrip()[:1] not in ("[", "{"):
            return None
        try:
            found = ast.literal_eval(text.strip())  # a list as Python writes it, from a CSV
        except (ValueError, SyntaxError):
            raise ValueError(f"the tests are not JSON: {error}.") from None
    if not isinstance(found, (list, dict)):
        raise ValueError(f"the tests are {_short(found)}: a list of tests is needed.")
    return found


def _object(test: dict, where: str) -> Test:
    # Parquet fills up with None
    test = {key: value for key, value in test.items() if value is not None or key == "value"}
    if unknown := sorted(map(str, set(test) - _KEYS)):
        raise ValueError(
            f"{where} has the key {unknown[0]!r}. Known: call, args, value, tolerance; or stdin, "
            "stdout."
        )
    if "call" not in test:
        if not isinstance(test.get("stdout"), str) or not isinstance(test.get("stdin", ""), str):
            raise ValueError(
                f"{where} is {_short(test)}: it needs `call` and `value`, or the texts `stdin` "
                "and `stdout`."
            )
        return Test(stdin=test.get("stdin", ""), value=test["stdout"])
    call, args, tolerance = test["call"], test.get("args", []), test.get("tolerance", 0.0)
    if "stdout" in test or "value" not in test:
        raise ValueError(f"{where} calls {call!r}: it needs a `value`, and no `stdout`.")
    if not (isinstance(call, str) and call.isidentifier()):
        raise ValueError(f"{where}: call={call!r} is not the name of a function.")
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"{where}: args={_short(args)} is not a list with one entry for each argument."
        )
    if (
        isinstance(tolerance, bool)
        or not isinstance(tolerance, (int, float))
        or not 0 <= tolerance < math.inf
    ):
        raise ValueError(f"{where}: tolerance={tolerance!r} is not a number, 0 or more.")
    if odd := _odd([*args, test["value"]]):
        raise ValueError(f"{where} holds {odd}: only plain data can be compared.")
    return Test(call, tuple(args), test["value"], tolerance=float(tolerance))


# --- Asserts --------------------------------------------------------------------------------------


class _NoTest(Exception):
    """A statement that is no test of one function on plain data."""


def _checked(text: str, entry_point: str | None) -> list[Test]:
    """The asserts of a text: at its top, or in a function `check(candidate)`."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"the tests {_short(text)} are neither JSON nor Python: {getattr(error, 'msg', error)}."
        ) from None
    tests, name = [], None
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "check":
            if (
                name
                or len(statement.args.args) != 1
                or ast.unparse(statement.args) != statement.args.args[0].arg
            ):
                raise ValueError(
                    f"line {statement.lineno} of the tests: one `def check(candidate):` can be "
                    "read, and no other."
                )
            name = statement.args.args[0].arg
            # After the rest, in which `check(add)` may name the function.
            body = [other for other in body if other is not statement] + statement.body
        elif (
            isinstance(called := getattr(statement, "value", None), ast.Call)
            and getattr(called.func, "id", "") == "check"
        ):
            named = getattr(called.args[0], "id", None) if called.args else None
            if entry_point and named not in (None, entry_point, name):
                raise ValueError(
                    f"line {statement.lineno} of the tests: check({named}), and before it "
                    f"check({entry_point})."
                )
            entry_point = entry_point or named
    if name and entry_point is None:
        raise ValueError(
            "check() tests a `candidate`, and nothing says which function that is: give the "
            "column `entry_point`."
        )
    for statement in body:
        if _is_idle(statement):
            continue
        if not isinstance(statement, ast.Assert):
            what = ast.unparse(statement).splitlines()[0][:_SHOWN]
            raise ValueError(
                f"line {statement.lineno} of the tests, `{what}`, is no assert: set-up code and "
                "loops are not run."
            )
        try:
            tests.append(_test(statement.test, name, entry_point))
        except _NoTest as why:
            raise ValueError(
                f"line {statement.lineno} of the tests cannot be read as data: {why}."
            ) from None
    return tests


def _is_idle(statement: ast.stmt) -> bool:
    """What tests nothing: imports, METADATA, texts, `print`, `assert True`, a call of check."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and statement.test.value is True
    if isinstance(statement, ast.Assign):
        return [getattr(target, "id", "") for target in statement.targets] == ["METADATA"]
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
        return getattr(value.func, "id", "") == "check"
    return isinstance(statement, ast.Expr) and isinstance(value, (ast.Constant, ast.Name))


def _test(node: ast.expr, candidate: str | None, entry_point: str | None) -> Test:
    called = partial(_called, candidate=candidate, entry_point=entry_point)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return called(_wrapped("bool", node.operand), value=False)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("math.isclose", "isclose"):
        return _is_close(node, called)
    if isinstance(node, ast.Call):
        return called(_wrapped("bool", node), value=True)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _SIGNS:
        raise _NoTest(f"`{_source(node)}` is no comparison of one call with one value")
    left, sign, right = node.left, _SIGNS[type(node.ops[0])], node.comparators[0]
    if _distance(left) and sign in ("<", "<="):
        one, other = left.args[0].left, left.args[0].right
        call, value = (one, other) if isinstance(one, ast.Call) else (other, one)
        return called(call, value=_literal(value), tolerance=_number(right))
    if isinstance(right, ast.Call) and not isinstance(left, ast.Call) and sign in _TURNED:
        left, sign, right = right, _TURNED[sign], left
    value = _literal(right)
    if sign in ("is", "is not") and not (value is None or isinstance(value, bool)):
        raise _NoTest(
            f"`{_source(node)}`: only None, True and False are one and the same object wherever "
            "they are written"
        )
    return called(left, value=value, compare=sign)


def _distance(node: ast.expr) -> bool:
    """Whether it is `abs(one - other)`."""
    inside = (
        node.args[0]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "abs" and node.args
        else None
    )
    return isinstance(inside, ast.BinOp) and isinstance(inside.op, ast.Sub)


def _is_close(node: ast.Call, called: Callable) -> Test:
    given = {word.arg: _number(word.value) for word in node.keywords}
    if len(node.args) != 2 or set(given) - {"rel_tol", "abs_tol"}:
        raise _NoTest(f"`{_source(node)}` is not isclose of two numbers")
    one, other = node.args if isinstance(node.args[0], ast.Call) else node.args[::-1]
    return called(
        one,
        value=_literal(other),
        relative=given.get("rel_tol", 1e-9),
        tolerance=given.get("abs_tol", 0.0),
    )


def _wrapped(name: str, node: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), [node], [])


def _called(node: ast.expr, candidate: str | None, entry_point: str | None, **asked) -> Test:
    """The test of a call, through what is done to its value: `len(sorted(f(1)))`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _NoTest(f"`{_source(node)}` is no call of a function by its name")
    name, tested = node.func.id, candidate or entry_point
    if (
        name in _WRAPS
        and name != tested
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Call)
        and not node.keywords
    ):
        inner = _called(node.args[0], candidate, entry_point, **asked)
        return Test(**{**vars(inner), "wraps": (*inner.wraps, name)})
    if node.keywords:
        raise _NoTest(f"`{_source(node)}` has arguments by name")
    if candidate and name != candidate:
        raise _NoTest(f"`{_source(node)}` does not call {candidate}")
    return Test(
        entry_point if name == candidate else name,
        tuple(_literal(argument) for argument in node.args),
        **asked,
    )


def _number(node: ast.expr) -> float:
    value = _literal(node)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise _NoTest(f"`{_source(node)}` is no tolerance")
    return float(value)


def _literal(node: ast.expr) -> object:
    """The plain data that an expression is: literals, arithmetic with them, and `set`, `float` and
    the like of them.
    """
    try:
        value = value_of(node)
    except (TypeError, ValueError, ArithmeticError, MemoryError) as error:
        raise _NoTest(f"`{_source(node)}` is no plain data ({error})") from None
    if odd := _odd(value):
        raise _NoTest(f"`{_source(node)}` holds {odd}")
    return value


def _source(node: ast.expr) -> str:
    return _cut(ast.unparse(ast.fix_missing_locations(node)))


def _short(value: object) -> str:
    return _cut(
        f"{value!r:.{_SHOWN + 1}}"
        if isinstance(value, str)
        else f"{type(value).__name__} {value!r}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _lines(text: object) -> list[str]:
    """The lines of an output without white space at their ends, and without empty lines at
    the end.
    """
    lines = str(text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip(" \t") for line in lines).rstrip("\n").split("\n")


_SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in"}
_SIGNS |= {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_TURNED = {
    "==": "==",
    "!=": "!=",
    "is": "is",
    "is not": "is not",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_COMPARES = {
    "!=": lambda value, expected: not same(value, expected),
    # of None, True and False
    "is": lambda value, expected: type(value) is type(expected) and value == expected,
    "is not": lambda value, expected: not (type(value) is type(expected) and value == expected),
    "in": lambda value, expected: value in expected,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WRAPS = {
    f.__name__: f
    for f in (bool, int, float, str, list, tuple, set, sorted, len, round, abs, sum, min, max)
}
