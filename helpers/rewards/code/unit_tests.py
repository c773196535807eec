"""The tests of a programming task, as data: what to call, with what, and what must come out.

Read, never executed. JSON with calls and values, MBPP's lists of asserts, HumanEval's `check` with
its entry point, and for a script what it reads and what it prints:

    read_tests('[{"call": "add", "args": [1, 2], "value": 3}]')
    read_tests(["assert add(1, 2) == 3", "assert add(0, 0) == 0"])
    read_tests("def check(candidate):\\n    assert candidate(1, 2) == 3", "add")
    read_tests([{"stdin": "1 2\\n", "stdout": "3\\n"}])

Inputs go into a sandbox, expected values never do: a value comes out as plain data, and
`Test.passes` compares it here.

Left out: set-up code, loops, random inputs, helper functions, names, a value before the call, and
comparisons other than `==` and `is`. A test that needs them is refused with its line, and the whole
row with it: a task with a test left out would be easier than it says. Of HumanEval's 164, 157 can
be read.
"""

import ast
import contextlib
import json
import math
from collections import Counter
from dataclasses import dataclass, replace

from helpers.rewards.code.driver import encode
from helpers.rewards.code.sandbox import Outcome, check_hashed, decode

_SHOWN = 80  # characters of what cannot be read


@dataclass(frozen=True)
class Test:
    """One test. With `call`: that function, called with `args`, must give something that is `value`
    under `compare`.

    compare: "==", or "is" for None, True and False. wraps: what is done to the function's value
    first, the innermost first. tolerance: how far numbers may be apart. Without `call`: a script
    that reads `stdin` must print `value`.
    """

    call: str | None = None
    args: tuple = ()
    value: object = None
    compare: str = "=="
    tolerance: float = 0.0
    wraps: tuple[str, ...] = ()
    stdin: str = ""

    __test__ = False  # no test case of pytest's

    def passes(self, outcome: Outcome) -> bool:
        """Return whether an outcome is what the test asks for.

        An error, a time-out or a lack of memory is not.
        """
        if outcome.kind != "value":
            return False
        if self.call is None:
            return _printed_lines(outcome.output) == _printed_lines(self.value)
        try:
            value = outcome.value
            for name in self.wraps:
                if name in ("set", "frozenset", "dict", "Counter"):
                    check_hashed(encode([value]))
                value = _CALLABLE[name](value)
            if self.compare == "is" and type(value) is not type(self.value):
                return False
            return equal_data(value, self.value, self.tolerance)
        except (TypeError, ValueError, OverflowError):  # sorted([1, "a"]), int("two"), 10**400
            return False


def equal_data(value: object, expected: object, tolerance: float = 0.0) -> bool:
    """Return whether plain data are equal, as Python's `==` has it, which is what HumanEval and
    MBPP mean: 1 == 1.0 == True.

    A list is no tuple, and text is no bytes. nan is equal to nan: a test that nothing can pass is a
    test that nobody meant. With a tolerance, numbers inside of lists, tuples and the values of
    dictionaries may be that far apart, too.

    >>> equal_data([1, 2.0], [1.0, 2]), equal_data([1], (1,))
    (True, False)
    >>> equal_data(0.30000000000000004, 0.3), equal_data([0.1 + 0.2], [0.3], 1e-9)
    (False, True)
    """
    if value == expected:
        return True
    if isinstance(expected, int | float) and isinstance(value, int | float):
        if value != value:
            return expected != expected
        return tolerance > 0 and math.isclose(value, expected, rel_tol=0.0, abs_tol=tolerance)
    if type(value) is not type(expected) or not isinstance(expected, list | tuple | dict):
        return False
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            equal_data(value[key], expected[key], tolerance) for key in expected
        )
    return len(value) == len(expected) and all(
        equal_data(item, other, tolerance) for item, other in zip(value, expected, strict=True)
    )


