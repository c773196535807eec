"""What machine this is, what is installed on it, and what is missing. Standard library only: it runs before the install.

`install` is the one place that knows how to install the suite; `make setup`, the Colab cell and `python -m helpers install`
all call it.
"""

from __future__ import annotations

import importlib
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
_TOKENS = ("HF_TOKEN", "WANDB_API_KEY")


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


def in_kaggle() -> bool:
    """Whether this process runs in a Kaggle notebook, by the variable that its sessions set."""
    return "KAGGLE_KERNEL_RUN_TYPE" in os.environ


def interactive() -> bool:
    """Whether a person sits at this notebook: a front end that can be asked for input, as papermill and nbconvert cannot."""
    return bool(getattr(_kernel(), "_allow_stdin", False))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whoever runs it: what is displayed can be replaced in its place."""
    return _kernel() is not None


def _kernel():
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython else None, "kernel", None)


def vllm_obstacle(machine: Machine) -> str | None:
    """Why vLLM cannot serve here, in a few words; None where it can, as far as that can be told without starting it."""
    if machine.gpu is None:
        return "vLLM needs a GPU and none is visible"
    if machine.compute_capability < 7.0:
        return f"vLLM needs compute capability 7.0 and {machine.gpu} has {machine.compute_capability}"
    if installed_version("vllm") is None:
        return "vLLM is not installed"
    if installed_version("vllm-bnb-plugin") is None:
        return "vllm-bnb-plugin is not installed, without which vLLM reads no 4-bit weights"
    return None


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


def requirements(machine: Machine) -> list[str]:
    """The pinned lines of the machine's list that apply to it.

    On a card without bfloat16 (T4, V100) vLLM is left out: no preset uses it there, and it is by far the largest part.
    """
    lines = requirements_file(machine).read_text(encoding="utf-8").splitlines()
    without = ("vllm",) if machine.gpu and not machine.bf16 else ()
    return [
        line.partition("#")[0].strip()
        for line in lines
        if _PIN.match(line)
        and not line.startswith(without)
        and (sys.platform == "linux" or 'sys_platform == "linux"' not in line)
    ]


def mismatches(machine: Machine) -> list[tuple[str, str, str | None]]:
    """(package, pinned, installed) for each package of this machine's list that is absent or of another version."""
    names = {_PIN.match(line)[1] for line in requirements(machine)} | set(_WITHOUT_DEPENDENCIES)
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
    first = [line for line in requirements(machine) if _PIN.match(line)[1] not in _WITHOUT_DEPENDENCIES]
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


def set_up_hosted() -> None:
    """In Colab and Kaggle, from a notebook's first cell: tokens from the host's secrets, the install, and whether to restart.

    What the runtime ships stays where it is the pinned version; the second time there is nothing left to do.
    """
    tokens = tokens_from_secrets()
    if tokens:
        print(f"set from the secrets of this account: {', '.join(tokens)}")
    before = _loaded_versions()
    install()
    importlib.invalidate_caches()
    replaced = sorted(name for name, version in _loaded_versions().items() if before.get(name, version) != version)
    if replaced:
        print(
            f"RESTART NEEDED: {', '.join(replaced)} had been imported before and were replaced. Restart the session (Colab: "
            "Runtime > Restart session; Kaggle: Run > Restart session), then run this cell again; it will change nothing."
        )


def _loaded_versions() -> dict[str, str]:
    """The installed versions of the packages that this process has imported."""
    loaded = {module.partition(".")[0] for module in list(sys.modules)}
    packages = {name for module, names in metadata.packages_distributions().items() if module in loaded for name in names}
    return {name: version for name in packages if (version := installed_version(name))}


def tokens_from_secrets() -> list[str]:
    """Put HF_TOKEN and WANDB_API_KEY from the secrets of Colab or Kaggle into the environment; returns the names that were set.

    A token that is in the environment already stays. One that is not among the secrets, or not open to this notebook, is
    passed over. No value is printed.
    """
    found = []
    for name in _TOKENS:
        if not os.environ.get(name) and (value := _secret(name)):
            os.environ[name] = value
            found.append(name)
    return found


