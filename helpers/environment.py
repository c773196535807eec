"""What machine this is, what is installed on it, and what is missing. Standard library only: it runs before the install.

`install` is the one place that knows how to install the suite; `make setup`, the Colab cell and `python -m helpers install`
all call it.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from helpers import PROJECT

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*])?==([^\s;]+)")
_GPU_QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
# Installed without their dependencies: Unsloth's metadata asks for a torchvision whose default build is CUDA, which makes
# `import unsloth` raise on a CPU torch, and for a certifi newer than some indexes hold. Its real needs are in the lists.
_WITHOUT_DEPENDENCIES = ("unsloth", "unsloth_zoo")


@dataclass(frozen=True)
class Machine:
    """A machine as far as choosing a preset needs it; memory in GB (10**9 bytes)."""

    gpu: str | None
    gpu_memory_gb: float
    compute_capability: float
    cores: int
    memory_gb: float
    python: str
    system: str
    colab: bool

    @property
    def bf16(self) -> bool:
        """Whether the GPU has bfloat16 arithmetic (Ampere, compute capability 8.0, and later)."""
        return self.compute_capability >= 8.0


@cache
def this_machine() -> Machine:
    """Look at this machine, without torch: the GPU is read off nvidia-smi, the first visible one where there are several."""
    gpu, memory, capability = None, 0.0, 0.0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shutil.which("nvidia-smi") and visible not in ("", "-1"):
        try:
            listed = subprocess.run(_GPU_QUERY, capture_output=True, text=True, timeout=30, check=True).stdout
            first = (visible or "0").split(",")[0]
            line = listed.splitlines()[int(first) if first.isdigit() else 0]
            name, mib, compute = (field.strip() for field in line.split(","))
            gpu, memory, capability = name, float(mib) * 2**20 / 1e9, float(compute)
        except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
            print(f"nvidia-smi is there but could not be read ({error}); going on without a GPU.", file=sys.stderr)
    return Machine(
        gpu=gpu,
        gpu_memory_gb=round(memory, 1),
        compute_capability=capability,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=round(_memory_bytes() / 1e9, 1),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        colab=in_colab(),
    )


def in_colab() -> bool:
    """Whether this process runs in Google Colab, by the variable that its runtimes set."""
    return "COLAB_RELEASE_TAG" in os.environ


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 0


@cache
def pins() -> dict[str, str]:
    """Package to version, as requirements.txt pins them; empty where the package was installed without the checkout."""
    path = PROJECT / "requirements.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {match[1]: match[2] for line in lines if (match := _PIN.match(line))}


def installed_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def package_versions() -> dict[str, str]:
    """The installed versions of the pinned packages: what a run's result may depend on."""
    return {name: version for name in pins() if (version := installed_version(name))}


def requirements_file(machine: Machine) -> Path:
    """The list that fits the machine: the full stack where there is an NVIDIA GPU, else the one without CUDA."""
    return PROJECT / ("requirements.txt" if machine.gpu else "requirements-cpu.txt")


def mismatches(machine: Machine) -> list[tuple[str, str, str | None]]:
    """(package, pinned, installed) for each package of this machine's list that is absent or of another version."""
    listed = requirements_file(machine).read_text(encoding="utf-8").splitlines()
    if sys.platform != "linux":
        listed = [line for line in listed if 'sys_platform == "linux"' not in line]
    names = {match[1] for line in listed if (match := _PIN.match(line))} | set(_WITHOUT_DEPENDENCIES)
    found = [(name, version, installed_version(name)) for name, version in pins().items() if name in names]
    return [(name, pin, have) for name, pin, have in found if have is None or have.split("+")[0] != pin]


def install(machine: Machine | None = None) -> None:
    """Install what this machine needs into the running interpreter, and this project in place. ValueError on failure.

    Two steps: the list that fits the machine, then Unsloth without its dependencies (see `_WITHOUT_DEPENDENCIES`).
    """
    machine = machine or this_machine()
    if not mismatches(machine) and installed_version("grpo-notebooks"):
        print("everything is installed already")
        return
    source = requirements_file(machine)
    wanted = [line for line in source.read_text(encoding="utf-8").splitlines() if _PIN.match(line)]
    first = [line.partition("#")[0].strip() for line in wanted if _PIN.match(line)[1] not in _WITHOUT_DEPENDENCIES]
    print(f"installing {source.name} for {machine.gpu or 'a CPU'}: {len(first) + len(_WITHOUT_DEPENDENCIES)} pinned packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    versions = pins()
    commands = (
        [*pip, *first],
        [*pip, "--no-deps", *(f"{name}=={versions[name]}" for name in _WITHOUT_DEPENDENCIES)],
        [*pip, "--no-deps", "--editable", str(PROJECT)],
    )
    for command in commands:
        done = subprocess.run(command)
        if done.returncode:
            raise ValueError(
                f"pip could not install the packages (exit code {done.returncode}; its own message is above). Check the "
                f"network and the free disk space, then run it again: {Path(sys.executable).name} -m helpers install"
            )


def quiet() -> None:
    """Keep progress bars and notices that say nothing about the run out of a notebook. Call before importing the libraries.

    Warnings stay on: what a library warns of is for the reader to see.
    """
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # At import it reports, as a warning, that an optional kernel package is absent; the run does not miss it.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def doctor(preset: str) -> list[str]:
    """What is wrong with this machine's set-up, one sentence each with the command that mends it; empty where all is well."""
    machine, problems = this_machine(), []
    if sys.version_info < (3, 11):
        problems.append(f"Python {machine.python} is too old: make a virtual environment with Python 3.11 or newer.")
    for name, pin, have in mismatches(machine):
        problems.append(
            f"{name} {have} is installed, the pin is {pin}." if have else f"{name} is not installed, the pin is {pin}."
        )
    if problems:
        problems.append(f"mend with: {Path(sys.executable).name} -m helpers install")
    free = shutil.disk_usage(PROJECT).free / 1e9
    if free < 2:
        problems.append(f"only {free:.1f} GB of disk are free; a pocket run needs 0.1 GB, the install 3 GB. Delete old runs/.")
    if machine.gpu is None and preset not in ("auto", "pocket"):
        problems.append(f"preset {preset!r} needs an NVIDIA GPU and none is visible. Take `--preset pocket`, which runs here.")
    return problems
