"""Rewards that run what a policy wrote, in a sandbox, on the tests of its row.

The function is called inside, its value comes out as plain data, and what that is worth is decided
here: see `sandbox` for what holds a program, and `unit_tests` for the forms of tests.

A row that cannot be judged is None: its tests cannot be read, the machine failed, or the back end
lacks something that all programs of the row use. Beside a program of the row that was judged, one
that the back end cannot run scores 0: a None leaves its group, and no policy may choose that. A
program that exceeds its own time or memory scores 0, too. One warning per batch counts the rows
without a verdict, and under TRL the shares are metrics (`tests_reward/unsupported`,
`…/unreadable`, `…/not_started`).
"""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.rewards.code.sandbox import Job, Limits, Outcome, run_code
from helpers.rewards.code.unit_tests import Test, as_lists, read_tests
from helpers.rewards.structure import _document, fenced_blocks
from helpers.tags import TagFormat

_PYTHON = ("python", "py", "python3")
_SHOWN = 160  # characters of a reason
_UNJUDGED = {
    "unreadable": "tests that cannot be read",
    "unsupported": "programs that the sandbox cannot run",
    "not started": "programs that were not started",
}


def program_of(completion: object, tags: TagFormat | None = None) -> str:
    """Return the program of a completion: its last fenced block in Python; "" if there is none.

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
    if "```" not in text and "~~~" not in text:
        return text
    blocks = fenced_blocks(text)
    named = [code for language, code in blocks if language in _PYTHON]
    programs = named or [code for language, code in blocks if not language]
    return programs[-1] if programs else ""


def tests_reward(
    completions: list,
    tests: list | None = None,
    entry_point: list | None = None,
    share: bool = True,
    tags: TagFormat | None = None,
    limits: Limits | None = None,
    backend: object = "monty",
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """Return the share of the row's tests that the program passes; with share=False 1.0 if it
    passes all, else 0.0.

    tests, entry_point: columns as `read_tests` takes them: calls with values, or what a script
    reads and prints. limits: for a program with all its tests, 1 s, 256 MB and 64 kB of output by
    default; a test that comes to an error or a limit is not passed, and a time-out leaves none for
    the tests behind it. Reward tests that the prompt does not show: those that it shows can be
    written into the program. And a share can be guessed if many tests have the same answer: try
    share=True and share=False in the laboratory (`attacks.CODE_BATTERY`).

    >>> tests_reward(["def add(a, b):\\n    return a + b", "def add(a, b):\\n    return 3"],
    ...              tests=[["assert add(1, 2) == 3", "assert add(0, 0) == 0"]] * 2)
    [1.0, 0.5]
    >>> tests_reward(["print(sum(map(int, input().split())))"],
    ...              tests=[[{"stdin": "1 2", "stdout": "3"}]])
    [1.0]
    """
    rows = _judge_batch(completions, tests, entry_point, tags, limits, backend)

    # Count what was not judged, as metrics and in one warning.
    counts = []
    for kind, programs in _UNJUDGED.items():
        reasons = [row.reason for row in rows if row.unjudged == kind]
        if log_metric and rows:
            log_metric(f"tests_reward/{kind.replace(' ', '_')}", len(reasons) / len(rows))
        if reasons:
            example = reasons[0].rstrip(".")[:_SHOWN]
            counts.append(f"{len(reasons)} × {programs} (such as: {example})")
    if counts:
        unjudged = sum(bool(row.unjudged) for row in rows)
        warnings.warn(
            f"tests_reward: {unjudged} of {len(rows)} completions were not judged and score None, "
            f"or 0 beside one of their row that was: {'; '.join(counts)}.",
            stacklevel=2,
        )

    # Score the others. A row that one program could be judged on, all can be judged on.
    judged = {id(row.tests) for row in rows if not row.unjudged}
    scores: list[float | None] = []
    for row in rows:
        if row.unjudged == "unsupported" and id(row.tests) in judged:
            scores.append(0.0)
        elif row.unjudged:
            scores.append(None)
        elif share:
            scores.append(sum(row.passed) / len(row.passed))
        else:
            scores.append(float(all(row.passed)))
    return scores


tests_reward.__test__ = False  # pytest would take it for a test, by its name


# --- What a program did, for people ---------------------------------------------------------------


def verdicts(completions: list, tests: list, backend: object = "monty") -> list[str]:
    """Return the first thing that goes wrong with each program on its tests: "wrong value", the
    type of the error, or the kind of another outcome; "right" if nothing does.

    >>> programs = ["def f(n):\\n    return n", "def f(n):\\n    return 1 / n"]
    >>> verdicts(programs, [["assert f(1) == 1", "assert f(0) == 0"]] * 2)
    ['right', 'ZeroDivisionError']
    """
    words = []
    for row in _judge_batch(completions, tests, backend=backend):
        if row.unjudged:
            words.append(row.unjudged)
        elif all(row.passed):
            words.append("right")
        else:
            first = row.outcomes[row.passed.index(False)]
            words.append("wrong value" if first.kind == "value" else first.error or first.kind)
    return words


def looks_up(completion: object, tests: object) -> bool:
    """Return whether the program contains the arguments of one of these tests: it looks its answer
    up.

    Arguments of up to three characters, such as `1, 2`, and texts in other quotes are overlooked.

    >>> looks_up("def f(xs): return {(3, 4, 1): 8}[tuple(xs)]", ["assert f([3, 4, 1]) == 8"])
    True
    """

    def bare(text: str) -> str:
        return re.sub(r"[\s()\[\]]", "", text)

    arguments = [bare(repr(test.args)).strip(",") for test in read_tests(tests)]
    return any(len(text) > 3 and text in bare(program_of(completion)) for text in arguments)


# --- A batch: its rows, from their completions to what passed -------------------------------------


@dataclass
class _Row:
    """A completion. job: of its program, as a key; "" if it has none. unjudged: the kind of the
    reason why it has no verdict; reason: in words.
    """

    tests: Sequence[Test] = ()
    job: str = ""
    outcomes: Sequence[Outcome] = ()  # one per test
    passed: Sequence[bool] = ()
    unjudged: str = ""
    reason: str = ""


def _judge_batch(
    completions: list, tests: list | None, entry_point=None, tags=None, limits=None, backend="monty"
) -> list[_Row]:
    """Return each completion with the outcomes of its tests, as far as they can be read and run."""
    tests = [None] * len(completions) if tests is None else tests
    if not isinstance(entry_point, list | tuple):
        entry_point = [entry_point] * len(completions)
    # Read the tests, once for each group, and collect the programs, each with its tests once.
    rows: list[_Row] = []
    tests_read: dict[str, list[Test]] = {}
    jobs: dict[str, Job] = {}
    for completion, column, function in zip(completions, tests, entry_point, strict=True):
        row = _Row()
        rows.append(row)
        key = repr((as_lists(column), function))
        try:
            tests_read[key] = tests_read.get(key) or read_tests(column, function)
        except (ValueError, MemoryError, RecursionError) as error:
            row.unjudged = "unreadable"
            row.reason = str(error)
            continue
        row.tests = tests_read[key]
        row.outcomes = [Outcome("error", error="no program")] * len(row.tests)
        program = program_of(completion, tags)
        # All its tests in one job, so that they share its time.
        if row.tests[0].call is None:
            job = Job(program, stdin=[test.stdin for test in row.tests])
        else:
            job = Job(program, [(test.call, test.args) for test in row.tests])
        if program.strip():
            row.job = repr(job)
            jobs[row.job] = job
    # Run them, and compare what came out.
    outcomes = dict(zip(jobs, run_code(list(jobs.values()), limits, backend), strict=True))
    for row in rows:
        row.outcomes = outcomes.get(row.job, row.outcomes)
        pairs = list(zip(row.tests, row.outcomes, strict=True))
        row.passed = [test.passes(outcome) for test, outcome in pairs]
        for (test, outcome), passed in zip(pairs, row.passed, strict=True):
            if outcome.kind in ("unsupported", "not started"):
                row.unjudged = outcome.kind
                row.reason = outcome.message
            elif outcome.unordered and not passed and _same_items(outcome.value, test.value):
                row.unjudged = "unsupported"
                row.reason = "the order of a set"
    return rows


def _same_items(value: object, expected: object) -> bool:
    """Return whether two lists or tuples have the same items, in whatever order."""
    if not isinstance(value, list | tuple) or not isinstance(expected, list | tuple):
        return False
    return sorted(map(repr, value)) == sorted(map(repr, expected))
