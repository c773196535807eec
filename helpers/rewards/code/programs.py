"""Rewards that run what a policy wrote, in a sandbox, on the tests of its row.

The function is called inside, its value comes out as plain data, and what that is worth is decided
here: see `helpers.rewards.code` for what holds a program, and `asserts` for the forms of tests. All
programs of a batch are run in one call, each distinct one once.

A row that cannot be judged is None: its tests cannot be read, the back end lacks something that the
program uses, or the batch's time was over before it started. A program that spends its own time or
memory is none of these: it scores 0. One warning a batch counts the rows without a verdict, and
under TRL the shares are metrics (`tests_reward/unsupported`, `…/unreadable`, `…/not_started`).
"""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from helpers.rewards.code import Backend, Job, Limits, Outcome, backend_named, run_code
from helpers.rewards.code.asserts import Test, as_lists, read_tests
from helpers.rewards.structure import _document, _fenced
from helpers.tags import TagFormat

_PYTHON = ("python", "py", "python3")
_SHOWN = 160  # characters of a reason
_UNJUDGED = {
    "unreadable": "tests that cannot be read",
    "unsupported": "programs that the sandbox cannot run",
    "not started": "programs that were not started",
}


def program_of(completion: object, tags: TagFormat | None = None) -> str:
    """The program of a completion: its last fenced block in Python; "" where there is none.

    tags: read the answer block alone. Several blocks are drafts and their revisions, so the last
    one counts, and only that: the best of several would pay for guessing. If none names a language,
    the last block without a name counts; without any fence the whole text does. A fence that is
    never closed was cut off, and with it the answer.

    >>> draft, final = "```python\\nx = 1\\n```", "```py\\nx = 2\\n```\\nIt gives:\\n```\\n2\\n```"
    >>> program_of(f"{draft}\\nBetter:\\n{final}")
    'x = 2\\n'
    >>> program_of("x = 3"), program_of("```python\\nx = 4")
    ('x = 3', '')
    """
    text = _document(completion, tags)
    if "```" not in text:
        return text
    blocks = _fenced(text)
    named = [code for language, code in blocks if language in _PYTHON]
    found = named or [code for language, code in blocks if not language]
    return found[-1] if found else ""


