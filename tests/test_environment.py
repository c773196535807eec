"""What machine this is and what is installed on it: read off a fake GPU and the real lists
of pins.
"""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers import PROJECT, environment
from helpers.environment import (
    Machine,
    doctor,
    driver_cuda,
    install,
    installed_version,
    mismatches,
    package_versions,
    pairs_that_disagree,
    pins,
    requirements,
    requirements_file,
    this_machine,
    torch_cuda,
    vllm_obstacle,
)

CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)
GPU = Machine("NVIDIA L4", 24.2, 8.9, 8, 64.0, "3.11.7", "Linux x86_64", False)
WITHOUT_DEPENDENCIES = {"unsloth", "unsloth_zoo"}


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Put an nvidia-smi of our own on PATH, which runs these shell lines; returns the machine as it
    is then seen.
    """
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def look(script: str) -> Machine:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        this_machine.cache_clear()
        return this_machine()

    yield look
    this_machine.cache_clear()


@pytest.fixture
def no_gpu(tmp_path, monkeypatch):
    """A machine without nvidia-smi, whatever this one has."""
    monkeypatch.setenv("PATH", str(tmp_path))
    this_machine.cache_clear()
    yield
    this_machine.cache_clear()


@pytest.fixture
def versions(monkeypatch):
    """Say what is installed: the pins themselves, with these exceptions (None: not installed)."""

    def pretend(**exceptions):
        known = pins() | {"grpo-notebooks": "0.1.0"} | exceptions
        monkeypatch.setattr(environment, "installed_version", known.get)
        monkeypatch.setattr(
            environment, "torch_cuda", lambda: None if "+cpu" in (known["torch"] or "") else (13, 0)
        )
        monkeypatch.setattr(environment, "driver_cuda", lambda: (13, 0))

    return pretend


def listed(name: str) -> dict[str, str]:
    lines = (PROJECT / name).read_text(encoding="utf-8").splitlines()
    return dict(
        re.split("[ ;#]", line)[0].split("==") for line in lines if re.match(r"[\w.-]+==", line)
    )


# --- Imports --------------------------------------------------------------------------------------


def test_the_ground_floor_imports_nothing_heavy():
    code = (
        "import sys, helpers, helpers.environment, helpers.tags, helpers.runs, helpers.presets, "
        "helpers.data.sources\n"
        "import helpers.rewards\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'pyarrow', 'datasets', 'transformers'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=600
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_environment_is_read_before_anything_is_installed():
    # -S leaves the installed packages out, as on a machine that has none.
    code = (
        "from helpers.environment import doctor, pins, this_machine; "
        "print(this_machine().cores, len(pins()) > 20)"
    )
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[1-9]\d* True", done.stdout.strip())


# --- The machine ----------------------------------------------------------------------------------


def listed_by_smi(cards: str) -> str:
    """The lines as nvidia-smi has them, which begin with the UUIDs: GPU-0…, GPU-1…"""
    return "\n".join(
        f"GPU-{number}a5b-11, {line}" for number, line in enumerate(cards.splitlines())
    )


# Answers only the question that is asked, in the form asked for.
ASKED = (
    '[ "$*" = "--query-gpu=uuid,name,memory.total,compute_cap --format=csv,noheader,nounits" '
    "] || exit 2; "
)


@pytest.mark.parametrize(
    ("line", "gpu", "memory", "capability", "bf16"),
    [
        ("Tesla T4, 15360, 7.5", "Tesla T4", 16.1, 7.5, False),
        ("NVIDIA A100-SXM4-40GB, 40960, 8.0", "NVIDIA A100-SXM4-40GB", 42.9, 8.0, True),
        ("NVIDIA H200, 143771, 9.0", "NVIDIA H200", 150.8, 9.0, True),
        ("NVIDIA L4, 23034, 8.9\nTesla T4, 15360, 7.5", "NVIDIA L4", 24.2, 8.9, True),
    ],
)
def test_the_first_gpu_is_read_off_nvidia_smi(smi, line, gpu, memory, capability, bf16):
    machine = smi(f"{ASKED}printf '{listed_by_smi(line)}\\n'")
    assert (machine.gpu, machine.gpu_memory_gb, machine.compute_capability) == (
        gpu,
        memory,
        capability,
    )
    assert machine.bf16 is bf16


@pytest.mark.parametrize(
    "script",
    [
        "exit 9",
        "true",
        "echo 'No devices were found'",
        "echo 'GPU-0, NVIDIA X, [N/A], 8.0'",
        "echo 'GPU-0, NVIDIA X, 100'",
        "kill -9 $$",
    ],
)
def test_a_broken_nvidia_smi_is_told_and_means_no_gpu(smi, capsys, script):
    machine = smi(script)
    assert (machine.gpu, machine.gpu_memory_gb, machine.compute_capability) == (None, 0.0, 0.0)
    assert machine.bf16 is False
    assert "nvidia-smi is there but could not be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("visible", "gpu"), [("", None), ("-1", None), ("0", "Tesla T4"), (None, "Tesla T4")]
)
def test_a_hidden_gpu_is_not_there(smi, monkeypatch, visible, gpu):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert smi("echo 'GPU-0, Tesla T4, 15360, 7.5'").gpu == gpu


def test_without_nvidia_smi_there_is_no_gpu_and_no_complaint(no_gpu, capsys):
    machine = this_machine()
    assert machine.gpu is None
    assert machine.cores >= 1 and machine.python == sys.version.split()[0]
    # In GB: no machine that runs this has less than half of one or more than 100 TB.
    assert 0.5 < machine.memory_gb < 100_000
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("variable", "colab"), [(None, False), ("release-colab_2026", True)])
def test_colab_is_known_by_its_variable(no_gpu, monkeypatch, variable, colab):
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    if variable:
        monkeypatch.setenv("COLAB_RELEASE_TAG", variable)
    assert this_machine().colab is colab


# --- The pins -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("torch", "2.13.0"),
        ("trl", "1.15.0"),
        ("transformers", "5.17.0"),
        ("unsloth", "2026.10.9"),
        ("unsloth_zoo", "2026.10.9"),
        ("vllm", "0.31.0"),
    ],
)
def test_the_stack_is_pinned(package, version):
    assert pins()[package] == version


def test_every_pin_is_one_exact_version():
    assert pins() == listed("requirements.txt")
    assert len(pins()) > 10
    assert all(re.fullmatch(r"\d[\w.+-]*", version) for version in pins().values())


def test_the_cpu_list_is_a_part_of_the_full_one_without_what_needs_cuda():
    cpu = listed("requirements-cpu.txt")
    assert cpu.items() <= pins().items()
    assert {"torch", "trl", "transformers"} <= set(cpu)
    assert not {"vllm", "triton", "torchvision"} & set(cpu)
    # Unsloth's metadata asks for a torchvision that breaks it on a CPU, so it is installed by
    # itself.
    assert not WITHOUT_DEPENDENCIES & set(cpu)


@pytest.mark.parametrize(
    ("machine", "name"), [(CPU, "requirements-cpu.txt"), (GPU, "requirements.txt")]
)
def test_the_list_fits_the_machine(machine, name):
    assert requirements_file(machine) == PROJECT / name
    assert requirements_file(machine).is_file()


def test_an_installed_version_is_a_version_and_an_absent_package_none():
    assert installed_version("pytest") == pytest.__version__
    assert installed_version("no-such-package-here") is None


def test_package_versions_are_those_of_installed_pins_only(versions):
    versions(vllm=None, trl="9.9")
    assert package_versions() == {name: pin for name, pin in pins().items() if name != "vllm"} | {
        "trl": "9.9"
    }
    assert "grpo-notebooks" not in package_versions()


# --- The doctor -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "torch"),
    [(CPU, "2.13.0+cpu"), (CPU, "2.13.0"), (GPU, "2.13.0"), (GPU, "2.13.0+cu130")],
)
def test_where_every_pin_is_met_nothing_mismatches(versions, machine, torch):
    versions(torch=torch)
    assert mismatches(machine) == []


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_differs_or_is_absent_is_listed(versions, machine):
    versions(trl="1.14.0", transformers=None, torch="2.13.1+cpu", unsloth=None)
    expected = {("trl", "1.15.0", "1.14.0"), ("transformers", "5.17.0", None)}
    expected |= {("torch", "2.13.0", "2.13.1+cpu"), ("unsloth", "2026.10.9", None)}
    assert set(mismatches(machine)) == expected


def test_vllm_is_missed_on_a_gpu_only(versions):
    versions(vllm=None)
    assert mismatches(CPU) == []
    assert mismatches(GPU) == [("vllm", "0.31.0", None)]


def space(monkeypatch, free: float) -> None:
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


@pytest.mark.parametrize("preset", ["auto", "pocket"])
def test_a_healthy_machine_has_no_problems(no_gpu, versions, monkeypatch, preset):
    versions()
    space(monkeypatch, 50e9)
    assert doctor(preset) == []


def test_the_doctor_names_each_package_and_the_command_that_mends_it(no_gpu, versions, monkeypatch):
    versions(trl="1.14.0", transformers=None)
    space(monkeypatch, 50e9)
    problems = doctor("pocket")
    assert "trl 1.14.0 is installed, the pin is 1.15.0." in problems
    assert "transformers is not installed, the pin is 5.17.0." in problems
    assert len(problems) == 3 and problems[-1].endswith("-m helpers install")


@pytest.mark.parametrize("preset", ["t4", "h200", "high_performance"])
def test_a_preset_that_needs_a_gpu_is_a_problem_without_one(no_gpu, versions, monkeypatch, preset):
    versions()
    space(monkeypatch, 50e9)
    (problem,) = doctor(preset)
    assert repr(preset) in problem and "--preset pocket" in problem


def test_with_a_gpu_a_gpu_preset_is_no_problem(smi, versions, monkeypatch):
    versions()
    space(monkeypatch, 50e9)
    monkeypatch.setattr(environment, "torch_cuda", lambda: (13, 0))
    smi("echo 'GPU-0, Tesla T4, 15360, 7.5'")
    assert doctor("t4") == []


TWO = "NVIDIA L4, 23034, 8.9\nTesla T4, 15360, 7.5"


@pytest.mark.parametrize(
    ("cards", "visible", "told"),
    [
        (TWO, None, True),
        (TWO, "1,0", True),
        (TWO, "1", False),
        ("\n".join([TWO] * 2), "0,2", False),
        (TWO, "GPU-1a", False),
    ],
)
def test_of_several_cards_of_different_size_the_one_that_counts_is_named(
    smi, monkeypatch, capsys, cards, visible, told
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = smi(f"{ASKED}printf '{listed_by_smi(cards)}\n'")
    said = capsys.readouterr().err
    assert (machine.gpu, told) == (
        "Tesla T4" if visible in ("1,0", "1", "GPU-1a") else "NVIDIA L4",
        bool(said),
    )
    if told:
        assert (
            "2 cards of different size are visible" in said
            and "NVIDIA L4, 24 GB" in said
            and "Tesla T4, 16 GB" in said
        )
        assert "CUDA_VISIBLE_DEVICES=0" in said and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in said


@pytest.mark.parametrize(
    ("visible", "gpu", "memory"),
    [
        (" 1", "Tesla T4", 16.1),
        ("GPU-1a5b-11,0", "Tesla T4", 16.1),
        ("1,-1,0", "Tesla T4", 16.1),
        ("-1,0", None, 0.0),
        ("2,0", None, 0.0),
        ("NoDevFiles", None, 0.0),
        ("GPU-7", None, 0.0),
        ("MIG-6a1f", "NVIDIA L4 (a MIG slice)", 21.5),
        ("MIG-9", None, 0.0),
    ],
)
def test_an_entry_of_the_visible_cards_is_what_cuda_takes_it_for(
    smi, monkeypatch, visible, gpu, memory
):
    """From the first entry that names no card, CUDA sees none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    slices = (
        "GPU 0: NVIDIA L4 (UUID: GPU-0a5b-11)\n  MIG 3g.20gb     Device  0: (UUID: MIG-6a1f-02)"
    )
    machine = smi(f"[ $1 = -L ] && echo '{slices}' && exit; printf '{listed_by_smi(TWO)}\n'")
    assert (machine.gpu, machine.gpu_memory_gb) == (gpu, memory)


