"""A sweep on a Ray cluster: each run is a task, which starts the ordinary `python -m helpers run`
on the node it lands on.

Ray (Apache-2.0) is worth its 240 MB here because it finds room for a run, and runs it again
elsewhere when a node dies. Every node needs the checkout at the same path, and its environment. The
runs folder is the driver's, or what GRPO_RUNS_DIR says on the node. Where it is on a disk that all
share, runs go on where a dead node left them; a node that does not see the driver's folder sends
each finished run back, without its checkpoints and its merged model.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from helpers import PROJECT
from helpers.commands import subprocesses
from helpers.environment import installed_version, requirements, this_machine
from helpers.runs import LOCKS, Run, git_revision, held, holder, runs_folder, show_in_runs

_ANSWER = 5.0  # seconds that an address has to answer
_LOOK = 60.0  # seconds that the nodes have to say what they are
_RETRIES = 3  # of a run whose node, or whose worker, died
# seconds after which a disk has given up the lock of a machine that is gone: NFS's servers take 90
_LEASE = 120.0
# large, and made anew from what is sent
_NOT_SENT = ("checkpoints", "checkpoints_previous", "merged", *LOCKS)
_ASKED = "asked.json"  # says what a run was asked for and has done: see arguments.py
# Where the environment says nothing else: no report to Ray's makers, and a run that fills the
# memory is not tried without end. What answers but is no head of a cluster is asked 5 times, a
# second each, not 20.
RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_task_oom_retries": str(_RETRIES),
    "RAY_NUM_REDIS_GET_RETRIES": "5",
}


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to; gpus: how many a run gets."""

    gpus: int
    nodes: list[tuple[str, str]]  # Ray's name of each node, and its host


@dataclass(frozen=True)
class Place:
    """What a task needs to know of the driver."""

    project: str
    runs: str
    token: str  # a file in the runs folder, by which a node sees whether its folder is the same
    environment: dict[str, str]  # of a run, besides the node's


