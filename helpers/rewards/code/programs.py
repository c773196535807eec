"""Rewards that run what a policy wrote, in a sandbox, on the tests of its row.

The function is called inside, its value comes out as plain data, and what that is worth is decided
here: see `helpers.rewards.code` for what holds a program, and `asserts` for the forms of tests. All
programs of a batch are run in one call, each distinct one once.

A row that cannot be judged is None: its tests cannot be read, the back end lacks something that the
program uses, or the batch's time was over before it started. A program that spends its own time or
memory is none of these: it scores 0. One warning a batch counts the rows without a verdict, and
under TRL the shares are metrics (`tests_reward/unsupported`, `…/unreadable`, `…/not_started`).
"""

from __future__ import annotations

import math
import pickle
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from helpers.rewards.code import Backend, Job, Limits, Outcome, backend_named, run_code
from helpers.rewards.code.asserts import Test, as_lists, read_tests
from helpers.rewards.structure import _document, _fenced
from helpers.tags import TagFormat

__all__ = ["executes_reward", "output_match_reward", "program_of", "read_tests", "tests_reward"]

_ALIASES = {"python": ("python", "py", "python3")}
_KEPT = 32_000_000  # bytes of outcomes that are remembered
# seconds, after which a program that timed out is run again: it may have been the machine
_STALE = 60.0
_SHOWN = 160  # characters of a reason
_UNJUDGED = {
    "unreadable": "tests that cannot be read",
    "unsupported": "programs that the sandbox cannot run",
    "not started": "programs that were not started",
}


