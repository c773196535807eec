"""The tests of a programming task, as data: what to call, with what, and what must come out.

Read, never executed. JSON with calls and values, MBPP's lists of asserts, HumanEval's `check` with
its entry point, and for a script what it reads and what it prints:

    read_tests('[{"call": "add", "args": [1, 2], "value": 3}]')
    read_tests(["assert add(1, 2) == 3", "assert add(0, 0) == 0"])
    read_tests("def check(candidate):\\n    assert candidate(1, 2) == 3", "add")
    read_tests([{"stdin": "1 2\\n", "stdout": "3\\n"}])

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
from dataclasses import dataclass, replace

from helpers.rewards.code.plain import TooMuch, not_plain, value_of
from helpers.rewards.code.types import Outcome

_MOST_TESTS = 1000
_LONGEST = 200_000  # characters, and items of a sequence that is written as a product
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
    if entry_point is not None and not _is_name(entry_point):
        raise ValueError(f"entry_point={entry_point!r} is not the name of a function.")
    try:
        found = _read(tests, entry_point)
    except (RecursionError, MemoryError):
        raise ValueError("the tests are nested too deeply to be read.") from None
    if not 0 < len(found) <= _MOST_TESTS:
        raise ValueError(f"there are {len(found)} tests: give from 1 to {_MOST_TESTS}.")
    return found


def _read(tests: object, entry_point: str | None) -> list[Test]:
    if isinstance(tests, str):
        if len(tests) > _LONGEST:
            raise ValueError(f"the tests have {len(tests)} characters; {_LONGEST} at most.")
        if tests.lstrip()[:1] not in ("[", "{"):
            return _asserts(tests, entry_point)
        tests = _parsed(tests)
    tests = [tests] if isinstance(tests, dict) else as_lists(tests)
    if not isinstance(tests, (list, tuple)):
        raise ValueError(f"the tests are {_short(tests)}: neither a list, nor JSON, nor asserts.")
    if all(isinstance(test, str) for test in tests):
        return [test for text in tests for test in _asserts(text, entry_point)]
    if odd := [test for test in tests if not isinstance(test, dict)]:
        raise ValueError(f"the tests hold {_short(odd[0])}: give asserts only, or objects only.")
    read = [_object(test, f"test {number}") for number, test in enumerate(tests, start=1)]
    if len({test.call is None for test in read}) > 1:
        raise ValueError(
            "some tests are calls and some are stdin/stdout: a program is either called or run."
        )
    return read


def as_lists(value: object) -> object:
    """Arrays as lists, inside of them, too: Parquet gives a list back as an array."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [as_lists(item) for item in value]
    return (
        {key: as_lists(item) for key, item in value.items()} if isinstance(value, dict) else value
    )


def _parsed(text: str) -> object:
    """The list or object of a JSON text, or as Python writes it, from a CSV."""
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            return ast.literal_eval(text.strip())
        except (ValueError, SyntaxError):
            raise ValueError(f"the tests are not JSON: {error}.") from None


