"""Read the tests of a programming task as data: which function to call, with which arguments, and
which value it must return.

    read_tests('[{"call": "add", "args": [1, 2], "value": 3}]')  # JSON
    read_tests(["assert add(1, 2) == 3", "assert add(0, 0) == 0"])  # MBPP
    read_tests("def check(candidate):\\n    assert candidate(1, 2) == 3", "add")  # HumanEval
    read_tests([{"stdin": "1 2\\n", "stdout": "3\\n"}])  # a script: its input, its output

Tests are never executed. Only the arguments enter a sandbox, never the expected value. The value of
a call leaves the sandbox as plain data, and `Test.passes` compares it with the expected value here.

A test is refused if it has set-up code, loops, random inputs, helper functions or names, if the
value comes before the call, or if it compares with anything but `==`, `is` or a tolerance. Then the
whole row is refused, because leaving out one test would make the task easier than it is. Of
HumanEval's 164 rows, 157 can be read.
"""

import ast
import contextlib
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, replace

from helpers.judging.programs.driver import encode
from helpers.judging.programs.sandbox import Outcome, check_hashed, decode

# The parts of an expression that can be evaluated, and the functions that a test may apply, to
# literals or to the value of the call.
_LITERALS = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Call, ast.expr_context),
    *(ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator),
)
_KINDS = (bool, int, float, complex, str, list, tuple, set, frozenset, dict)
_CALLABLE = {known.__name__: known for known in (*_KINDS, sorted, len, round, abs, sum, min, max)}
_CALLABLE["Counter"] = lambda *items: dict(Counter(*items))
# The tolerance of printed numbers, as in programming contests: six digits are usually printed.
PRINTED_TOLERANCE = 1e-6
# A number with a decimal point, which the expected output must have, and any number. Their digits
# are limited, because two huge numbers are both infinity as floats, and so would be equal.
_DECIMAL = re.compile(r"[-+]?\d{1,30}\.\d{1,30}(?:e[-+]?\d\d?)?", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:e[-+]?\d\d?)?", re.ASCII | re.IGNORECASE
)
# The fields of a test that is an object.
_FIELDS_OF_SCRIPT = {"stdin", "stdout", "tolerance"}
_FIELDS_OF_CALL = {"call", "args", "value", "tolerance"}


@dataclass(frozen=True)
class Test:
    """One test: the function `call`, called with `args`, must return `value`. If `call` is None,
    the program is a script, which reads `stdin` and must print `value`.

    compare: "==", or "is" for None, True and False.
    tolerance: the greatest difference between two numbers. For a script, it applies to the numbers
        that `value` writes with a decimal point, and also counts as a share of the number.
    wraps: the functions applied to the returned value before it is compared, the innermost first:
        ("set", "len") for `len(set(f(1)))`.
    """

    call: str | None = None
    args: tuple = ()
    value: object = None
    compare: str = "=="
    tolerance: float = 0.0
    wraps: tuple[str, ...] = ()
    stdin: str = ""

    __test__ = False  # pytest must not collect this class

    def passes(self, outcome: Outcome) -> bool:
        """Return whether an outcome passes the test. Errors and exceeded limits never pass."""
        if outcome.kind != "value":
            return False
        if self.call is None:
            return same_output(outcome.output, str(self.value), self.tolerance)
        try:
            value = outcome.value
            for name in self.wraps:
                # a program may choose the items of a set so that building it takes for ever
                if name in ("set", "frozenset", "dict", "Counter"):
                    encode(value)  # TypeError for anything but plain data, whose `repr` is safe
                    if name in ("set", "frozenset") and isinstance(value, list | tuple):
                        # a set needs only one of the items that are written alike
                        value = list({repr(item): item for item in value}.values())
                    check_hashed(encode([value]))
                value = _CALLABLE[name](value)
            if self.compare == "is" and type(value) is not type(self.value):
                return False
            return equal_data(value, self.value, self.tolerance)
        except (TypeError, ValueError, OverflowError):  # sorted([1, "a"]), int("two"), 10**400
            return False