def tests_reward(
    completions: list,
    tests: list | None = None,
    entry_point: list | None = None,
    share: bool = True,
    tags: TagFormat | None = None,
    limits: Limits | None = None,
    backend: str | Backend = "monty",
    confirm: bool = False,
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """The share of the row's tests that the program passes; with share=False 1.0 where it passes
    all, else 0.0.

    tests, entry_point: columns as `read_tests` takes them. limits: for a program with all its
    tests, 2 s, 256 MB and 64 kB of output by default; a test that comes to an error or a limit is
    not passed, and a time-out leaves none for the tests behind it. backend="auto" has sandlock run
    what monty cannot; confirm=True has it run once more every program that did not earn 1.0, so
    that no right program fails because the interpreter was not CPython. Reward tests that the
    prompt does not show: the ones that it shows can be written into the program. And a share can be
    guessed, where many tests have the same answer: try share=True and share=False in the laboratory
    (`attacks.CODE_BATTERY`).

    >>> tests_reward(["def add(a, b):\\n    return a + b", "def add(a, b):\\n    return 3"],
    ...              tests=[["assert add(1, 2) == 3", "assert add(0, 0) == 0"]] * 2)
    [1.0, 0.5]
    """
    rows = _rows(completions, tests, entry_point, tags)
    score = partial(_passed, share=share)
    return _scores("tests_reward", rows, score, limits, backend, confirm, log_metric)


tests_reward.__test__ = False  # pytest would take it for a test, by its name


def executes_reward(
    completions: list,
    tests: list | None = None,
    entry_point: list | None = None,
    tags: TagFormat | None = None,
    limits: Limits | None = None,
    backend: str | Backend = "monty",
    confirm: bool = False,
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """1.0 where the program runs without an error and within the limits on all inputs of the row's
    tests, else 0.0.

    What it returns does not count, so a function of one `return` earns it: pair it with
    `tests_reward`. Without a column `tests` the program is run as a script, with nothing to read.

    >>> program, tests = "def half(n):\\n    return 1 / n", ["assert half(2) == 5"]
    >>> executes_reward([program] * 2, tests=[tests, ["assert half(0) == 5"]])
    [1.0, 0.0]
    """
    if tests is None:
        tests = [[{"stdin": "", "stdout": ""}]] * len(completions)
    rows = _rows(completions, tests, entry_point, tags)
    return _scores("executes_reward", rows, _ran, limits, backend, confirm, log_metric)


def output_match_reward(
    completions: list,
    tests: list | None = None,
    share: bool = True,
    tags: TagFormat | None = None,
    limits: Limits | None = None,
    backend: str | Backend = "monty",
    confirm: bool = False,
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """The share of the row's `{"stdin": …, "stdout": …}` pairs for which the program prints that;
    share=False: all or nothing.

    White space at the end of a line, and empty lines at the end, do not count; everything else
    does. A program that ends with an error has not passed, whatever it printed before. A row with
    tests of another kind is None.

    >>> program, tests = "print(sum(map(int, input().split())))", [{"stdin": "1 2", "stdout": "3"}]
    >>> output_match_reward([program], tests=[tests])
    [1.0]
    """
    rows = _rows(completions, tests, None, tags, pairs=True)
    score = partial(_passed, share=share)
    return _scores("output_match_reward", rows, score, limits, backend, confirm, log_metric)


# --- What a program did, for people ---------------------------------------------------------------


def verdicts(completions: list, tests: list, backend: str | Backend = "monty") -> list[str]:
    """The first thing that goes wrong with each program on its tests: "wrong value", the type of
    the error, or the kind of another outcome; "right" if nothing does.

    >>> programs = ["def f(n):\\n    return n", "def f(n):\\n    return 1 / n"]
    >>> verdicts(programs, [["assert f(1) == 1", "assert f(0) == 0"]] * 2)
    ['right', 'ZeroDivisionError']
    """
    rows = _rows(completions, tests, None, None)
    _run(rows, None, backend)
    return [_verdict(row) for row in rows]


def _verdict(row: "_Row") -> str:
    for test, outcome in zip(row.tests, row.outcomes, strict=True):
        if not test.passes(outcome):
            return "wrong value" if outcome.kind == "value" else outcome.error or outcome.kind
    return "right"


def looks_up(completion: object, tests: object) -> bool:
    """Whether the program contains the arguments of one of these tests: it looks its answer up.

    Arguments of up to three characters, such as `1, 2`, and texts in other quotes are overlooked.

    >>> looks_up("def f(xs): return {(3, 4, 1): 8}[tuple(xs)]", ["assert f([3, 4, 1]) == 8"])
    True
    """

    def bare(text: str) -> str:
        return re.sub(r"[\s()\[\]]", "", text)

    arguments = [bare(repr(test.args)).strip(",") for test in read_tests(tests)]
    return any(len(text) > 3 and text in bare(program_of(completion)) for text in arguments)


# --- A batch: its rows, from their completions to their scores ------------------------------------


@dataclass
class _Row:
    program: str
    tests: Sequence[Test] = ()
    outcomes: Sequence[Outcome] = ()  # one a test
    unjudged: str = ""  # the kind of reason
    why: str = ""


def _passed(row: _Row, share: bool) -> float:
    passed = [test.passes(outcome) for test, outcome in zip(row.tests, row.outcomes, strict=True)]
    return sum(passed) / len(passed) if share else float(all(passed))


def _ran(row: _Row) -> float:
    return float(all(outcome.kind == "value" for outcome in row.outcomes))


def _rows(
    completions: list, tests: list | None, entry_point, tags: TagFormat | None, pairs: bool = False
) -> list[_Row]:
    """The programs, and the tests of each, as far as they can be read. pairs: no calls."""
    programs = [program_of(text, tags) for text in completions]
    if tests is None:
        missing = "the data has no column `tests`"
        return [_Row(program, unjudged="unreadable", why=missing) for program in programs]
    if not isinstance(entry_point, list | tuple):
        entry_point = [entry_point] * len(programs)
    rows = []
    read: dict[str, list[Test]] = {}  # a group shares its tests
    for program, given, function in zip(programs, tests, entry_point, strict=True):
        key = repr((as_lists(given), function))
        try:
            if key not in read:
                read[key] = read_tests(given, function)
            if pairs and read[key][0].call is not None:
                raise ValueError("the tests are calls, not pairs of stdin and stdout")
            rows.append(_Row(program, read[key]))
        except (ValueError, MemoryError, RecursionError) as error:
            rows.append(_Row(program, unjudged="unreadable", why=str(error)))
    return rows


def _scores(
    name: str,
    rows: list[_Row],
    score: Callable[[_Row], float],
    limits: Limits | None,
    backend: str | Backend,
    confirm: bool,
    log_metric: Callable | None,
) -> list[float | None]:
    """Run the programs, give each row that can be judged its score, and tell how many were not: as
    metrics, and in one warning.
    """
    if confirm:  # say at once if it is not possible here, and not at the first failure
        backend_named("sandlock")
    for row in rows:
        row.outcomes = [Outcome("error", message="there is no program")] * len(row.tests)
    there = [row for row in rows if row.tests and row.program.strip()]
    _run(there, limits, backend)
    if confirm:
        failed = [row for row in there if score(row) < 1.0]
        _run([row for row in failed if row.outcomes[0].backend != "sandlock"], limits, "sandlock")
    for row in rows:
        for outcome in row.outcomes:
            if outcome.kind in ("unsupported", "not started"):
                row.unjudged, row.why = outcome.kind, outcome.message

    told, shares = [], {}
    for kind, what in _UNJUDGED.items():
        whys = [row.why for row in rows if row.unjudged == kind]
        shares[kind.replace(" ", "_")] = len(whys)
        if whys:
            told.append(f"{len(whys)} × {what} (such as: {whys[0].rstrip('.')[:_SHOWN]})")
    if confirm or backend == "auto":
        ran = [row for row in rows if any(one.backend == "sandlock" for one in row.outcomes)]
        shares["by_sandlock"] = len(ran)
    if log_metric and rows:
        for kind, count in shares.items():
            log_metric(f"{name}/{kind}", count / len(rows))
    if told:
        warnings.warn(
            f"{name}: {sum(bool(row.unjudged) for row in rows)} of {len(rows)} completions were "
            f"not judged and score None: {'; '.join(told)}.",
            stacklevel=3,
        )
    return [None if row.unjudged else score(row) for row in rows]


def _run(rows: list[_Row], limits: Limits | None, backend: str | Backend) -> None:
    """Give each row its outcomes; each distinct job is run once."""
    jobs, keys = {}, []
    for row in rows:  # one program with all its tests, so that they share its time
        if row.tests[0].call is None:
            job = Job(row.program, stdin=tuple(test.stdin for test in row.tests))
        else:
            calls = tuple(test.call for test in row.tests)
            job = Job(row.program, calls, tuple(test.args for test in row.tests))
        keys.append(repr(job))
        jobs[keys[-1]] = job
    ran = dict(zip(jobs, run_code(list(jobs.values()), limits, backend), strict=True))
    for row, key in zip(rows, keys, strict=True):
        row.outcomes = ran[key]
