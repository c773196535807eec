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
    install,
    installed_version,
    mismatches,
    package_versions,
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
        cuda = None if "+cpu" in (known["torch"] or "") else "13.0"
        monkeypatch.setattr(environment, "torch_cuda", lambda: cuda)

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


@pytest.mark.parametrize("module", ["environment", "runs", "presets", "tags"])
def test_what_doctor_and_install_need_is_imported_before_anything_is_installed(module):
    # -S leaves the installed packages out, as on a machine that has none.
    code = f"import helpers.{module}; from helpers.environment import pins; print(len(pins()) > 20)"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


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
        ("NVIDIA L4, 23034, 8.9\nNVIDIA L4, 23034, 8.9", "NVIDIA L4", 24.2, 8.9, True),
    ],
)
def test_a_gpu_is_read_off_nvidia_smi(smi, capsys, line, gpu, memory, capability, bf16):
    machine = smi(f"{ASKED}printf '{listed_by_smi(line)}\\n'")
    assert (machine.gpu, machine.gpu_memory_gb, machine.compute_capability) == (
        gpu,
        memory,
        capability,
    )
    assert machine.bf16 is bf16 and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "script",
    ["exit 9", "echo 'No devices were found'", "echo 'GPU-0, NVIDIA X, [N/A], 8.0'", "kill -9 $$"],
)
def test_a_broken_nvidia_smi_is_told_and_means_no_gpu(smi, capsys, script):
    machine = smi(script)
    assert (machine.gpu, machine.gpu_memory_gb, machine.compute_capability) == (None, 0.0, 0.0)
    assert machine.bf16 is False
    assert "nvidia-smi is there but could not be read" in capsys.readouterr().err


TWO = "NVIDIA L4, 23034, 8.9\nTesla T4, 15360, 7.5"