def read_tests(tests: object, entry_point: str | None = None) -> list[Test]:
    """Return the tests in a column's value: calls, asserts, stdin/stdout pairs, or HumanEval's
    `check`, as a list or as text.

    entry_point: the function that `check` calls `candidate`. Raise ValueError if a test cannot be
    read, with the test and the reason.

    >>> test = read_tests(["assert add(1, 2) == 3"])[0]
    >>> test.call, test.args, test.value, test.compare
    ('add', (1, 2), 3, '==')
    """
    if entry_point is not None and not (
        isinstance(entry_point, str) and entry_point.isidentifier()
    ):
        raise ValueError(f"entry_point={entry_point!r} is not the name of a function.")
    # 1. Parse JSON, or a list as Python prints it, which a CSV file may have.
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        for parse in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, TypeError):  # TypeError: {{1}}
                tests = parse(tests)
                break
    tests = [tests] if isinstance(tests, dict | str) else as_lists(tests)
    if not isinstance(tests, list | tuple):
        raise ValueError(f"the tests are {_short(tests)}: neither a list, nor JSON, nor asserts.")

    # 2. Read each text or object. A text may have several tests.
    read: list[Test] = []
    if all(isinstance(test, str) for test in tests):
        for text in tests:
            read += _tests_of_asserts(text, entry_point)
    else:
        for number, test in enumerate(tests, start=1):
            read.append(_test_of_object(test, number))

    # 3. Refuse a task whose tests do not fit together.
    if not read:
        raise ValueError("there are no tests.")
    if len({test.call is None for test in read}) > 1:
        raise ValueError(
            "some tests are calls and some are stdin/stdout: a program is either called or run."
        )
    return read


def as_lists(value: object) -> object:
    """Return a value with its arrays as lists, at every level. Parquet returns lists as arrays."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return value


def equal_data(value: object, expected: object, tolerance: float = 0.0) -> bool:
    """Return whether plain data are equal by Python's `==`, as in HumanEval and MBPP: 1 == 1.0 ==
    True, but a list is not equal to a tuple, nor a str to bytes.

    Unlike in Python, nan equals nan: otherwise no program could pass a test that expects nan. A
    tolerance also applies to numbers inside lists, tuples and the values of dictionaries.

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


def same_output(printed: str, expected: str, tolerance: float = 0.0) -> bool:
    """Return whether two outputs are equal, up to spaces at the ends of lines, empty lines at the
    end, and the tolerance of numbers with a decimal point.

    >>> same_output("0.3333333333333333 a\\n", "0.333333 a", 1e-6), same_output("3.0", "3", 1e-6)
    (True, False)
    """
    lines = _printed_lines(printed)
    expected_lines = _printed_lines(expected)
    if len(lines) != len(expected_lines):
        return False
    for line, expected_line in zip(lines, expected_lines, strict=True):
        if not _same_line(line, expected_line, tolerance):
            return False
    return True


def _same_line(line: str, expected: str, tolerance: float) -> bool:
    """Return whether two lines have the same words, up to the tolerance of numbers. The spaces
    between words are split off as words of their own, so they must be the same.
    """
    if line == expected:
        return True
    words = re.split("( +)", line)
    expected_words = re.split("( +)", expected)
    if not tolerance or len(words) != len(expected_words):
        return False
    for word, expected_word in zip(words, expected_words, strict=True):
        if word == expected_word:
            continue
        are_numbers = _NUMBER.fullmatch(word) and _DECIMAL.fullmatch(expected_word)
        if not are_numbers or not math.isclose(
            float(word), float(expected_word), rel_tol=tolerance, abs_tol=tolerance
        ):
            return False
    return True


def _printed_lines(text: object) -> list[str]:
    """Return the lines of an output, without spaces and tabs at the end of a line, and without
    empty lines at the end of the text.
    """
    lines = str(text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip(" \t") for line in lines).rstrip("\n").split("\n")


