"""The program of a process that judges answers for `symbolic.py`.

A row comes in as a line of JSON with its seconds, and its score goes out as one, `null` if it was
not found in time. A copy of this process judges, and the kernel ends it when its processor time is
over, also inside one long operation; then the next copy goes on. Without POSIX there are no copies,
and only the clock of who asks ends a judgement.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TextIO

_POSIX = os.name == "posix"
_MEMORY = 4 << 30  # bytes of address space


def serve(kind: str) -> None:
    """Answer the rows of standard input until it is closed, with a line before the first."""
    # What a verifier prints is no reply, and what it closes is not where the rows come from.
    rows, sys.stdin = sys.stdin, None
    replies, sys.stdout = sys.stdout, sys.stderr
    logging.disable()
    judge, first_rows = _JUDGES[kind]
    for row in first_rows:
        judge(*row)
    if _POSIX:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    gc.freeze()  # no collection goes through what was imported, in the time of a judgement
    print("ready", file=replies, flush=True)
    if not _POSIX:
        return answer(judge, rows, replies)
    while True:
        copy = os.fork()
        if copy == 0:
            answer(judge, rows, replies)
            os._exit(0)
        _, status = os.waitpid(copy, 0)
        # It has left, as where there are no more rows, or the system has killed it. Both may be
        # between two rows, where a reply would be taken for that of the next.
        if os.waitstatus_to_exitcode(status) >= 0 or os.WTERMSIG(status) == signal.SIGKILL:
            return
        print("null", file=replies, flush=True)


def answer(judge: Callable, rows: TextIO, replies: TextIO) -> None:
    """Judge row after row, each in its seconds."""
    sys.addaudithook(_refuse)
    for line in rows:
        seconds, row = json.loads(line)
        if _POSIX:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process
        try:
            score = judge(*row)
        except BaseException:  # whatever a completion did to the parser, it is no right answer
            score = 0.0
        if _POSIX:
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(score), file=replies, flush=True)


def _refuse(event: str, arguments: tuple) -> None:
    """An audit hook: some verifiers evaluate the answer they judge, so this process may read and
    compute, and no more.

    No sandbox for a determined author, but a policy is none: what it stumbles upon writes no file,
    starts no process and opens no connection.
    """
    if event == "open":
        _, mode, flags = arguments
        acts = set("wax+") & set(str(mode)) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    else:
        reads = event in ("os.listdir", "os.scandir", "os.walk")
        others = ("os.", "subprocess.", "socket.", "ctypes.", "builtins.input")
        acts = event.startswith(others) and not reads
    if acts:
        raise PermissionError(event)


def equal(gold: str, given: str) -> float:
    """1.0 where math-verify finds two texts equal, else 0.0.

    It compares the solutions of equations, and finds x^2+1=0 and x^2+5=0, which have no real ones,
    equal; so of two equations one has to be a multiple of the other, too.
    """
    from math_verify import verify
    from sympy import Eq, simplify

    wanted, said = list(_parsed(gold)), list(_parsed(given))
    same = verify(wanted, said, timeout_seconds=None)
    for one, other in zip(wanted, said, strict=False):
        if same and isinstance(one, Eq) and isinstance(other, Eq):
            ratio = simplify((one.lhs - one.rhs) / (other.lhs - other.rhs))
            same = bool(ratio.is_number and ratio.is_finite and ratio != 0)
    return float(same)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    # As TRL's accuracy_reward reads a completion: the content of one box. Plain text is never
    # evaluated as Python. Units stay: math-verify's list of them takes the t off `1 + t`.
    normalised = NormalizationConfig(
        units=False, basic_latex=True, malformed_operators=True, nits=True, boxed="all"
    )
    boxed = LatexExtractionConfig(
        normalization_config=normalised, boxed_match_priority=0, try_extract_without_anchor=False
    )
    return tuple(
        parse(f"\\boxed{{{text}}}", [boxed], fallback_mode="no_fallback", parsing_timeout=None)
    )


def task(family: str, answer: str, entry: str) -> float | str:
    """The score of a family's own verifier; a sentence where there is no such family."""
    from reasoning_gym import get_score_answer_fn

    try:
        score = get_score_answer_fn(family)
    except ValueError:
        return f"reasoning-gym has no family {family!r}."
    return float(score(answer, json.loads(entry)))


def fulfils(schema: str, document: str) -> float:
    """1.0 where a JSON document fulfils a JSON Schema, else 0.0."""
    from jsonschema.validators import validator_for

    rules = json.loads(schema)
    return float(validator_for(rules)(rules).is_valid(json.loads(document)))


# A judge, and the rows with which it imports what it needs: the time of a judgement would not
# suffice for sympy, of which much is imported by the first row of a kind, and a copy that runs out
# of time takes what it has imported with it.
_JUDGES = {
    "equal": (
        equal,
        [
            (r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"),
            ("x^2+2x+1", "(x+1)^2"),
            ("[0,1)", "[1,2)"),
            (r"F = \sum_{k=0}^{n} k", r"F = \sum_{k=0}^{n} 2k"),
        ],
    ),
    "task": (task, [("no family", "", "")]),
    "schema": (fulfils, [("{}", "{}")]),
}

if __name__ == "__main__":
    serve(sys.argv[1])
