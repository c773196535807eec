"""Programs run by a service over HTTP: the back end for a machine that may have none of its own,
and the example to copy.

A hosted service (E2B, Piston, SandboxFusion) has a format of its own; a class with one method `run`
speaks it. This one speaks the format below, to a service that you run where you like: `answer` is
its other half.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import get_args, get_type_hints

from helpers.rewards.code import Backend, Job, Limits, Outcome, outcome_of, run_code
from helpers.rewards.code.driver import MOST_PAIRS, decode, encode

_JOBS_A_REQUEST = 16
_KINDS = get_args(get_type_hints(Outcome)["kind"])
_MOST_JOBS = 4096
_LARGEST_REQUEST = 64_000_000  # bytes that a service reads


class RemoteSandbox:
    """A service at `base_url` that runs programs: `run_code(jobs,
    backend=RemoteSandbox("http://127.0.0.1:8000"))`.

    One request, POST base_url/run, with a JSON object:

        {"jobs": [{"source": "…", "call": "f" or null, "inputs": [[argument, …], …], "stdin": "…" or
        null}, …],
         "limits": {"seconds": 2.0, "memory": 256000000, "output": 64000}}

    and its answer, a list of outcomes for each job, fields of `Outcome`; those with their defaults
    may be left out:

        {"outcomes": [[{"kind": "value", "value": …, "output": "…"}, {"kind": "error", "error":
        "KeyError", "line": 3}], …]}

    Arguments and values are plain data, written by `encode`: JSON's types, and an object with one
    key for each of the others: {"tuple": […]}, {"set": […]}, {"frozenset": […]}, {"dict": [[key,
    value], …]}, {"bytes": "00ff"}, {"complex": [1.0, 2.0]}, {"float": "nan" | "inf" | "-inf"},
    {"int": "0x…"} from 2 ** 53 on. The expected values are not sent.

    What the service says is read as data, and bounded; a program that it does not answer for, or
    not in this format, is "unsupported", with the reason, so that it is not judged. workers:
    requests at the same time. timeout: seconds that an answer may take besides the time of its
    programs.
    """

    def __init__(self, base_url: str, workers: int = 4, timeout: float = 30.0):
        if not (isinstance(base_url, str) and base_url.startswith(("http://", "https://"))):
            raise ValueError(
                f"base_url={base_url!r} is not an address such as 'http://127.0.0.1:8000'."
            )
        self.base_url, self.workers, self.timeout = base_url.rstrip("/"), workers, timeout

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        parts = [jobs[at : at + _JOBS_A_REQUEST] for at in range(0, len(jobs), _JOBS_A_REQUEST)]
        with ThreadPoolExecutor(self.workers) as threads:
            return [
                outcomes
                for part in threads.map(lambda part: self._part(part, limits), parts)
                for outcomes in part
            ]

    def _part(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        counts = [1 if job.call is None else len(job.inputs) for job in jobs]
        try:
            return _read(self._ask(jobs, limits, counts), counts, limits)
        except (OSError, ValueError, RecursionError) as error:
            why = Outcome(
                "unsupported",
                message=f"the sandbox at {self.base_url} gave no answer: {error}"[:500],
            )
            return [[why] * count for count in counts]

    def _ask(self, jobs: Sequence[Job], limits: Limits, counts: list[int]) -> object:
        told = [
            asdict(job) | {"inputs": [encode(list(arguments)) for arguments in job.inputs]}
            for job in jobs
        ]
        body = json.dumps({"jobs": told, "limits": asdict(limits)}).encode()
        request = urllib.request.Request(
            f"{self.base_url}/run", body, {"Content-Type": "application/json"}
        )
        most = (8 * limits.output + 20_000) * max(1, sum(counts))
        with urllib.request.urlopen(
            request, timeout=self.timeout + limits.seconds * len(jobs)
        ) as response:
            text = response.read(most + 1)
        if len(text) > most:
            raise ValueError(f"it is longer than {most} bytes")
        return json.loads(text)


def _read(answer: object, counts: list[int], limits: Limits) -> list[list[Outcome]]:
    """The outcomes of an answer. ValueError where it is none for so many jobs and inputs."""
    outcomes = answer.get("outcomes") if isinstance(answer, dict) else None
    if (
        not isinstance(outcomes, list)
        or [len(part) if isinstance(part, list) else -1 for part in outcomes] != counts
    ):
        raise ValueError(f"it does not hold {counts} outcomes")
    return [[_outcome(frame, limits) for frame in part] for part in outcomes]


def _outcome(frame: object, limits: Limits) -> Outcome:
    if not isinstance(frame, dict) or frame.get("kind") not in _KINDS:
        raise ValueError(f"{str(frame)[:100]!r} is no outcome")
    texts = {
        name: str(frame.get(name) or "")[: limits.output] for name in ("error", "message", "output")
    }
    if frame["kind"] == "value":
        return outcome_of(decode(frame.get("value"), MOST_PAIRS), limits, texts["output"])
    line = frame.get("line")
    return Outcome(frame["kind"], line=line if type(line) is int else None, **texts)


# --- The service's half ---------------------------------------------------------------------------


def answer(body: bytes, backend: str | Backend = "monty") -> bytes:
    """The answer of a service to the body of a request; ValueError says what is wrong with it.

    The service decides on the limits that it grants: what is asked for is taken here, and a public
    service would cap it.
    """
    if len(body) > _LARGEST_REQUEST:
        raise ValueError(f"the request is longer than {_LARGEST_REQUEST} bytes.")
    try:
        asked = json.loads(body)
        jobs = [
            Job(job["source"], job["call"], tuple(map(_arguments, job["inputs"])), job["stdin"])
            for job in asked["jobs"]
        ]
        limits = Limits(**asked["limits"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the request is not of this format: {type(error).__name__} {error}"
        ) from None
    if len(jobs) > _MOST_JOBS:
        raise ValueError(f"{len(jobs)} jobs in one request; {_MOST_JOBS} at most.")
    found = run_code(jobs, limits, backend)
    frames = [
        [asdict(outcome) | {"value": encode(outcome.value)} for outcome in part] for part in found
    ]
    return json.dumps({"outcomes": frames}).encode()


def _arguments(encoded: object) -> tuple:
    arguments = decode(encoded)
    if not isinstance(arguments, list):
        raise ValueError(f"{encoded!r} is not a list of arguments.")
    return tuple(arguments)
