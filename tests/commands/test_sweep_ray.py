"""Sweeps on Ray: a real cluster of two nodes on this machine, one CPU each, of which one dies in
the middle.
"""

import os
import re
import signal
import threading
import time

import pandas as pd
import psutil
import pytest
import yaml

from helpers.commands import sweep_ray
from helpers.commands.sweep import read_grid
from helpers.runs import Run, holder, runs_folder

ray = pytest.importorskip(
    "ray", reason="Ray is not installed: python -m helpers install --optional"
)
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = pytest.mark.slow

SMALL = {"max_steps": 4, "holdout_size": 8, "num_generations": 4, "per_device_train_batch_size": 8}
GRID = {
    "name": "tiny",
    "preset": "pocket",
    "seeds": [1],
    "fixed": SMALL,
    "product": {"lora_rank": [8, 16]},
}
LITTLE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds the grid file, and the runs in `runs/`."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "grid.yaml").write_text(yaml.safe_dump(GRID, sort_keys=False))
    return folder


@pytest.fixture(autouse=True)
def shared(folder, monkeypatch):
    """The runs folder that the cluster's nodes share with this process."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(folder / "runs"))


@pytest.fixture(scope="module")
def cluster():
    """A head without a CPU, where this process is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        patch.setenv("RAY_health_check_period_ms", "1000")
        head = LITTLE | {"num_cpus": 0, "include_dashboard": False}
        made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        yield made
        made.shutdown()


def remove(cluster, node) -> None:
    """And wait until the cluster knows: the next test's runs must not land there."""
    cluster.remove_node(node, allow_graceful=False)
    cluster.wait_for_nodes(timeout=600)


def of(node) -> list[psutil.Process]:
    """The runs that a node executes."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [one for one in raylet.children(recursive=True) if "--once" in one.cmdline()]


def until(true, over: threading.Event):
    """What comes, unless the sweep ends before."""
    while not (found := true()):
        assert not over.is_set(), "it did not come"
        time.sleep(0.1)
    return found


def logs(run: str) -> str:
    return "".join(log.read_text() for log in runs_folder().glob(f"sweeps/*/logs/{run}.log"))


@pytest.fixture
def during(cluster, cli):
    """Sweeps on the cluster while `act` does something to it: (exit code, standard error)."""

    def sweep(path, act) -> tuple[int, str]:
        over = threading.Event()
        actor = threading.Thread(target=act, args=[over], daemon=True)
        actor.start()
        command = ("sweep", "--on", "ray", "--grid", str(path), "--address", cluster.address)
        code, _, err = cli(*command)
        over.set()
        actor.join()
        return code, err

    return sweep


def test_no_run_is_lost_and_none_is_done_twice_where_a_node_dies(cluster, folder, during):
    nodes = [cluster.add_node(**LITTLE) for _ in range(2)]
    lost, processes = [], []

    def kill(over) -> None:
        run = until(lambda: of(nodes[1]), over)[0]
        lost.append(run.cmdline()[run.cmdline().index("--run") + 1])
        until(lambda: re.search(r"step +1/4", logs(lost[0])), over)
        processes.extend([run, *run.children(recursive=True)])
        cluster.remove_node(nodes[1], allow_graceful=False)

    code, err = during(folder / "grid.yaml", kill)
    remove(cluster, nodes[0])
    assert code == 0, err
    assert len(processes) >= 2 and not psutil.wait_procs(processes, timeout=300)[1]
    for task in read_grid(folder / "grid.yaml")[1]:
        said = logs(task.run)
        assert len(re.findall(r"notebooks? in \d+ s", said)) == 1
        assert said.count("03_grpo_training …") == (2 if task.run in lost else 1)
        assert said.count("01_data_preparation …") == 1, "it was done before the node died"
    assert pd.read_csv(runs_folder() / "sweeps/tiny/table.csv")["seeds"].tolist() == [1, 1]


def test_ctrl_c_ends_the_runs_on_the_nodes(cluster, folder, during):
    node, seen = cluster.add_node(**LITTLE), []
    path, run = folder / "more.yaml", "more-lora_rank-8-seed-1"
    path.write_text(yaml.safe_dump(GRID | {"name": "more", "product": {"lora_rank": [8]}}))

    def interrupt(over) -> None:
        until(lambda: "01_data_preparation …" in logs(run), over)
        seen.extend(of(node))
        os.kill(os.getpid(), signal.SIGINT)

    code, err = during(path, interrupt)
    remove(cluster, node)
    assert code == 130 and "give the same command again" in err, err
    assert seen and not psutil.wait_procs(seen, timeout=300)[1]
    assert holder(Run(run).folder) is None
    assert "go on with" in logs(run), "the run was interrupted, not killed"


def test_a_node_that_does_not_see_the_runs_folder_runs_nothing(tmp_path):
    log = tmp_path / "runs/sweeps/tiny/logs/a.log"
    why = sweep_ray.run_one(tmp_path / "runs", "a", ["run"], log, needs_gpu=False)
    assert f"does not see {tmp_path / 'runs'}" in why and not (tmp_path / "runs").exists()