def _object(test: dict, where: str) -> Test:
    # Parquet fills up with None, which may be the value of a call.
    given = {"value"} if test.get("call") is not None else set()
    test = {key: value for key, value in test.items() if value is not None or key in given}
    if set(test) in ({"stdin", "stdout"}, {"stdout"}):
        if not all(isinstance(text, str) for text in test.values()):
            raise ValueError(f"{where} is {_short(test)}: stdin and stdout must be texts.")
        return Test(stdin=test.get("stdin", ""), value=test["stdout"])
    if not {"call", "value"} <= set(test) <= {"call", "args", "value", "tolerance"}:
        raise ValueError(
            f"{where} has the keys {', '.join(map(str, test))}: it needs `call` and `value`, and "
            "may have `args` and `tolerance`; or the texts `stdin` and `stdout`."
        )
    call, args, tolerance = test["call"], test.get("args", []), test.get("tolerance", 0.0)
    if not _is_name(call):
        raise ValueError(f"{where}: call={call!r} is not the name of a function.")
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"{where}: args={_short(args)} is not a list with one entry for each argument."
        )
    if not _is_tolerance(tolerance):
        raise ValueError(f"{where}: tolerance={tolerance!r} is not a number, 0 or more.")
    if odd := _odd([*args, test["value"]]):
        raise ValueError(f"{where} holds {odd}: only plain data can be compared.")
    return Test(call, tuple(args), test["value"], tolerance=float(tolerance))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_tolerance(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < math.inf


def _odd(value: object) -> str | None:
    """What a value holds that no test can ask for, in words; None if it is plain data of a sensible
    size.
    """
    try:
        return not_plain(value, _LONGEST)
    except TooMuch:
        return f"more than {_LONGEST} bytes"


# --- Asserts --------------------------------------------------------------------------------------


def _asserts(text: str, entry_point: str | None) -> list[Test]:
    """The asserts of a text: at its top, or in a function `check(candidate)`."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"the tests {_short(text)} are neither JSON nor Python: {getattr(error, 'msg', error)}."
        ) from None
    candidate, statements = None, list(body)
    for statement in body:
        match statement:
            case ast.FunctionDef("check", ast.arguments([], [argument], None, [], [], None, [])):
                if candidate:
                    raise ValueError(f"line {statement.lineno} of the tests: a second check().")
                candidate = argument.arg
                # After the rest, in which `check(add)` may name the function.
                statements.remove(statement)
                statements += statement.body
            case ast.Expr(ast.Call(ast.Name("check"), [ast.Name(name)])):
                if entry_point not in (None, name) and name != candidate:
                    raise ValueError(
                        f"line {statement.lineno} of the tests: check({name}), and before it "
                        f"check({entry_point})."
                    )
                entry_point = entry_point or name
    if candidate and entry_point is None:
        raise ValueError(
            "check() tests a `candidate`, and nothing says which function that is: give the "
            "column `entry_point`."
        )
    tests = []
    for statement in statements:
        if _is_idle(statement):
            continue
        if not isinstance(statement, ast.Assert):
            what = ast.unparse(statement).splitlines()[0][:_SHOWN]
            raise ValueError(
                f"line {statement.lineno} of the tests, `{what}`, is no assert: set-up code and "
                "loops are not run."
            )
        try:
            tests.append(_test(statement.test, _Functions(candidate, entry_point)))
        except _NoTest as why:
            raise ValueError(
                f"line {statement.lineno} of the tests cannot be read as data: {why}."
            ) from None
    return tests


def _is_idle(statement: ast.stmt) -> bool:
    """What tests nothing: imports, METADATA, texts, `print`, `assert True`, a call of check."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Assert(ast.Constant(True)):
            return True
        case ast.Assign([ast.Name("METADATA")]):
            return True
        case ast.Expr(ast.Constant() | ast.Name() | ast.Call(ast.Name("check"))):
            return True
    return False


class _NoTest(Exception):
    """A statement that is no test of one function on plain data."""


@dataclass(frozen=True)
class _Functions:
    candidate: str | None
    entry_point: str | None

    def named(self, node: ast.Call) -> str:
        """The function that a call tests."""
        name = node.func.id
        if self.candidate and name != self.candidate:
            raise _NoTest(f"`{_source(node)}` does not call {self.candidate}")
        return self.entry_point if name == self.candidate else name

    def wraps(self, node: ast.expr) -> bool:
        """Whether it is `sorted(f(1))`, and `sorted` is not what is tested."""
        match node:
            case ast.Call(ast.Name(name), [ast.Call()], []):
                return name in _WRAPS and name != (self.candidate or self.entry_point)
        return False


def _test(node: ast.expr, functions: _Functions) -> Test:
    match node:
        case ast.UnaryOp(ast.Not(), inner):
            return _called(_truth(inner), functions, value=False)
        case ast.Call(func) if ast.unparse(func) in ("math.isclose", "isclose"):
            return _is_close(node, functions)
        case ast.Call():
            return _called(_truth(node), functions, value=True)
        case ast.Compare(
            ast.Call(ast.Name("abs"), [ast.BinOp(one, ast.Sub(), other)]),
            [ast.Lt() | ast.LtE()],
            [right],
        ):
            call, value = (one, other) if isinstance(one, ast.Call) else (other, one)
            given = {"value": _literal(value), "tolerance": _number(right)}
            return _called(call, functions, **given)
        case ast.Compare(left, [sign], [right]) if type(sign) in _SIGNS:
            compare = _SIGNS[type(sign)]
            if isinstance(right, ast.Call) and not isinstance(left, ast.Call) and compare != "in":
                left, compare, right = right, _TURNED.get(compare, compare), left
            value = _literal(right)
            if compare in ("is", "is not") and not (value is None or isinstance(value, bool)):
                raise _NoTest(
                    f"`{_source(node)}`: only None, True and False are one and the same object "
                    "wherever they are written"
                )
            return _called(left, functions, value=value, compare=compare)
    raise _NoTest(f"`{_source(node)}` is no comparison of one call with one value")


def _is_close(node: ast.Call, functions: _Functions) -> Test:
    given = {word.arg: _number(word.value) for word in node.keywords}
    if len(node.args) != 2 or set(given) - {"rel_tol", "abs_tol"}:
        raise _NoTest(f"`{_source(node)}` is not isclose of two numbers")
    one, other = node.args if isinstance(node.args[0], ast.Call) else node.args[::-1]
    relative, tolerance = given.get("rel_tol", 1e-9), given.get("abs_tol", 0.0)
    return _called(one, functions, value=_literal(other), relative=relative, tolerance=tolerance)


def _truth(node: ast.expr) -> ast.Call:
    return ast.Call(ast.Name("bool"), [node], [])


def _called(node: ast.expr, functions: _Functions, **asked) -> Test:
    """The test of a call, through what is done to its value: `len(sorted(f(1)))`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _NoTest(f"`{_source(node)}` is no call of a function by its name")
    if functions.wraps(node):
        inner = _called(node.args[0], functions, **asked)
        return replace(inner, wraps=(*inner.wraps, node.func.id))
    if node.keywords:
        raise _NoTest(f"`{_source(node)}` has arguments by name")
    return Test(functions.named(node), tuple(map(_literal, node.args)), **asked)


def _number(node: ast.expr) -> float:
    value = _literal(node)
    if not _is_tolerance(value):
        raise _NoTest(f"`{_source(node)}` is no tolerance")
    return float(value)


def _literal(node: ast.expr) -> object:
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
    return _cut(repr(value) if isinstance(value, str) else f"{type(value).__name__} {value!r}")


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
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
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
_KINDS = (bool, int, float, str, list, tuple, set, sorted, len, round, abs, sum, min, max)
_WRAPS = {function.__name__: function for function in _KINDS}