def read_tests(tests: object, entry_point: str | None = None) -> list[Test]:
    """Return the tests in a column's value: JSON or lists of calls, of asserts, or of
    stdin/stdout; or HumanEval's `check`.

    entry_point: the function that a check text calls `candidate`. Raise ValueError naming the test
    that cannot be read, and why.

    >>> test = read_tests(["assert add(1, 2) == 3"])[0]
    >>> test.call, test.args, test.value, test.compare
    ('add', (1, 2), 3, '==')
    """
    if entry_point is not None and not (
        isinstance(entry_point, str) and entry_point.isidentifier()
    ):
        raise ValueError(f"entry_point={entry_point!r} is not the name of a function.")
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        for parse in (json.loads, ast.literal_eval):  # or as Python writes it, from a CSV
            with contextlib.suppress(ValueError, SyntaxError):
                tests = parse(tests)
                break
    tests = [tests] if isinstance(tests, dict | str) else as_lists(tests)
    if not isinstance(tests, list | tuple):
        raise ValueError(f"the tests are {_short(tests)}: neither a list, nor JSON, nor asserts.")
    if all(isinstance(test, str) for test in tests):
        read = [test for text in tests for test in _tests_of_asserts(text, entry_point)]
    else:
        read = [_test_of_object(test, number) for number, test in enumerate(tests, start=1)]
    if not read:
        raise ValueError("there are no tests.")
    if len({test.call is None for test in read}) > 1:
        raise ValueError(
            "some tests are calls and some are stdin/stdout: a program is either called or run."
        )
    return read


def as_lists(value: object) -> object:
    """Return arrays as lists, also inside of them: Parquet gives a list back as an array."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return value


def _test_of_object(test: object, number: int) -> Test:
    """Return the test in an object: a call, or what is read and printed."""
    fields = test if isinstance(test, dict) else {}
    # Parquet fills up with None, which may also be the value of a call.
    fields = {name: field for name, field in fields.items() if field is not None}
    match {"stdin": "", "args": [], "value": None, "tolerance": 0.0} | fields:
        case {"stdin": str(stdin), "stdout": str(value)} if fields.keys() <= {"stdin", "stdout"}:
            return Test(stdin=stdin.replace("\r\n", "\n"), value=value)
        case {
            "call": str(call),
            "args": list() | tuple() as args,
            "value": value,
            "tolerance": int() | float() as tolerance,
        } if "value" in test and fields.keys() <= {"call", "args", "value", "tolerance"}:
            with contextlib.suppress(TypeError, ValueError):
                _check_plain([*args, value])
                if call.isidentifier() and tolerance >= 0:
                    return Test(call, tuple(args), value, tolerance=float(tolerance))
    raise ValueError(
        f"test {number} is {_short(test)}: give asserts only, or objects only. An object needs "
        "`call`, the name of a function, and `value`, and may have `args`, a list, and "
        "`tolerance`, a number of 0 or more; or the texts `stdin` and `stdout`. Only plain data "
        "can be compared."
    )


def _check_plain(values: list) -> None:
    """Raise TypeError or ValueError for a value that could not enter a sandbox or leave it."""
    repr(decode(encode(values)))


# --- Asserts --------------------------------------------------------------------------------------


def _tests_of_asserts(text: str, entry_point: str | None) -> list[Test]:
    """Return the tests in the asserts of a text: at its top, or in `check(candidate)`."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        reason = getattr(error, "msg", error)
        raise ValueError(
            f"the tests {_short(text)} are neither JSON nor Python: {reason}."
        ) from None
    # The statements that may be asserts, and what a function `check` calls the tested one.
    candidate = None
    statements = []
    for statement in body:
        match statement:
            case ast.FunctionDef("check", ast.arguments([], [argument], None, [], [], None, [])):
                candidate = argument.arg
                statements += statement.body
            case ast.Expr(ast.Call(ast.Name("check"), [ast.Name(name)])) if name in (
                candidate,
                entry_point,
            ):
                pass  # the call of check at the end
            case _:
                statements.append(statement)
    if candidate and entry_point is None:
        raise ValueError(
            "check() tests a `candidate`, and nothing says which function that is: give the "
            "column `entry_point`."
        )
    # A test for each assert; what tests nothing is passed over, anything else is refused.
    tests = []
    for statement in statements:
        match statement:
            case (
                ast.Import()
                | ast.ImportFrom()
                | ast.Pass()
                | ast.Expr(ast.Constant() | ast.Name())
                | ast.Assign([ast.Name("METADATA")])
                | ast.Assert(ast.Constant(True))
            ):
                continue
        try:
            if not isinstance(statement, ast.Assert):
                raise ValueError("set-up code and loops are not run")
            test = _test_of_condition(statement.test, candidate or entry_point)
            if candidate and test.call != candidate:
                raise ValueError(f"it does not call {candidate}")
            _check_plain([*test.args, test.value])
        except (TypeError, ValueError, ArithmeticError) as reason:
            source = ast.unparse(statement).splitlines()[0][:_SHOWN]
            raise ValueError(
                f"line {statement.lineno} of the tests, `{source}`, is no assert about one call "
                f"with plain data: {reason}."
            ) from None
        tests.append(replace(test, call=entry_point) if candidate else test)
    return tests


