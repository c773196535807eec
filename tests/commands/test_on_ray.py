"""Sweeps on Ray: a real cluster of two nodes on this machine, one CPU each, of which one dies in
the middle.
"""

import os
import re
import signal
import socket
import sys
import threading
import time

import pandas as pd
import psutil
import pytest
import yaml
from test_sweep import finish

from helpers.commands import sweep, sweep_ray
from helpers.commands.grid import read_grid
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
SWEEP = ["sweep", "--on", "ray", "--grid"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds the grid file, the runs of --jobs 2 in `jobs/` and those of the cluster in `runs/`."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "grid.yaml").write_text(yaml.safe_dump(GRID, sort_keys=False))
    return folder


@pytest.fixture(autouse=True)
def shared(folder, monkeypatch):
    """The runs folder that the cluster's nodes share with this process."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(folder / "runs"))


@pytest.fixture(scope="module")
def cluster(folder):
    """A head without a CPU, where this process is."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **sweep_ray.RAY,
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_health_check_period_ms": "1000",
        }.items():
            patch.setenv(name, value)
        head = LITTLE | {"num_cpus": 0, "include_dashboard": False}
        made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        yield made
        made.shutdown()


def add(cluster, runs):
    return cluster.add_node(**LITTLE, env_vars={"GRPO_RUNS_DIR": str(runs)})


def remove(cluster, node) -> None:
    """And wait until the cluster knows: the next test's runs must not land there."""
    cluster.remove_node(node, allow_graceful=False)
    cluster.wait_for_nodes(timeout=600)


def of(node) -> list[psutil.Process]:
    """The processes of a node that are Python's."""
    raylet = node.all_processes["raylet"][0].process.pid
    return [
        one for one in psutil.Process(raylet).children(recursive=True) if "python" in one.name()
    ]


def until(true, over: threading.Event):
    """What comes, unless the sweep ends before."""
    while not (found := true()):
        assert not over.is_set(), "it did not come"
        time.sleep(0.1)
    return found