@pytest.mark.parametrize(
    ("visible", "gpu", "memory"),
    [
        (None, "NVIDIA L4", 24.2),
        ("", None, 0.0),
        ("-1", None, 0.0),
        ("0", "NVIDIA L4", 24.2),
        (" 1", "Tesla T4", 16.1),
        ("1,0", "Tesla T4", 16.1),
        ("GPU-1a5b-11,0", "Tesla T4", 16.1),
        ("1,-1,0", "Tesla T4", 16.1),
        ("-1,0", None, 0.0),
        ("2,0", None, 0.0),
        ("GPU-7", None, 0.0),
    ],
)
def test_the_first_visible_gpu_counts_as_cuda_counts_them(
    smi, monkeypatch, capsys, visible, gpu, memory
):
    """From the first entry that names no GPU, CUDA sees none."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = smi(f"{ASKED}printf '{listed_by_smi(TWO)}\n'")
    assert (machine.gpu, machine.gpu_memory_gb) == (gpu, memory)
    said = capsys.readouterr().err
    if visible in (None, "1,0", "GPU-1a5b-11,0"):
        for part in ("2 cards of different size", "NVIDIA L4, 24 GB", "CUDA_VISIBLE_DEVICES=0"):
            assert part in said
    else:
        assert said == ""


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


def test_every_pin_is_one_exact_version():
    assert pins() == listed("requirements.txt")
    assert {"torch", "trl", "transformers", "unsloth", "unsloth_zoo", "vllm"} <= set(pins())
    assert all(re.fullmatch(r"\d[\w.+-]*", version) for version in pins().values())


def test_the_cpu_list_is_a_part_of_the_full_one_without_what_needs_cuda():
    cpu = listed("requirements-cpu.txt")
    assert cpu.items() <= pins().items()
    assert {"torch", "trl", "transformers"} <= set(cpu)
    assert not {"vllm", "triton", "torchvision"} & set(cpu)
    # Unsloth's metadata asks for a torchvision that breaks it on a CPU, so it is installed by
    # itself.
    assert not WITHOUT_DEPENDENCIES & set(cpu)


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
    ("machine", "installed", "found"),
    [
        *((CPU, {"torch": f"2.13.0{build}"}, set()) for build in ("", "+cpu")),
        *((GPU, {"torch": f"2.13.0{build}"}, set()) for build in ("", "+cu130")),
        (
            GPU,
            {"torch": "2.13.0+cpu"},
            {("torch", "2.13.0 for CUDA", "2.13.0+cpu (without CUDA)")},
        ),
        (CPU, {"vllm": None}, set()),
        (GPU, {"vllm": None}, {("vllm", "0.31.0", None)}),
        (
            CPU,
            {"trl": "1.14.0", "transformers": None, "torch": "2.13.1+cpu", "unsloth": None},
            {
                ("trl", "1.15.0", "1.14.0"),
                ("transformers", "5.17.0", None),
                ("torch", "2.13.0", "2.13.1+cpu"),
                ("unsloth", "2026.10.9", None),
            },
        ),
    ],
)
def test_what_differs_from_the_pins_or_is_absent_is_listed(versions, machine, installed, found):
    versions(**installed)
    assert set(mismatches(machine)) == found


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
    smi("echo 'GPU-0, Tesla T4, 15360, 7.5'")
    assert doctor("t4") == []


def test_a_full_disk_is_a_problem(no_gpu, versions, monkeypatch):
    versions()
    space(monkeypatch, 1.5e9)
    (problem,) = doctor("pocket")
    assert "1.5 GB of disk" in problem


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


def test_a_torch_without_cuda_is_replaced_beside_a_gpu(versions, python):
    versions(torch="2.13.0+cpu")
    install(GPU)
    assert " torch==2.13.0,!=2.13.0+cpu " in python.read_text(), "pip would keep it"


def test_a_failed_install_raises(versions, python):
    versions(trl=None)
    (python.parent / "python").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ValueError, match="exit code 3"):
        install(CPU)


def test_the_cuda_of_torch_is_read_off_its_version_file(monkeypatch, tmp_path):
    import torch

    assert torch_cuda() == torch.version.cuda
    for line, cuda in (
        ("cuda: Optional[str] = None", None),
        ("cuda = '12.8'", "12.8"),
        ("cuda: Optional[str] = '13.0'", "13.0"),
    ):
        (tmp_path / "version.py").write_text(f"debug = False\n{line}\ngit_version = '1.2'\n")
        located = SimpleNamespace(locate_file=lambda path: tmp_path / "version.py")
        monkeypatch.setattr(
            environment.metadata, "distribution", lambda name, located=located: located
        )
        assert torch_cuda() == cuda


# --- What is installed and cannot be imported -----------------------------------------------------


@pytest.fixture
def imports(tmp_path, monkeypatch):
    """The real interpreter with a torch and a torchvision of the test's own, which are pinned:
    imports(torchvision="raise ...") gives what is told of them.
    """

    def told(machine: Machine = CPU, seconds: float = 60, **modules: str) -> list[str]:
        project, site = tmp_path / "project", tmp_path / "site"
        project.mkdir()
        for name, version in (("torch", "2.13.0"), ("torchvision", "0.28.0")):
            (site / f"{name}-{version}.dist-info").mkdir(parents=True)
            (site / f"{name}-{version}.dist-info" / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            (site / name).mkdir()
            (site / name / "__init__.py").write_text(modules.get(name, ""))
        (site / "torch" / "version.py").write_text("cuda = '13.0'\n")
        for name in ("requirements.txt", "requirements-cpu.txt"):
            (project / name).write_text("torch==2.13.0\ntorchvision==0.28.0\n")
        monkeypatch.setattr(environment, "PROJECT", project)
        environment.pins.cache_clear()
        monkeypatch.setattr(sys, "path", [str(site)])
        monkeypatch.setenv("PYTHONPATH", str(site))
        monkeypatch.setenv("PYTHONNOUSERSITE", "1")
        return environment.broken_imports(machine, seconds)

    yield told
    environment.pins.cache_clear()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", None),
        ("raise ImportError('libcudart.so.12: no such file')", "ImportError: libcudart.so.12: no"),
        ("import os; os.kill(os.getpid(), 11)", "it crashes with signal 11"),
        ("import time; time.sleep(600)", "it takes more than 5 seconds"),
        ("import sys; sys.exit(4)", "exit code 4"),
    ],
)
def test_what_is_installed_as_pinned_and_breaks_is_told_of(imports, text, said):
    found = imports(seconds=5 if "sleep" in text else 60, torchvision=text)
    if said is None:
        assert found == []
    else:
        (sentence,) = found
        assert f"torchvision is installed as pinned and cannot be imported: {said}" in sentence


@pytest.mark.parametrize(
    ("machine", "torch", "said"),
    [
        (CPU, "1 / 0", "ZeroDivisionError"),
        (
            GPU,
            "def ones(*args, device): raise RuntimeError(f'no {device}')",
            "RuntimeError: no cuda",
        ),
    ],
)
def test_where_torch_breaks_nothing_is_blamed_on_the_others(imports, machine, torch, said):
    (sentence,) = imports(machine, torch=torch, torchvision="import torch")
    assert sentence.startswith("torch is installed") and said in sentence


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
    assert set(requirements(GPU)) - set(requirements(t4)) == {
        line for line in requirements(GPU) if line.startswith("vllm")
    }
    versions(vllm=None, **{"vllm-bnb-plugin": None})
    assert mismatches(t4) == [] and len(mismatches(GPU)) == 2