def test_another_card_that_cannot_be_read_changes_nothing(smi, capsys):
    machine = smi("printf 'GPU-0, NVIDIA L4, 23034, 8.9\nGPU-1, NVIDIA GB10, [N/A], 12.1\n'")
    assert machine.gpu == "NVIDIA L4" and capsys.readouterr().err == ""


# --- What vLLM prints -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="needs vLLM")
@pytest.mark.parametrize(
    ("first", "chatter"), [("", False), ("os.environ['VLLM_LOGGING_LEVEL'] = 'INFO'; ", True)]
)
def test_vllm_keeps_its_news_to_itself_and_not_its_warnings(first, chatter):
    code = (
        f"import os; {first}from helpers.environment import quiet; quiet()\n"
        "import vllm.logger\n"
        "os.environ['VLLM_LOGGING_LEVEL'] = 'INFO'  # as unsloth_zoo's patch_vllm does\n"
        "from vllm.config.logging import LoggingConfig\n"
        "vllm.logger.configure_logging_if_needed(LoggingConfig())  # as an engine does that "
        "starts\n"
        "logger = vllm.logger.init_logger('vllm.v1.executor.abstract')\n"
        "logger.info('It took 0.1 seconds to fall asleep.'); logger.warning('mind this')\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("VLLM_")
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "mind this" in said and ("fall asleep" in said) is chatter


def test_what_a_user_has_asked_of_vllms_logging_stays(monkeypatch):
    for name in ("VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_LEVEL", "VLLM_LOGGING_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    # which vLLM refuses beside VLLM_CONFIGURE_LOGGING=0
    monkeypatch.setenv("VLLM_LOGGING_CONFIG_PATH", "mine.json")
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")
    environment.quiet()
    assert "VLLM_CONFIGURE_LOGGING" not in os.environ
    monkeypatch.delenv("VLLM_LOGGING_CONFIG_PATH")
    monkeypatch.setenv("VLLM_CONFIGURE_LOGGING", "")
    monkeypatch.delenv("VLLM_CONFIGURE_LOGGING")
    environment.quiet()
    assert os.environ["VLLM_CONFIGURE_LOGGING"] == "0"


def test_a_full_disk_is_a_problem(no_gpu, versions, monkeypatch):
    versions()
    space(monkeypatch, 1.5e9)
    (problem,) = doctor("pocket")
    assert "1.5 GB of disk" in problem


# --- The install ----------------------------------------------------------------------------------


@pytest.fixture
def python(tmp_path, monkeypatch) -> Path:
    """An interpreter that installs nothing and writes down what it was called with; returns what it
    wrote into.
    """
    program, log = tmp_path / "python", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$*" >> "{log}"\n')
    program.chmod(0o755)
    monkeypatch.setattr(environment.sys, "executable", str(program))
    return log


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_unsloth_is_installed_last_and_without_its_dependencies(versions, python, machine):
    versions(trl=None)
    install(machine)
    stack, unsloth, project = (
        line.replace(";", " ").split() for line in python.read_text().splitlines()
    )
    expected = {
        f"{name}=={version}" for name, version in listed(requirements_file(machine).name).items()
    }
    own = {f"{name}=={pins()[name]}" for name in WITHOUT_DEPENDENCIES}
    assert {word for word in stack if re.search(r"\w==", word)} == expected - own
    assert "--no-deps" not in stack
    assert {word for word in unsloth if "==" in word} == own and "--no-deps" in unsloth
    assert project[-3:] == ["--no-deps", "--editable", str(PROJECT)]


def test_where_all_is_installed_nothing_is_run(versions, python):
    versions()
    install(CPU)
    assert not python.exists()


def test_a_failed_install_raises(versions, python):
    versions(trl=None)
    (python.parent / "python").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ValueError, match="exit code 3"):
        install(CPU)


# --- Pairs that were not built for one another ----------------------------------------------------


def pairs(
    monkeypatch,
    versions,
    *,
    built=(13, 0),
    driver=(13, 0),
    vllm_torch="2.13.0",
    machine=GPU,
    **installed,
) -> list[str]:
    versions(**installed)
    monkeypatch.setattr(environment, "torch_cuda", lambda: built)
    monkeypatch.setattr(environment, "driver_cuda", lambda: driver)
    monkeypatch.setattr(
        environment.metadata,
        "requires",
        lambda name: [f"torch=={vllm_torch}"] if name == "vllm" else ["numpy"],
    )
    return pairs_that_disagree(machine)


def test_a_stack_built_for_itself_has_no_pair_that_disagrees(monkeypatch, versions):
    assert pairs(monkeypatch, versions) == []
    assert pairs(monkeypatch, versions, built=(13, 2), driver=(13, 0)) == [], (
        "one major version serves all its minor ones"
    )
    assert pairs(monkeypatch, versions, vllm_torch="2.9.0", machine=CPU) == [], (
        "without a GPU none of it is used"
    )


def test_vllm_for_another_torch_is_named_with_both_and_the_pins(monkeypatch, versions):
    (said,) = pairs(monkeypatch, versions, vllm_torch="2.11.0", vllm="0.25.1")
    assert "vllm 0.25.1 was built for torch 2.11.0, and torch 2.13.0 is installed" in said
    assert "vllm==0.31.0" in said and "torch==2.13.0" in said


def test_a_torch_without_cuda_beside_a_gpu_is_named(monkeypatch, versions):
    (said,) = pairs(monkeypatch, versions, built=None, torch="2.13.0+cpu")
    assert "torch 2.13.0+cpu is a build without CUDA, and there is NVIDIA L4" in said


def test_a_driver_too_old_for_torchs_cuda_is_named(monkeypatch, versions):
    (said,) = pairs(monkeypatch, versions, built=(13, 0), driver=(12, 4))
    assert (
        "built for CUDA 13.0, and the driver serves up to CUDA 12.4" in said
        and "torch==2.13.0 for CUDA 12" in said
    )


def test_the_cuda_of_torch_and_of_the_driver_are_read_where_they_stand(smi, monkeypatch, tmp_path):
    smi('[ -z "$1" ] && echo "| NVIDIA-SMI 580.1   Driver Version: 580.1   CUDA Version: 13.0 |"')
    assert driver_cuda() == (13, 0)
    for line, cuda in (
        ("cuda: Optional[str] = None", None),
        ("cuda = '12.8'", (12, 8)),
        ("cuda: Optional[str] = '13.0'", (13, 0)),
    ):
        (tmp_path / "version.py").write_text(f"debug = False\n{line}\ngit_version = '1.2'\n")
        located = SimpleNamespace(locate_file=lambda path: tmp_path / "version.py")
        monkeypatch.setattr(
            environment.metadata, "distribution", lambda name, located=located: located
        )
        assert torch_cuda() == cuda


def test_the_real_torch_here_is_read():
    import torch

    assert torch_cuda() == (
        tuple(map(int, torch.version.cuda.split(".")[:2])) if torch.version.cuda else None
    )


# --- vLLM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "installed", "said"),
    [
        ({}, {}, None),
        (
            {},
            {"vllm": "0.30.0"},
            "vllm 0.30.0 is installed and the suite is pinned to 0.31.0 (python -m helpers "
            "install)",
        ),
        ({"compute_capability": 6.1}, {}, "needs compute capability 7.0 and NVIDIA L4 has 6.1"),
        ({}, {"vllm": None}, "vLLM is not installed"),
        ({}, {"vllm-bnb-plugin": None}, "vllm-bnb-plugin is not installed"),
    ],
)
def test_what_keeps_vllm_from_serving_is_named(versions, changes, installed, said):
    versions(**installed)
    obstacle = vllm_obstacle(replace(GPU, **changes))
    assert obstacle is None if said is None else said in obstacle


def test_a_card_without_bfloat16_is_spared_vllm(versions):
    t4 = replace(GPU, gpu="Tesla T4", compute_capability=7.5)
    assert {line.split("==")[0] for line in requirements(GPU)} - {
        line.split("==")[0] for line in requirements(t4)
    } == {
        "vllm",
        "vllm-bnb-plugin",
    }
    versions(vllm=None, **{"vllm-bnb-plugin": None})
    assert mismatches(t4) == [] and len(mismatches(GPU)) == 2
    assert requirements(CPU) == [
        line.split("#")[0].strip() for line in lines_of("requirements-cpu.txt")
    ]


def lines_of(name: str) -> list[str]:
    return [
        line
        for line in (PROJECT / name).read_text(encoding="utf-8").splitlines()
        if "==" in line and line[0] != "#"
    ]