def logs(name: str) -> str:
    path = runs_folder() / "sweeps" / "tiny" / "logs" / f"{name}.log"
    return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def survived(cluster, folder):
    """A sweep that loses a node in the middle of a training: its exit code, the run that was there,
    what was left of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(folder / "runs"))
        nodes = [add(cluster, folder / "runs") for _ in range(2)]
        names = [
            read_grid(folder / "grid.yaml").run_name(*task)
            for task in read_grid(folder / "grid.yaml").tasks
        ]
        found, over = {"names": names}, threading.Event()

        def kill() -> None:
            running = until(
                lambda: [one for one in of(nodes[1]) if {"run", "--run"} <= set(one.cmdline())],
                over,
            )
            theirs = running[0]
            found["lost"] = theirs.cmdline()[theirs.cmdline().index("--run") + 1]
            until(lambda: re.search(r"step +1/4", logs(found["lost"])), over)
            found["processes"] = [theirs, *theirs.children(recursive=True)]
            cluster.remove_node(nodes[1], allow_graceful=False)
            found["alive"] = psutil.wait_procs(found["processes"], timeout=300)[1]

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        from helpers.__main__ import main

        found["code"] = main([*SWEEP, str(folder / "grid.yaml"), "--address", cluster.address])
        over.set()
        killer.join()
        remove(cluster, nodes[0])
        yield found


def test_no_run_is_lost_and_none_is_done_twice_where_a_node_dies(survived):
    assert survived["code"] == 0 and len(survived["processes"]) >= 2 and not survived["alive"], (
        "nothing of it writes on"
    )
    assert {
        name: len(re.findall(r"notebooks? in \d+ s", logs(name))) for name in survived["names"]
    } == dict.fromkeys(survived["names"], 1)
    began = {name: logs(name).count("03_grpo_training …") for name in survived["names"]}
    assert began.pop(survived["lost"]) == 2 and set(began.values()) == {1}
    assert logs(survived["lost"]).count("01_data_preparation …") == 1, (
        "what was done before the node died is not done again"
    )


def test_the_table_is_that_of_two_jobs_number_for_number(survived, folder, cli, monkeypatch):
    with_ray = sweep.read("tiny")
    monkeypatch.setenv("GRPO_RUNS_DIR", str(folder / "jobs"))
    assert cli("sweep", "--jobs", "2", "--grid", str(folder / "grid.yaml"))[0] == 0
    seconds = [name for name in with_ray if name.startswith("training_seconds")]
    pd.testing.assert_frame_equal(
        with_ray.drop(columns=seconds), sweep.read("tiny").drop(columns=seconds), check_exact=True
    )
    assert with_ray["final_reward"].notna().all() and with_ray["seeds"].tolist() == [1, 1]


def test_ctrl_c_ends_the_runs_on_the_nodes(cluster, folder, cli):
    node = add(cluster, folder / "runs")
    path = folder / "more.yaml"
    path.write_text(
        yaml.safe_dump(GRID | {"name": "more", "product": {"lora_rank": [8]}}, sort_keys=False)
    )
    log = runs_folder() / "sweeps" / "more" / "logs" / "more-lora_rank-8-seed-1.log"
    seen, over = [], threading.Event()

    def interrupt() -> None:
        until(lambda: log.exists() and "cell " in log.read_text(), over)
        seen.extend(one for one in of(node) if "helpers" in one.cmdline())
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=interrupt, daemon=True)
    presser.start()
    code, _, err = cli(*SWEEP, str(path), "--address", cluster.address)
    over.set()
    presser.join()
    remove(cluster, node)
    assert code == 130 and "give the same command again" in err, err
    assert (
        seen
        and not psutil.wait_procs(seen, timeout=300)[1]
        and holder(Run(log.stem).folder) is None
    )
    assert "go on with" in log.read_text(), "the run was interrupted, not killed"
    assert not list(log.parent.parent.glob(".token*"))


def test_what_a_node_with_a_folder_of_its_own_has_made_is_fetched(
    cluster, folder, cli, monkeypatch, tmp_path
):
    grid = read_grid(folder / "grid.yaml")
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "there"))
    for point, name in enumerate(("tiny-lora_rank-8-seed-1", "tiny-lora_rank-16-seed-1")):
        finish(grid, point, 1, 0.5, [])
        for relative in ("adapter/weights", "checkpoints/checkpoint-4/weights", "merged/weights"):
            Run(name).path(relative).write_text(name)
    table = sweep.table(grid)
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "here"))
    node = add(cluster, tmp_path / "there")
    code, out, err = cli(*SWEEP, str(folder / "grid.yaml"), "--address", cluster.address)
    remove(cluster, node)
    assert code == 0, err
    assert re.search(r"/here/? is not seen by \S+: runs are fetched", out)
    pd.testing.assert_frame_equal(sweep.read("tiny"), table, check_dtype=False)
    for name in ("tiny-lora_rank-8-seed-1", "tiny-lora_rank-16-seed-1"):
        assert (
            Run(name).folder / "adapter" / "weights"
        ).read_text() == name and "is finished" in logs(name)
        assert not {"checkpoints", "merged"} & {path.name for path in Run(name).folder.iterdir()}


# --- What is refused ------------------------------------------------------------------------------


def test_without_ray_the_way_to_it_is_named(cli, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, out, err = cli(*SWEEP, str(folder / "grid.yaml"))
    assert (
        code == 2
        and out == ""
        and "Ray is not installed: `python -m helpers install --optional`" in err
    )


@pytest.mark.parametrize(
    "address", ["closed", "silent", "ssh", "here", "host:port", "ray://127.0.0.1:10001"]
)
def test_an_address_where_no_cluster_answers_is_refused_in_one_sentence(
    cli, folder, address, monkeypatch
):
    monkeypatch.setattr(sweep_ray, "_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        if address == "ssh":
            threading.Thread(
                target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), daemon=True
            ).start()
        if address in ("closed", "silent", "ssh"):
            address, how = f"127.0.0.1:{server.getsockname()[1]}", address
            if how == "closed":
                server.close()
        code, out, err = cli(*SWEEP, str(folder / "grid.yaml"), "--address", address)
    assert (
        code == 2
        and out == ""
        and f"--address {address}: no Ray cluster answers there (" in err
        and err.count("\n") == 1
    )


def test_a_grid_that_no_node_has_the_card_for_is_refused_before_anything_runs(cli, cluster, folder):
    path = folder / "gpu.yaml"
    path.write_text(yaml.safe_dump(GRID | {"name": "gpu", "preset": "h200", "fixed": {}}))
    code, _, err = cli(*SWEEP, str(path), "--address", cluster.address)
    assert (
        code == 2
        and "a run of this grid needs a GPU, and no node of the Ray cluster at" in err
        and "CPUs)" in err
    )
    assert not (runs_folder() / "sweeps" / "gpu").exists()


def test_a_node_with_other_versions_is_refused_by_name(cli, cluster, folder, tmp_path):
    about = tmp_path / "trl-0.1.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.1\n")
    node = cluster.add_node(
        **LITTLE, env_vars={"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    )
    path = folder / "versions.yaml"
    path.write_text(yaml.safe_dump(GRID | {"name": "versions"}))
    code, _, err = cli(*SWEEP, str(path), "--address", cluster.address)
    remove(cluster, node)
    assert (
        code == 2
        and re.search(r"node \S+ has trl 0.1 \(here \d", err)
        and not Run("versions-lora_rank-8-seed-1").folder.exists()
    )
