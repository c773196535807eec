"""Starting a program as several ranks, as torchrun does, and ending one of them."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

PROJECT = Path(__file__).resolve().parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(*program: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen:
    """Two ranks of one thread each; `program` is what torchrun takes after its own options."""
    own = {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(PROJECT),
        "PYTHONUNBUFFERED": "1",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [*TORCHRUN, *program], cwd=cwd or PROJECT, env=os.environ | own | environment, **pipes
    )


def ended(process: subprocess.Popen, seconds: float = 600) -> tuple[int, str, str]:
    """The exit code and what was printed; the process and its ranks are ended if that
    takes too long.
    """
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    finally:
        for left in ranks_of(process).values():
            left.kill()
        process.kill()


def together(*program: str, seconds: float = 900, **environment: str) -> tuple[int, str, str]:
    """`start` and `ended`."""
    return ended(start(*program, **environment), seconds)


def ranks_of(process: subprocess.Popen) -> dict[int, psutil.Process]:
    """The ranks that a launcher has started, by their number."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return {
            int(child.environ()["RANK"]): child for child in children if "RANK" in child.environ()
        }
    except psutil.NoSuchProcess:
        return {}


def kill_rank(process: subprocess.Popen, rank: int) -> None:
    """Nobody gets to say goodbye."""
    ranks_of(process)[rank].kill()
