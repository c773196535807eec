"""A sweep on a Ray cluster: each run is a task, which starts the ordinary `python -m helpers run`
on the node it lands on.

Ray (Apache-2.0) is worth its 240 MB here because it finds room for a run, and runs it again
elsewhere when its node dies. Every node needs the checkout and its environment at the same path,
and the runs folder on a disk that all share; a run goes on there from where the dead node left it.
"""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from helpers import subprocesses
from helpers.runs import holder, runs_folder

_RETRIES = 3  # of a run whose node died, or which filled its node's memory
# seconds after which a disk has given up the lock of a machine that is gone: NFS's servers take 90
_LEASE = 120.0


def run_all(
    runs: dict[str, list[str]], logs: Path, needs_gpu: bool, address: str
) -> Iterator[tuple[str, str]]:
    """Run all as tasks of the cluster at `HOST:PORT`, or of the one that this machine is in
    (`auto`). Yields each run as it ends: its name, and why it failed ("" if it did not).

    runs: the command of each, by its name. Left before the end, as by Ctrl-C, it ends the runs on
    their nodes in order.
    """
    os.environ.setdefault("RAY_task_oom_retries", str(_RETRIES))  # Ray's own number is infinite
    import ray

    ray.init(address)
    resources = {"num_cpus": 0, "num_gpus": 1} if needs_gpu else {"num_cpus": 1}
    task = ray.remote(max_retries=_RETRIES, **resources)(run_one)
    folder = runs_folder()
    waiting = {
        task.options(name=name).remote(folder, name, command, logs / f"{name}.log", needs_gpu): name
        for name, command in runs.items()
    }
    try:
        while waiting:
            for done in ray.wait(list(waiting), timeout=1.0)[0]:
                name = waiting.pop(done)
                try:
                    why = ray.get(done)
                except ray.exceptions.RayError as error:
                    why = str(error)
                yield name, why
    finally:
        for running in waiting:
            ray.cancel(running)
        # A cancelled task counts as ended before its run has, and the shutdown would kill the run.
        left = [folder / name for name in waiting.values()]
        deadline = time.monotonic() + subprocesses.PATIENCE + 10
        while any(map(holder, left)) and time.monotonic() < deadline:
            time.sleep(0.2)
        ray.shutdown()


def run_one(runs: Path, name: str, command: list[str], log: Path, needs_gpu: bool) -> str:
    """Make one run on this node; why it failed, "" if it did not.

    Ended by an exception, as `ray.cancel` raises one here, it ends the run first.
    """
    node, deadline = socket.gethostname(), time.monotonic() + _LEASE
    if not log.parent.is_dir():
        return (
            f"node {node} does not see {runs}: the runs folder must be on a disk that all nodes "
            "share. GRPO_RUNS_DIR names it."
        )
    # What a dead node has started may take a moment to end, and its locks even longer.
    while holder(runs / name) and time.monotonic() < deadline:
        time.sleep(0.5)
    # Ray gives one thread to a task that asks for no CPU.
    environment = {"GRPO_RUNS_DIR": str(runs), "OMP_NUM_THREADS": "4" if needs_gpu else "1"}
    if not needs_gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    process = subprocesses.start("helpers", command, log, environment)
    try:
        while process.poll() is None:
            time.sleep(0.2)  # in `process.wait()`, the interrupt of `ray.cancel` would not arrive
    finally:
        subprocesses.end([process])
    return f"{subprocesses.last_error(log)} (on {node})" if process.returncode else ""