def _test_of_condition(condition: ast.expr, tested: str | None) -> Test:
    """Return the test that an assert's condition is.

    tested: the function, which may have the name of one of Python's.
    """
    wraps = []
    compare = "=="
    tolerance = 0.0
    # What the value of the call must be,
    match condition:
        case ast.Compare(
            ast.Call(ast.Name("abs"), [ast.BinOp(call, ast.Sub(), expected)]),
            [ast.Lt() | ast.LtE()],
            [near],
        ):
            value = _literal(expected)
            tolerance = float(_literal(near))
        case ast.Compare(call, [ast.Eq() | ast.Is() as sign], [expected]):
            value = _literal(expected)
            compare = "is" if isinstance(sign, ast.Is) else "=="
        case ast.Call(
            ast.Name("isclose") | ast.Attribute(attr="isclose"), [call, expected], options
        ):
            near = {"rel_tol": 1e-9, "abs_tol": 0.0}
            near |= {option.arg: _literal(option.value) for option in options}
            value = _literal(expected)
            tolerance = max(near["abs_tol"], near["rel_tol"] * abs(value))
        case ast.UnaryOp(ast.Not(), ast.Call() as call):
            value = False
            wraps = ["bool"]
        case ast.Call() as call:
            value = True
            wraps = ["bool"]
        case _:
            raise ValueError("it is no comparison of a call with a value")
    # and the call itself, from the outside: `len(sorted(f(1)))`.
    while True:
        match call:
            case ast.Call(ast.Name(name), [ast.Call() as inner], []) if (
                name in _CALLABLE and name != tested
            ):
                wraps.insert(0, name)
                call = inner
            case ast.Call(ast.Name(name), arguments, []):
                args = tuple(map(_literal, arguments))
                return Test(name, args, value, compare, tolerance, tuple(wraps))
            case _:
                source = ast.unparse(call)
                raise ValueError(f"`{source}` is no call of a function, with arguments in order")


def _literal(node: ast.expr) -> object:
    """Return the value of literals, of arithmetic with them, and of `set`, `float` and the like of
    them.

    Nothing else is in the expression when Python computes it: no other name, and no attribute.
    """
    for part in ast.walk(node):
        known = part.id in _CALLABLE if isinstance(part, ast.Name) else isinstance(part, _LITERALS)
        if not known:
            raise ValueError(f"`{ast.unparse(node)}` is no plain data")
    return eval(compile(ast.Expression(node), "<tests>", "eval"), {"__builtins__": {}}, _CALLABLE)


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else f"{type(value).__name__} {value!r}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _printed_lines(text: object) -> list[str]:
    """Return the lines of an output without white space at their ends, and without empty lines at
    the end.
    """
    lines = str(text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip(" \t") for line in lines).rstrip("\n").split("\n")


_LITERALS = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Call, ast.expr_context)
_LITERALS += (ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator)
_KINDS = (bool, int, float, complex, str, list, tuple, set, frozenset, dict)
_CALLABLE = {known.__name__: known for known in (*_KINDS, sorted, len, round, abs, sum, min, max)}
_CALLABLE["Counter"] = lambda *items: dict(Counter(*items))
