"""Packages of the right version and the wrong build, beside a GPU: metadata in folders of the
test's own, and the real pip.
"""

import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import environment
from helpers.environment import (
    Machine,
    broken_imports,
    doctor,
    install,
    installed_version,
    mismatches,
    torch_cuda,
)

pytestmark = pytest.mark.slow

CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)
GPU = replace(CPU, gpu="NVIDIA L4", gpu_memory_gb=24.2, compute_capability=8.9)
CUDA = {"": "13.0", "+cpu": None, "+cu128": "12.8", "+cu130": "13.0"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose lists hold torch, torchvision and Unsloth; nvidia-smi speaks of a driver for
    CUDA 13.
    """
    for name in ("requirements.txt", "requirements-cpu.txt"):
        (tmp_path / name).write_text(
            "torch==2.13.0\ntorchvision==0.28.0\nunsloth==1.0\nunsloth_zoo==1.0\n"
        )
    monkeypatch.setattr(environment, "PROJECT", tmp_path)
    monkeypatch.setattr(environment, "driver_cuda", lambda: (13, 0))
    environment.pins.cache_clear()
    yield tmp_path
    environment.pins.cache_clear()


def files(name: str, version: str, cuda: str | None) -> dict[str, str]:
    """What a package consists of: its metadata, a module, and what torch says of its build."""
    about = f"{name}-{version}.dist-info"
    return {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
        f"{name}/__init__.py": "",
    } | ({"torch/version.py": f"cuda = {cuda!r}\n"} if name == "torch" else {})


@pytest.fixture
def site(project, monkeypatch):
    """The only folder that is searched for packages: site(torch="+cpu") has torch of that build;
    the rest is as pinned.
    """

    def fill(torch: str, cuda: str | None = "", torchvision: str = "") -> Path:
        folder = project / "site"
        versions = {
            "torch": f"2.13.0{torch}",
            "torchvision": f"0.28.0{torchvision}",
            "unsloth": "1.0",
            "unsloth_zoo": "1.0",
        }
        for name, version in versions.items():
            for path, text in files(name, version, CUDA[torch] if cuda == "" else cuda).items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
        monkeypatch.setattr(sys, "path", [str(folder)])
        return folder

    return fill


# --- What counts as installed ---------------------------------------------------------------------


@pytest.mark.parametrize("torch", ["+cpu", "+cu128"])
def test_beside_a_gpu_another_build_of_torch_is_a_mismatch_and_the_doctor_names_it(
    site, monkeypatch, torch
):
    site(torch)
    assert mismatches(GPU) == [("torch", "2.13.0 for CUDA 13", f"2.13.0{torch}")]
    assert mismatches(CPU) == [], "without a GPU any build will do"
    monkeypatch.setattr(environment, "this_machine", lambda: GPU)
    problems = doctor("l4")
    assert f"torch 2.13.0{torch} is installed, the pin is 2.13.0 for CUDA 13." in problems
    assert any("helpers install" in problem for problem in problems)


@pytest.mark.parametrize("torch", ["", "+cu130"])
def test_beside_a_gpu_the_pins_own_build_is_none(site, torch):
    site(torch)
    assert mismatches(GPU) == []


def test_a_build_is_known_by_what_torch_says_and_not_by_its_name_alone(site):
    site("", cuda="12.8")
    assert mismatches(GPU) == [("torch", "2.13.0 for CUDA 13", "2.13.0 for CUDA 12")]


def test_what_belongs_to_torch_is_compared_too(site):
    site("", torchvision="+cu126")
    assert mismatches(GPU) == [("torchvision", "0.28.0 for CUDA 13", "0.28.0+cu126")]


@pytest.mark.parametrize(
    ("driver", "torch", "right"),
    [((12, 8), "+cu128", True), ((12, 8), "+cpu", False), ((12, 8), "", True)],
)
def test_an_older_driver_makes_an_older_build_right(site, monkeypatch, driver, torch, right):
    site(torch)
    monkeypatch.setattr(environment, "driver_cuda", lambda: driver)
    assert (mismatches(GPU) == []) is right


# --- The install, with the real pip ---------------------------------------------------------------


@pytest.fixture
def pip(project, monkeypatch):
    """The real pip for an environment of its own, without a network: pip("+cpu", ["", "+cpu"]) has
    installed the first of these builds of torch and finds the others.
    """

    def prepare(build: str, found: list[str]) -> None:
        shelf, own = project / "shelf", project / "own"
        shelf.mkdir()
        wheels = [("torch", f"2.13.0{label}", CUDA[label]) for label in {build, *found}]
        for name, version, cuda in [
            *wheels,
            *((name, "1.0", None) for name in ("unsloth", "unsloth_zoo")),
        ]:
            with zipfile.ZipFile(shelf / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
                for path, text in files(name, version, cuda).items():
                    wheel.writestr(path, text)
        for name in ("requirements.txt", "requirements-cpu.txt"):
            (project / name).write_text("torch==2.13.0\nunsloth==1.0\nunsloth_zoo==1.0\n")
        environment.pins.cache_clear()
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(own)], check=True, timeout=600
        )
        python = project / "python"  # the project itself is no package here
        lines = ["#!/bin/sh", 'case "$*" in *--editable*) exit 0;; esac', "shift 2"]
        python.write_text(
            "\n".join(
                [*lines, f'exec "{sys.executable}" -m pip --python "{own}/bin/python" "$@"', ""]
            )
        )
        python.chmod(0o755)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", f"torch===2.13.0{build}"],
            check=True,
            timeout=600,
        )
        if build not in found:
            (shelf / f"torch-2.13.0{build}-py3-none-any.whl").unlink()
        monkeypatch.setattr(environment.sys, "executable", str(python))
        monkeypatch.setattr(sys, "path", [str(next((own / "lib").glob("python*/site-packages")))])

    return prepare


@pytest.mark.parametrize(("build", "found"), [("+cpu", ["", "+cpu"]), ("+cu128", ["+cu130"])])
def test_another_build_of_torch_is_replaced_although_pip_has_its_version(pip, capsys, build, found):
    pip(build, found)
    install(GPU)
    assert (installed_version("torch"), torch_cuda()) == (f"2.13.0{found[0]}", (13, 0))
    assert (
        f"torch 2.13.0{build} is replaced: beside NVIDIA L4 the build for CUDA 13 is needed"
        in capsys.readouterr().out
    )
    assert mismatches(GPU) == []


@pytest.mark.parametrize(
    ("build", "found", "said"),
    [
        ("+cpu", ["+cpu"], "pip could not install the packages .* holds builds for CUDA 13"),
        ("+cu128", ["+cpu"], re.escape("still not the build for CUDA 13: torch 2.13.0+cpu.")),
    ],
)
def test_where_pip_finds_no_build_for_the_gpu_it_is_said(pip, build, found, said):
    pip(build, found)
    with pytest.raises(ValueError, match=said):
        install(GPU)


# --- What is installed and cannot be imported -----------------------------------------------------


@pytest.fixture
def imports(site, monkeypatch):
    """The real interpreter with packages of the test's own: imports(torchvision="raise ...") gives
    what is told of them.
    """
    executable = sys.executable

    def told(machine: Machine = CPU, seconds: float = 60, **modules: str) -> list[str]:
        folder = site("+cpu" if machine is CPU else "")
        for name, text in modules.items():
            (folder / name / "__init__.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setenv("PYTHONNOUSERSITE", "1")
        monkeypatch.setattr(environment.sys, "executable", executable)
        return broken_imports(machine, seconds)

    return told


def test_what_can_be_imported_is_not_told_of(imports):
    assert imports() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "raise ImportError('libcudart.so.12: no such file')",
            "ImportError: libcudart.so.12: no such file",
        ),
        ("import os; os.kill(os.getpid(), 11)", "it crashes with signal 11"),
        ("import time; time.sleep(600)", "it takes more than 10 seconds"),
        ("import sys; sys.exit(4)", "exit code 4"),
    ],
)
def test_what_is_installed_as_pinned_and_breaks_is_told_of_and_breaks_nothing_else(
    imports, text, said
):
    assert imports(seconds=10 if "sleep" in text else 60, torchvision=text) == [
        f"torchvision is installed as pinned and cannot be imported: {said}"
    ]


def test_where_torch_breaks_nothing_is_blamed_on_the_others(imports):
    (said,) = imports(torch="1 / 0", torchvision="import torch")
    assert said.startswith("torch is installed") and "ZeroDivisionError" in said


def test_beside_a_gpu_torch_must_reach_it(imports):
    (said,) = imports(
        GPU, torch="def ones(*args, device): raise RuntimeError(f'no kernel for {device}')"
    )
    assert said.endswith("RuntimeError: no kernel for cuda")