# --- Tests as objects -----------------------------------------------------------------------------


def _test_of_object(test: object, number: int) -> Test:
    """Return the test in {"call": "add", "args": [1, 2], "value": 3}, or that of a script in
    {"stdin": "1 2\\n", "stdout": "3\\n"}. Raise ValueError if the test is anything else.

    number: its place among the tests, from 1, for the message of an error.
    """
    # 1. Leave out fields that are None: Parquet adds them where a field is missing.
    fields = test if isinstance(test, dict) else {}
    given = {name: field for name, field in fields.items() if field is not None}
    is_script = "stdout" in given
    if not is_script and "call" not in given:
        raise ValueError(
            f"test {number} is {_short(test)}: give asserts only, or objects only. An object needs "
            "`call` and `value`, or the texts `stdin` and `stdout`."
        )
    tolerance = given.get("tolerance", PRINTED_TOLERANCE if is_script else 0.0)
    has_valid_tolerance = isinstance(tolerance, int | float) and tolerance >= 0

    # 2. The test of a script.
    if is_script:
        stdin = given.get("stdin", "")
        stdout = given["stdout"]
        if not (
            given.keys() <= _FIELDS_OF_SCRIPT
            and isinstance(stdin, str)
            and isinstance(stdout, str)
            and has_valid_tolerance
        ):
            raise ValueError(
                f"test {number} is {_short(test)}: the test of a script has the texts `stdin` and "
                "`stdout`, may have a `tolerance` for printed decimals, a number of 0 or more, and "
                "has nothing else."
            )
        stdin = stdin.replace("\r\n", "\n")
        return Test(stdin=stdin, value=stdout, tolerance=float(tolerance))

    # 3. The test of a call.
    call = given["call"]
    args = given.get("args", [])
    if not (
        given.keys() <= _FIELDS_OF_CALL
        and isinstance(call, str)
        and call.isidentifier()
        and isinstance(args, list | tuple)
        and "value" in fields  # None may be the value that the call must return
        and has_valid_tolerance
    ):
        raise ValueError(
            f"test {number} is {_short(test)}: the test of a call needs `call`, the name of a "
            "function, and `value`, may have `args`, a list, and `tolerance`, a number of 0 or "
            "more, and has nothing else."
        )
    try:
        _check_plain([*args, fields["value"]])
    except (TypeError, ValueError) as reason:
        raise ValueError(
            f"test {number} is {_short(test)}: {reason}. Only plain data can be compared."
        ) from None
    return Test(call, tuple(args), fields["value"], tolerance=float(tolerance))


def _check_plain(values: list) -> None:
    """Raise TypeError or ValueError if a value is not plain data, and so cannot enter or leave a
    sandbox. `repr` raises for an integer of thousands of digits.
    """
    repr(decode(encode(values)))


def _short(value: object) -> str:
    """Return a value as text, cut to 80 characters, with its type unless it is a text."""
    text = repr(value) if isinstance(value, str) else f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else text[:80] + "…"


# --- Tests as asserts -----------------------------------------------------------------------------