def _secret(name: str) -> str | None:
    try:
        if in_colab():
            from google.colab import userdata

            return userdata.get(name)
        if in_kaggle():
            from kaggle_secrets import UserSecretsClient

            return UserSecretsClient().get_secret(name)
    except Exception:  # each host has exceptions of its own for absent and for not allowed
        return None
    return None


def quiet() -> None:
    """Keep progress bars and notices that say nothing about the run out of a notebook. Call before importing the libraries.

    Warnings stay on: what a library warns of is for the reader to see.
    """
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # At import it reports, as a warning, that an optional kernel package is absent; the run does not miss it.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def pairs_that_disagree(machine: Machine) -> list[str]:
    """Packages, or a package and the driver, that were not built for one another; a sentence a pair, with the pin.

    A compiled extension names the one torch it was built for among its requirements, and torch the CUDA it was built for.
    """
    if machine.gpu is None:
        return []
    found, torch = [], installed_version("torch")
    for name in ("vllm", "torchvision", "xformers"):
        wanted = _torch_of(name)
        if torch and wanted and torch.split("+")[0] != wanted:
            found.append(
                f"{name} {installed_version(name)} was built for torch {wanted}, and torch {torch} is installed; the pins are "
                f"{name}=={pins().get(name)} and torch=={pins().get('torch')}."
            )
    built, driver = torch_cuda(), driver_cuda()
    if torch and built is None:
        found.append(
            f"torch {torch} is a build without CUDA, and there is {machine.gpu}; the pin is torch=={pins().get('torch')}."
        )
    elif built and driver and built[0] > driver[0]:  # within a major version, drivers serve newer builds too
        found.append(
            f"torch {torch} was built for CUDA {_dotted(built)}, and the driver serves up to CUDA {_dotted(driver)}: update "
            f"the NVIDIA driver, or install the build of torch=={pins().get('torch')} for CUDA {driver[0]}."
        )
    return found


def _torch_of(package: str) -> str | None:
    try:
        needs = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((match[1] for need in needs if (match := re.match(r"torch\s*\(?==\s*([\d.]+)", need))), None)


def torch_cuda() -> tuple[int, int] | None:
    """(major, minor) of the CUDA that the installed torch was built for, read off its version file; None for a CPU build."""
    try:
        text = Path(metadata.distribution("torch").locate_file("torch/version.py")).read_text(encoding="utf-8")
    except (metadata.PackageNotFoundError, OSError):
        return None
    match = re.search(r"^cuda\b.*=\s*['\"](\d+)\.(\d+)", text, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else None


def driver_cuda() -> tuple[int, int] | None:
    """(major, minor) of the newest CUDA that the driver serves, as nvidia-smi prints it."""
    try:
        printed = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", printed)
    return (int(match[1]), int(match[2])) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def doctor(preset: str, runs: Path = PROJECT / "runs") -> list[str]:
    """What is wrong with this machine's set-up, one sentence each with the command that mends it; empty where all is well.

    runs: the folder of the runs, whose disk must have room.
    """
    machine, problems = this_machine(), []
    if sys.version_info < (3, 11):
        problems.append(f"Python {machine.python} is too old: make a virtual environment with Python 3.11 or newer.")
    for name, pin, have in mismatches(machine):
        problems.append(
            f"{name} {have} is installed, the pin is {pin}." if have else f"{name} is not installed, the pin is {pin}."
        )
    problems += pairs_that_disagree(machine)
    if problems:
        problems.append(f"mend with: {Path(sys.executable).name} -m helpers install")
    there = next(folder for folder in (runs, *runs.parents) if folder.exists())
    free = shutil.disk_usage(there).free / 1e9
    if free < 2:
        problems.append(
            f"only {free:.1f} GB of disk are free for the runs; a pocket run needs 0.1 GB, the install 3 GB. Delete old runs."
        )
    if machine.gpu is None and preset not in ("auto", "pocket"):
        problems.append(f"preset {preset!r} needs an NVIDIA GPU and none is visible. Take `--preset pocket`, which runs here.")
    return problems
