"""A reward for programs: the share of its row's tests that a program passes in a sandbox.

See `unit_tests` for the forms of tests, and `sandbox` for how a program is confined. A row that
cannot be judged scores None: its tests cannot be read, the machine failed, or the sandbox cannot
run any program of the row. If the sandbox can run one program of a row but not another, the other
scores 0. A completion with a None leaves its group, and a policy must not be able to choose that.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.judging.programs.sandbox import Job, Limits, Outcome, run_code
from helpers.judging.programs.unit_tests import Test, as_lists, read_tests
from helpers.rewards.structure import fenced_blocks
from helpers.tags import TagFormat, completion_text


def tests_reward(
    completions: list,
    tests: list | None = None,
    entry_point: list[str | None] | str | None = None,
    share: bool = True,
    tags: TagFormat | None = None,
    limits: Limits | None = None,
    sandbox: object = None,
    log_metric: Callable | None = None,
    **columns,
) -> list[float | None]:
    """Return the share of its row's tests that each program passes; with share=False, 1.0 if it
    passes all of them, else 0.0.

    tests, entry_point: columns of the data, in a form that `read_tests` knows. A single entry_point
        is that of every row.
    limits: for a program with all its tests; by default 1 s, 256 MB and 64 kB of output. A test
        that ends in an error or exceeds a limit is not passed. A time-out also fails the tests
        after it.
    sandbox: see `run_code`.
    log_metric: under TRL, logs the shares of completions without a verdict as
        `tests_reward/unreadable`, `tests_reward/unsupported` and `tests_reward/not_started`, and as
        `tests_reward/out_of_time` the share for which the batch had no time left; they score 0.

    A batch with such completions gives one warning. The prompt should not show the tests, because a
    program can contain the expected values. A share can be guessed if many tests expect the same
    value: compare share=True and share=False in the laboratory (`program_attacks.CODE_BATTERY`).

    >>> tests_reward(["def add(a, b):\\n    return a + b", "def add(a, b):\\n    return 3"],
    ...              tests=[["assert add(1, 2) == 3", "assert add(0, 0) == 0"]] * 2)
    [1.0, 0.5]
    >>> tests_reward(["print(sum(map(int, input().split())))"],
    ...              tests=[[{"stdin": "1 2", "stdout": "3"}]])
    [1.0]
    """
    rows = _judge_batch(completions, tests, entry_point, tags, limits, sandbox)
    _report(rows, log_metric)
    # An unsupported program scores 0 if another one was judged on the same tests.
    judged_tests = {row.tests_key for row in rows if not row.unjudged}
    scores: list[float | None] = []
    for row in rows:
        if row.unjudged == "unsupported" and row.tests_key in judged_tests:
            scores.append(0.0)
        elif row.unjudged:
            scores.append(None)
        elif share:
            scores.append(sum(row.passed) / len(row.passed))
        else:
            scores.append(float(all(row.passed)))
    return scores


tests_reward.__test__ = False  # pytest must not collect this function


def program_of(completion: object, tags: TagFormat | None = None) -> str:
    """Return the program in a completion: its last fenced block in Python, or "" without one.

    If no block is marked as Python, the last block without a language counts. A text without
    fences is a program as a whole. A block whose fence is never closed does not count. Only the
    last block counts, because scoring the best of several would reward guessing.

    tags: if given, only the answer block is read.

    >>> draft, final = "```python\\nx = 1\\n```", "```py\\nx = 2\\n```\\nIt gives:\\n```\\n2\\n```"
    >>> program_of(f"{draft}\\nBetter:\\n{final}")
    'x = 2\\n'
    >>> program_of("x = 3"), program_of("```python\\nx = 4")
    ('x = 3', '')
    """
    text = completion_text(completion)
    if tags:
        text = tags.extract_answer(text) or ""
    if "```" not in text and "~~~" not in text:
        return text
    blocks = fenced_blocks(text)
    named = [code for language, code in blocks if language in ("python", "py", "python3")]
    programs = named or [code for language, code in blocks if not language]
    return programs[-1] if programs else ""


# --- What programs did, for a reader --------------------------------------------------------------


def verdicts(completions: list, tests: list, sandbox: object = None) -> list[str]:
    """Return a word for each program: "correct" if it passes all its tests, else the outcome of its
    first failed test: "wrong value", the name of the error, or the kind of outcome.

    >>> programs = ["def f(n):\\n    return n", "def f(n):\\n    return 1 / n"]
    >>> verdicts(programs, [["assert f(1) == 1", "assert f(0) == 0"]] * 2)
    ['correct', 'ZeroDivisionError']
    """
    words = []
    for row in _judge_batch(completions, tests, sandbox=sandbox):
        if row.unjudged:
            words.append(row.unjudged)
        elif all(row.passed):
            words.append("correct")
        else:
            first = row.outcomes[row.passed.index(False)]
            words.append("wrong value" if first.kind == "value" else first.error or first.kind)
    return words


def looks_up(completion: object, tests: object) -> bool:
    """Return whether a program contains the arguments of one of its tests, as one does that looks
    its answers up.

    Arguments of up to three characters, such as `1, 2`, do not count. Strings with other quotes
    than Python prints are missed.

    >>> looks_up("def f(xs): return {(3, 4, 1): 8}[tuple(xs)]", ["assert f([3, 4, 1]) == 8"])
    True
    """

    def bare(text: str) -> str:
        return re.sub(r"[\s()\[\]]", "", text)

    arguments = [bare(repr(test.args)).strip(",") for test in read_tests(tests)]
    return any(len(text) > 3 and text in bare(program_of(completion)) for text in arguments)


# --- From completions to outcomes -----------------------------------------------------------------


@dataclass
class _Row:
    """A completion with its tests and outcomes. unjudged: "", or why there is no verdict:
    "unreadable", "unsupported" or "not started". reason: the same in words.
    """

    tests_key: str  # the same for rows with the same tests
    tests: Sequence[Test] = ()
    job_key: str = ""  # the same for equal programs with equal inputs; "" without a program
    outcomes: Sequence[Outcome] = ()  # one per test
    passed: Sequence[bool] = ()  # one per test
    unjudged: str = ""
    reason: str = ""


def _judge_batch(
    completions: list,
    tests: list | None,
    entry_point: list[str | None] | str | None = None,
    tags: TagFormat | None = None,
    limits: Limits | None = None,
    sandbox: object = None,
) -> list[_Row]:
    """Run the programs of a batch on their tests, and return a row for each completion."""
    rows, jobs = _read_batch(completions, tests, entry_point, tags)
    outcomes = dict(zip(jobs, run_code(list(jobs.values()), limits, sandbox), strict=True))
    # Compare the outcomes with the expected values.
    for row in rows:
        row.outcomes = outcomes.get(row.job_key, row.outcomes)
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


def _read_batch(
    completions: list,
    tests: list | None,
    entry_point: list[str | None] | str | None,
    tags: TagFormat | None,
) -> tuple[list[_Row], dict[str, Job]]:
    """Return a row for each completion, still without the outcomes of its program, and the distinct
    jobs by their keys.
    """
    tests = [None] * len(completions) if tests is None else tests
    if not isinstance(entry_point, list | tuple):
        entry_point = [entry_point] * len(completions)
    rows: list[_Row] = []
    jobs: dict[str, Job] = {}
    tests_read: dict[str, list[Test]] = {}
    for completion, column, function in zip(completions, tests, entry_point, strict=True):
        # 1. The tests, which are the same for a whole group and so are read once. Lists instead of
        # arrays, because the repr of a long array omits its middle.
        row = _Row(tests_key=repr((as_lists(column), function)))
        rows.append(row)
        try:
            if row.tests_key not in tests_read:
                tests_read[row.tests_key] = read_tests(column, function)
        except (ValueError, MemoryError, RecursionError) as error:
            row.unjudged = "unreadable"
            row.reason = str(error)
            continue
        row.tests = tests_read[row.tests_key]
        # 2. The program. All its tests are one job, so that they share its time.
        program = program_of(completion, tags)
        if not program.strip():
            row.outcomes = [Outcome("error", error="no program")] * len(row.tests)
            continue
        if row.tests[0].call is None:
            job = Job(program, stdin=[test.stdin for test in row.tests])
        else:
            job = Job(program, [(test.call, test.args) for test in row.tests])
        row.job_key = repr(job)
        jobs[row.job_key] = job
    return rows, jobs


def _same_items(value: object, expected: object) -> bool:
    """Return whether two lists or tuples have the same items, in any order."""
    if not isinstance(value, list | tuple) or not isinstance(expected, list | tuple):
        return False
    return sorted(map(repr, value)) == sorted(map(repr, expected))


# --- Completions without a verdict ----------------------------------------------------------------


def _report(rows: list[_Row], log_metric: Callable | None) -> None:
    """Log the shares of completions without a verdict and of those out of time, and give one
    warning if there are completions without a verdict.
    """
    counts = []
    for kind, programs in {
        "unreadable": "tests that cannot be read",
        "unsupported": "programs that the sandbox cannot run",
        "not started": "programs that were not started",
    }.items():
        reasons = [row.reason for row in rows if row.unjudged == kind]
        if log_metric and rows:
            log_metric(f"tests_reward/{kind.replace(' ', '_')}", len(reasons) / len(rows))
        if reasons:
            example = reasons[0].rstrip(".")[:160]
            counts.append(f"{len(reasons)} × {programs} (such as: {example})")
    if log_metric and rows:
        late = sum(any(outcome.cut_short for outcome in row.outcomes) for row in rows)
        log_metric("tests_reward/out_of_time", late / len(rows))
    if counts:
        unjudged = sum(bool(row.unjudged) for row in rows)
        warnings.warn(
            f"tests_reward: {unjudged} of {len(rows)} completions were not judged and score None, "
            f"or 0 if another one of their row was judged: {'; '.join(counts)}.",
            stacklevel=3,
        )