def program_of(completion: object, tags: TagFormat | None = None, language: str = "python") -> str:
    """The program of a completion: its last fenced block in the language; "" where there is none.

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
    text, language = _document(completion, tags), language.casefold()
    if "```" not in text:
        return text
    blocks = _fenced(text)
    named = [code for name, code in blocks if name in _ALIASES.get(language, (language,))]
    found = named or [code for name, code in blocks if not name]
    return found[-1] if found else ""


def tests_reward(
    completions: list,
    tests: list | None = None,
    entry_point: list | None = None,
    share: bool = True,
    tags: TagFormat | None = None,
    language: str = "python",
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

    batch = _Batch("tests_reward", completions, tests, entry_point, tags, language)
    return batch.scores(partial(_passed, share=share), limits, backend, confirm, log_metric)


tests_reward.__test__ = False  # pytest would take it for a test, by its name


def executes_reward(
    completions: list,
    tests: list | None = None,
    entry_point: list | None = None,
    tags: TagFormat | None = None,
    language: str = "python",
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
    alone = [[{"stdin": "", "stdout": ""}]] * len(completions)
    batch = _Batch(
        "executes_reward",
        completions,
        alone if tests is None else tests,
        entry_point,
        tags,
        language,
    )
    return batch.scores(_ran, limits, backend, confirm, log_metric)


def output_match_reward(
    completions: list,
    tests: list | None = None,
    share: bool = True,
    tags: TagFormat | None = None,
    language: str = "python",
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

    batch = _Batch("output_match_reward", completions, tests, None, tags, language)
    for row in batch.rows:
        if any(test.call is not None for test in row.tests):
            row.refuse("unreadable", "the tests are calls, not pairs of stdin and stdout")
    return batch.scores(partial(_passed, share=share), limits, backend, confirm, log_metric)


# --- A batch --------------------------------------------------------------------------------------


@dataclass
class _Row:
    program: str
    tests: list[Test] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)  # one a test
    unjudged: str = ""  # the kind of reason
    why: str = ""

    def refuse(self, kind: str, why: str) -> None:
        self.unjudged, self.why, self.tests = kind, why, []

    def job(self) -> Job:
        """One program with all its tests, so that they share its time."""
        names = [test.call for test in self.tests]
        if names[0] is None:
            texts = tuple(test.stdin for test in self.tests)
            return Job(self.program, stdin=texts if len(texts) > 1 else texts[0])
        call = names[0] if len(set(names)) == 1 else tuple(names)
        return Job(self.program, call, tuple(test.args for test in self.tests))


def _passed(row: _Row, share: bool) -> float:
    passed = [test.passes(outcome) for test, outcome in zip(row.tests, row.outcomes, strict=True)]
    return sum(passed) / len(passed) if share else float(all(passed))


def _ran(row: _Row) -> float:
    return float(all(outcome.kind == "value" for outcome in row.outcomes))


class _Batch:
    """The rows of one call of a reward, from their completions to their scores."""

    def __init__(
        self,
        name: str,
        completions: list,
        tests: list | None,
        entry_point,
        tags: TagFormat | None,
        language: str,
    ):
        self.name, read = name, {}
        for what, column in (("tests", tests), ("entry_point", entry_point)):
            if isinstance(column, (list, tuple)) and len(column) != len(completions):
                raise ValueError(
                    f"{name}: {what} has {len(column)} rows, and there are {len(completions)} "
                    "completions."
                )
        self.rows = [_Row(program_of(text, tags, language)) for text in completions]
        for at, row in enumerate(self.rows):
            if tests is None:
                row.refuse("unreadable", "the data has no column `tests`")
                continue
            function = entry_point[at] if isinstance(entry_point, (list, tuple)) else entry_point
            key = repr((as_lists(tests[at]), function))  # a group shares its tests
            if key not in read:
                read[key] = _read(tests[at], function)
            if isinstance(read[key], str):
                row.refuse("unreadable", read[key])
            else:
                row.tests = read[key]

    def scores(
        self,
        score: Callable[[_Row], float],
        limits: Limits | None,
        backend: str | Backend,
        confirm: bool,
        log_metric: Callable | None,
    ) -> list[float | None]:
        """Run the programs, and give each row that can be judged its score."""
        nothing = Outcome("error", error="SyntaxError", message="there is no program")
        for row in self.rows:
            row.outcomes = [nothing] * len(row.tests)
        there = [row for row in self.rows if row.tests and row.program.strip()]
        if confirm:  # say at once if it is not possible here, and not at the first failure
            backend_named("sandlock")
        _run(there, limits, backend)
        if confirm:
            failed = [row for row in there if score(row) < 1.0]
            again = [row for row in failed if row.outcomes[0].backend != "sandlock"]
            _run(again, limits, "sandlock")
        for row in self.rows:
            for kind in ("unsupported", "not started"):
                lacking = [outcome.message for outcome in row.outcomes if outcome.kind == kind]
                if lacking and not row.unjudged:
                    row.refuse(kind, lacking[0])
        self._tell(log_metric, mixed=confirm or backend == "auto")
        return [None if row.unjudged else score(row) for row in self.rows]

    def _tell(self, log_metric: Callable | None, mixed: bool) -> None:
        count, told = len(self.rows), {}
        for kind in _UNJUDGED:
            whys = [row.why for row in self.rows if row.unjudged == kind]
            if log_metric and count:
                log_metric(f"{self.name}/{kind.replace(' ', '_')}", len(whys) / count)
            if whys:
                shown = whys[0].rstrip(".")[:_SHOWN]
                told[f"{len(whys)} × {_UNJUDGED[kind]} (such as: {shown})"] = len(whys)
        if log_metric and count and mixed:
            ran = [row for row in self.rows if any(o.backend == "sandlock" for o in row.outcomes)]
            log_metric(f"{self.name}/by_sandlock", len(ran) / count)
        if told:
            warnings.warn(
                f"{self.name}: {sum(told.values())} of {count} completions were not judged and "
                f"score None: {'; '.join(told)}.",
                stacklevel=4,
            )


def _read(tests: object, entry_point: str | None) -> list[Test] | str:
    """The tests, or why they cannot be read."""
    try:
        return read_tests(tests, entry_point)
    except ValueError as error:
        return str(error)


# --- Running, with a memory -----------------------------------------------------------------------

# the outcomes, pickled, so that their bytes can be counted; until when; the back end
_remembered: OrderedDict[tuple, tuple[bytes, float, object]] = OrderedDict()
_lock = threading.Lock()


def forget() -> None:
    """Forget the outcomes of programs that were run, for a measurement of time."""
    with _lock:
        _remembered.clear()


def _run(rows: list[_Row], limits: Limits | None, backend: str | Backend) -> None:
    """Give each row its outcomes: each distinct job is run once, and none that is remembered."""
    # kept alive by what is remembered, so nobody else has its id
    where = backend if isinstance(backend, str) else id(backend)
    keys, jobs, known = [], {}, {}
    for row in rows:
        job = row.job()
        digest = sha256(repr(job).encode(errors="backslashreplace")).digest()
        keys.append((digest, repr(limits), where))
        jobs[keys[-1]] = job
    with _lock:
        for key in jobs.keys() & _remembered.keys():
            outcomes, until, _ = _remembered[key]
            if until > time.monotonic():
                known[key] = pickle.loads(outcomes)
                _remembered.move_to_end(key)
    new = [key for key in jobs if key not in known]
    ran = run_code([jobs[key] for key in new], limits, backend) if new else []
    known |= zip(new, ran, strict=True)
    for row, key in zip(rows, keys, strict=True):
        row.outcomes = known[key]
    with _lock:
        for key, outcomes in zip(new, ran, strict=True):
            kinds = {outcome.kind for outcome in outcomes}
            # it may be the machine's fault, or a service's
            if not kinds & {"unsupported", "not started"}:
                until = time.monotonic() + _STALE if "timeout" in kinds else math.inf
                _remembered[key] = pickle.dumps(outcomes), until, backend
        size = sum(len(pickled) for pickled, _, _ in _remembered.values())
        while size > _KEPT:
            _, (pickled, _, _) = _remembered.popitem(last=False)
            size -= len(pickled)