def _tests_of_asserts(text: str, entry_point: str | None) -> list[Test]:
    """Return the tests in a text of asserts, at the top level or in `check(candidate)`."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        reason = getattr(error, "msg", error)
        raise ValueError(
            f"the tests {_short(text)} are neither JSON nor Python: {reason}."
        ) from None

    # 1. Collect the statements, and the name that `check` has for the tested function.
    statements, candidate = _unfolded(body, entry_point)
    if candidate and entry_point is None:
        raise ValueError(
            "check() tests a `candidate`, but nothing says which function that is: give the column "
            "`entry_point`."
        )
    # 2. Read each assert, skip statements that test nothing, and refuse all others.
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
            source = ast.unparse(statement).splitlines()[0][:80]
            raise ValueError(
                f"line {statement.lineno} of the tests, `{source}`, is not an assert about one "
                f"call with plain data: {reason}."
            ) from None
        tests.append(replace(test, call=entry_point) if candidate else test)
    return tests


def _unfolded(body: list[ast.stmt], entry_point: str | None) -> tuple[list[ast.stmt], str | None]:
    """Return the statements with those of `check` in its place, and the name that `check` has for
    the tested function; None if there is no `check`.
    """
    statements = []
    candidate = None
    for statement in body:
        match statement:
            # def check(candidate): …
            case ast.FunctionDef(
                name="check",
                args=ast.arguments(
                    posonlyargs=[],
                    args=[argument],
                    vararg=None,
                    kwonlyargs=[],
                    kw_defaults=[],
                    kwarg=None,
                    defaults=[],
                ),
            ):
                candidate = argument.arg
                statements += statement.body
            # check(add), at the end
            case ast.Expr(ast.Call(ast.Name("check"), [ast.Name(name)])) if name in (
                candidate,
                entry_point,
            ):
                pass
            case _:
                statements.append(statement)
    return statements, candidate


def _test_of_condition(condition: ast.expr, tested: str | None) -> Test:
    """Return the test in an assert's condition.

    tested: the name of the tested function, which may also be the name of a builtin.
    """
    # 1. Split the condition into a call and the expected value.
    wraps = []
    compare = "=="
    tolerance = 0.0
    match condition:
        # abs(f(1) - 2) < 0.1
        case ast.Compare(
            ast.Call(ast.Name("abs"), [ast.BinOp(call, ast.Sub(), expected)]),
            [ast.Lt() | ast.LtE()],
            [near],
        ):
            value = _literal(expected)
            tolerance = float(_literal(near))
        # f(1) == 2, f(1) is None
        case ast.Compare(call, [ast.Eq() | ast.Is() as sign], [expected]):
            value = _literal(expected)
            compare = "is" if isinstance(sign, ast.Is) else "=="
            if compare == "is" and not isinstance(value, bool | None):
                raise ValueError("`is` can be read with None, True and False only")
        # math.isclose(f(1), 2, abs_tol=0.1)
        case ast.Call(
            ast.Name("isclose") | ast.Attribute(attr="isclose"), [call, expected], options
        ):
            near = {"rel_tol": 1e-9, "abs_tol": 0.0}
            near |= {option.arg: _literal(option.value) for option in options}
            if len(near) > 2:
                raise ValueError("`isclose` can be read with `rel_tol` and `abs_tol` only")
            value = _literal(expected)
            tolerance = max(near["abs_tol"], near["rel_tol"] * abs(value))
        # not f(1)
        case ast.UnaryOp(ast.Not(), ast.Call() as call):
            value = False
            wraps = ["bool"]
        # f(1)
        case ast.Call() as call:
            value = True
            wraps = ["bool"]
        case _:
            raise ValueError("it is not a comparison of a call with a value")

    # 2. Take off the functions around the call, from the outside: first the `len` of
    # `len(sorted(f(1)))`, then its `sorted`. What is left must be a call with plain arguments.
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
                raise ValueError(f"`{source}` is not a function call with positional arguments")


def _literal(node: ast.expr) -> object:
    """Return the value of an expression that has only literals, arithmetic, and functions such as
    `set` and `float`. Raise ValueError if it contains another name or an attribute.

    The time is not limited: tests are the user's own, and 9**9**9 in one of them takes forever.
    """
    for part in ast.walk(node):
        is_known_name = isinstance(part, ast.Name) and part.id in _CALLABLE
        if not is_known_name and not isinstance(part, _LITERALS):
            raise ValueError(f"`{ast.unparse(node)}` is not plain data")
    # `eval` can now do nothing but compute with literals and call the functions of _CALLABLE.
    expression = compile(ast.Expression(node), "<tests>", "eval")
    return eval(expression, {"__builtins__": {}}, _CALLABLE)