# --- The driver -----------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(address: str, needs_gpu: bool) -> Iterator[Cluster]:
    """Connect to the cluster at `host:port`, or to the one that this machine is in (`auto`), for
    the length of a block.

    ValueError without Ray, without an answer within 5 s, and where no node has what a run needs: a
    GPU, or else a CPU.
    """
    for name, value in RAY.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ValueError(
            "--on ray: Ray is not installed: `python -m helpers install --optional`."
        ) from None
    known = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    whose = f"--address {address}" if known == address else f"RAY_ADDRESS={known}"
    if known != "auto":
        _refuse_silent(known, whose)
    try:
        context = ray.init(
            known, log_to_driver=False, configure_logging=False, logging_level="ERROR"
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        how = (
            "Start one with `ray start --head` here and `ray start --address HOST:PORT` on the "
            "others"
        )
        raise ValueError(
            f"{whose}: no Ray cluster to run on ({str(error).splitlines()[0].rstrip('.')}). {how}."
        ) from None
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        kind = "GPU" if needs_gpu else "CPU"
        if not any(node["Resources"].get(kind, 0) >= 1 for node in alive):
            has = "; ".join(
                f"{node['NodeManagerHostname']}: {node['Resources'].get('CPU', 0):g} CPUs"
                for node in alive
            )
            raise ValueError(
                f"a run of this grid needs a {kind}, and no node of the Ray cluster at {known} "
                f"has one ({has})."
            )
        dashboard = f", dashboard http://{context.dashboard_url}" if context.dashboard_url else ""
        print(f"Ray {ray.__version__}: {len(alive)} node{'s' * (len(alive) > 1)}{dashboard}")
        yield Cluster(
            int(needs_gpu), [(node["NodeID"], node["NodeManagerHostname"]) for node in alive]
        )
    finally:
        ray.shutdown()


def _refuse_silent(address: str, whose: str) -> None:
    """ValueError where no gRPC server, such as a cluster's head, answers: Ray would wait a minute
    and then end this process.
    """
    host, _, port = address.rpartition(":")
    why = "it is not HOST:PORT"
    if host and port.isdigit() and "://" not in address:
        try:
            with socket.create_connection((host, int(port)), _ANSWER) as connection:
                # The greeting of HTTP/2 (RFC 9113, section 3.4): it is answered by a frame of
                # settings, whose type is 4.
                connection.sendall(
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
                )
                if connection.recv(9)[3:4] == b"\x04":
                    return
                why = "what answers there is not Ray"
        except (OSError, OverflowError) as error:
            why = str(error)
    raise ValueError(
        f"{whose}: no Ray cluster answers there ({why}). `ray start --head` prints a cluster's "
        "address."
    )


def run_all(cluster: Cluster, runs: dict[str, list[str]], logs: Path) -> dict[str, str]:
    """Run all as tasks, telling of each as it ends; why a run failed, by its name.

    runs: the command of each.

    Ctrl-C ends the tasks, and they their runs, in order.
    """
    import ray

    logs.mkdir(parents=True, exist_ok=True)
    token = logs.parent / f".token-{uuid.uuid4().hex}"
    token.touch()
    # A task that asks for no CPU gets one thread from Ray, unless something else is said.
    environment = (
        {"OMP_NUM_THREADS": "4"}
        if cluster.gpus
        else {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    )
    place = Place(
        str(PROJECT), str(runs_folder()), token.relative_to(runs_folder()).as_posix(), environment
    )
    task = ray.remote(
        num_cpus=0 if cluster.gpus else 1, num_gpus=cluster.gpus, max_retries=_RETRIES
    )(run_one)
    began, failed, waiting = time.monotonic(), {}, {}
    try:
        _look(cluster, place)
        waiting = {
            task.options(name=name).remote(name, command, logs.name, place): name
            for name, command in runs.items()
        }
        while waiting:
            for done in ray.wait(list(waiting), timeout=1.0)[0]:
                name = waiting.pop(done)
                try:
                    host, seconds, why = _received(name, ray.get(done), logs)
                except ray.exceptions.RayError as error:
                    host, seconds, why = (
                        "a node that is gone",
                        time.monotonic() - began,
                        _said(error),
                    )
                # what was sent has no place here
                except (ValueError, OSError, tarfile.TarError) as error:
                    host, seconds, why = "a node", time.monotonic() - began, str(error)
                if why:
                    failed[name] = why
                ended = (
                    f"  {len(runs) - len(waiting)}/{len(runs)}  {name}  "
                    f"{'failed' if why else 'done'}"
                )
                print(f"{ended}  {seconds:.0f} s on {host}", flush=True)
    except KeyboardInterrupt:
        print(
            "\nEnding the runs; give the same command again to go on with what is left.",
            file=sys.stderr,
        )
        raise
    finally:
        _cancel(cluster, waiting, place)
        token.unlink(missing_ok=True)
    return failed


def _said(error: Exception) -> str:
    """What one of Ray's errors says: of what was raised on a node the last line of its traceback,
    of the others the first.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if hasattr(error, "cause") else 0].strip()


def _cancel(cluster: Cluster, waiting: dict, place: Place) -> None:
    """End the tasks that are left, and wait for the runs they had started: a task counts as ended
    before it is.
    """
    if not waiting:
        return
    import ray

    for task in waiting:
        ray.cancel(task)
    ended = [task for _, task in _on_each(cluster, let_go, list(waiting.values()), place)]
    ray.wait(ended, num_returns=len(ended), timeout=subprocesses.PATIENCE + 10)


def _look(cluster: Cluster, place: Place) -> None:
    """Have each node say what it is.

    ValueError for one without this checkout or with other packages; a line for the folder.
    """
    import ray

    (here, _), apart = seen(place), []
    for host, task in _on_each(cluster, seen, place):
        try:
            there = ray.get(task, timeout=_LOOK)
        except ray.exceptions.GetTimeoutError:
            raise ValueError(
                f"node {host} of the Ray cluster did not start a task within {_LOOK:g} seconds."
            ) from None
        except (
            ray.exceptions.TaskUnschedulableError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.WorkerCrashedError,
        ):
            print(f"node {host} is gone")  # it may have died just now; the others do without it
            continue
        except ray.exceptions.RayError as error:
            raise ValueError(
                f"node {host} cannot run the suite from {place.project}, as here: {_said(error)}"
            ) from None
        there, shared = there
        other = [
            f"{name} {there[name]} (here {here[name]})"
            for name in here
            if there[name] != here[name]
        ]
        if other:
            raise ValueError(
                f"node {host} has {', '.join(other)}: every node needs the environment that this "
                "machine has."
            )
        apart += [] if shared else [host]
    folder = show_in_runs("")
    print(
        f"{folder} is shared by all nodes"
        if not apart
        else f"{folder} is not seen by {', '.join(apart)}: runs are fetched"
    )


def _on_each(cluster: Cluster, function: Callable, *arguments) -> list[tuple]:
    """Call a function on every node at once: each node's host, and the task."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    return [
        (host, task.options(scheduling_strategy=On(node, soft=False)).remote(*arguments))
        for node, host in cluster.nodes
    ]


def _received(name: str, result: tuple, logs: Path) -> tuple[str, float, str]:
    """Put what a node has sent where it belongs; the node's host, the seconds, and why it failed,
    if it did.
    """
    host, seconds, why, sent, log = result
    if log is not None:
        (logs / f"{name}.log").write_bytes(log)
    if sent is not None:
        run = Run(name)
        with held(run.folder, f"run {name!r}"), tarfile.open(fileobj=io.BytesIO(sent)) as archive:
            # What says that the run is done goes first and comes last, so that half a run is never
            # taken for one.
            (run.folder / _ASKED).unlink(missing_ok=True)
            for path in run.folder.iterdir():
                if path.name != ".lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            members = sorted(archive.getmembers(), key=lambda member: member.name == _ASKED)
            archive.extractall(run.folder, members, filter="data")
    return host, seconds, why


# --- A node ---------------------------------------------------------------------------------------


def seen(place: Place) -> tuple[dict[str, str | None], bool]:
    """What must be the same on every node, by name, and whether this one shares the driver's runs
    folder.
    """
    versions = {"Python": ".".join(map(str, sys.version_info[:2])), "the project": git_revision()}
    # What every machine of the suite has, with or without a GPU, and whatever else lies on a
    # process's path.
    common = [line.split("==")[0] for line in requirements(replace(this_machine(), gpu=None))]
    versions |= {
        name: (installed_version(name) or "not installed").split("+")[0] for name in common
    }
    return versions, (_runs(place) / place.token).exists()


def let_go(names: list[str], place: Place) -> None:
    """Wait until nothing holds these runs where this node sees them, but no longer than a run has
    to end.
    """
    began = time.monotonic()
    while (
        any(holder(_runs(place) / name) for name in names)
        and time.monotonic() - began < subprocesses.PATIENCE + 5
    ):
        time.sleep(0.2)


def _runs(place: Place) -> Path:
    return Path(os.environ.get("GRPO_RUNS_DIR", place.runs))


def run_one(name: str, command: list[str], logs: str, place: Place) -> tuple:
    """Make one run on this node: (host, seconds, why it failed, the run as a tar archive, its log).

    The last two are None where the driver sees them itself. Ended by an exception, as `ray.cancel`
    raises one here, it ends the run first.
    """
    runs, began = _runs(place), time.monotonic()
    shared = (runs / place.token).exists()
    log = (runs / place.token).parent / logs / f"{name}.log"
    if not shared:
        log.unlink(missing_ok=True)  # of an earlier sweep
    # What a dead node has started may take a moment to end, and its locks even longer.
    while holder(runs / name) and time.monotonic() - began < _LEASE:
        time.sleep(0.5)
    process = subprocesses.start(command, log, runs, place.environment)
    try:
        while process.poll() is None:
            time.sleep(0.2)  # in `process.wait()`, the interrupt of `ray.cancel` would not arrive
    finally:
        if process.poll() is None:
            subprocesses.end([process])
    why = subprocesses.last_error(log, process.returncode) if process.returncode else ""
    seconds = time.monotonic() - began
    if shared:
        return socket.gethostname(), seconds, why, None, None
    return socket.gethostname(), seconds, why, _packed(runs / name), log.read_bytes()


def _packed(folder: Path) -> bytes | None:
    if not folder.is_dir():
        return None
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if path.name not in _NOT_SENT:
                archive.add(path, arcname=path.name)
    return buffer.getvalue()
