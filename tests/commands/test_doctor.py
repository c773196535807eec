"""The command `doctor`: the machine, the packages, and the memory that settings need."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from helpers import PROJECT, environment
from helpers.presets import PRESETS
from helpers.settling import settle
from helpers.training import memory

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """A project that holds nothing but empty lists of requirements; lists(text) replaces them."""
    monkeypatch.setattr(environment, "PROJECT", tmp_path)
    (tmp_path / "deploy").mkdir()

    def write(text: str) -> None:
        for name in ("requirements.txt", "deploy/requirements-cpu.txt"):
            (tmp_path / name).write_text(text)
        environment.pins.cache_clear()

    write("")
    yield write
    environment.pins.cache_clear()


def test_the_machine_is_described_and_wrong_packages_are_named(cli, lists, monkeypatch):
    version = environment.installed_version("pytest")
    lists(f"# a note\npytest=={version}  # pinned\n")
    monkeypatch.setenv("UNSLOTH_GRPO_LOSS_AGGREGATION", "prompt")
    code, out, err = cli("doctor")
    machine = environment.this_machine()
    assert (code, err) == (0, "") and "all well" in out
    assert f"{machine.system}, {machine.cores} cores" in out and f"Python {machine.python}" in out
    assert "GPU       none" in out and "preset    pocket: pocket on arithmetic/sums" in out
    for has_bf16, told in (("0", "computes in 32 bits, slower"), ("1", "computes in bfloat16\n")):
        monkeypatch.setenv("UNSLOTH_CPU_BF16", has_bf16)
        assert told in cli("doctor")[1]
    assert any(line.split() == ["pytest", version] for line in out.splitlines())
    assert "switch    UNSLOTH_GRPO_LOSS_AGGREGATION=prompt (see docs/switches.md)\n" in out
    lists("pytest==0.1\n")
    code, out, _ = cli("doctor")
    assert code == 1 and "pytest" in out and "0.1" in out and "all well" not in out


def test_the_file_that_is_named_has_every_package_that_is_listed(cli):
    out = cli("doctor")[1]
    name, listed = re.search(r"packages  of (\S+), as installed\n((?: {10}\S.*\n)+)", out).groups()
    (file,) = {*PROJECT.glob(name), *PROJECT.glob(f"deploy/{name}")}
    for line in listed.splitlines():
        assert f"\n{line.split()[0]}==" in file.read_text()


def test_the_memory_of_a_model_and_lengths_is_estimated(cli, lists):
    own = "--preset h200 --model unsloth/Qwen3-4B -p max_completion_length=1024 -p lora_rank=16"
    code, out, _ = cli("doctor", *own.split())
    settings = settle(
        PRESETS["h200"], model="unsloth/Qwen3-4B", max_completion_length=1024, lora_rank=16
    )
    smallest = replace(environment.this_machine(), gpu="such a card", gpu_memory_gb=138.0)
    assert code == 1 and "\n".join(memory.check(settings, smallest)) in out
    assert "preset    h200: unsloth/Qwen3-4B on openai/gsm8k" in out
    assert "memory of a step of unsloth/Qwen3-4B, at 1,280 tokens a sequence" in out


def test_the_memory_of_a_model_in_a_folder_is_estimated(cli, lists, monkeypatch):
    monkeypatch.chdir(PROJECT / "helpers" / "pocket")
    given = ["-p", "preset=pocket", "-p", "max_completion_length=32"]
    code, out, _ = cli("doctor", "--model", "model", *given)
    assert code == 0 and f"pocket: {PROJECT}/helpers/pocket/model on arithmetic/sums" in out
    assert "at 96 tokens a sequence" in out and "all well" in out


def test_it_starts_without_any_package():
    command = [sys.executable, "-S", "-m", "helpers", "doctor", "--preset", "pocket"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 1 and "unsloth is not installed" in done.stdout and not done.stderr


@pytest.fixture
def card(smi):
    """A machine whose nvidia-smi reports an L4."""
    smi("NVIDIA L4, 23034, 8.9, 580.95.05")


T4 = "Tesla T4, 15360, 7.5, 580.82.07"
OLD = "driver of NVIDIA L4 is 570.124.06, and the pinned torch needs 580"


@pytest.mark.parametrize(
    ("gpus", "described", "preset", "problem"),
    [
        ([T4, T4], "Tesla T4, 16 GB, compute capability 7.5, fp16 only", "t4", None),
        (
            ["Tesla P100-PCIE-16GB, 16384, 6.0, 580.82.07"],
            "Tesla P100-PCIE-16GB, 17 GB, compute capability 6.0, fp16 only",
            "pocket",
            "supports 7.5 (Turing: T4, RTX 20) and later",
        ),
        (["NVIDIA L4, 23034, 8.9, 570.124.06"], "NVIDIA L4, 24 GB", "pocket", OLD),
        (["NVIDIA GeForce RTX 4060, 8188, 8.9, 580.95.05"], "RTX 4060, 9 GB", "small", None),
        (["NVIDIA GeForce RTX 5090, 32607, 12.0, 580.95.05"], "RTX 5090, 34 GB", "l4", None),
        (["NVIDIA H100 80GB HBM3, 81559, 9.0, 580.95.05"], "HBM3, 86 GB", "h100", None),
        (["NVIDIA GB10, [N/A], 12.1, 580.126.09"], "NVIDIA GB10, {memory}", "{any}", None),
        (["NVIDIA GB10, Not Supported, 12.1, 580.126.09"], "GB10, {memory}", "{any}", None),
        ([], "none", "pocket", None),
    ],
    ids=["2 T4", "P100", "old driver", "4060", "5090", "H100", "GB10", "GB10 too", "none"],
)
def test_each_machine_that_people_have(smi, monkeypatch, gpus, described, preset, problem):
    """In a process without packages, which is fast and finds all of them missing."""
    if gpus:
        smi(*gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("GRPO_ALL_GPUS", raising=False)
    command = [sys.executable, "-S", "-m", "helpers", "doctor"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    memory = re.search(r"cores, (\d+ GB)", done.stdout)[1]  # GB10's GPU uses the machine's
    found = re.search(r"\nGPU +(.*)\npreset +(\w+):", done.stdout)
    assert described.format(memory=memory) in found[1]
    assert preset in (found[2], "{any}") and found[2] in PRESETS
    said = done.stdout.count("To train on the CPU on purpose")
    assert said == bool(problem) and (problem or "") in done.stdout
    if len(gpus) == 2:
        assert re.search("2 .*Tesla T4.*CUDA_VISIBLE_DEVICES=0", done.stderr)
    else:
        assert done.stderr == ""


def test_a_card_is_named_and_a_preset_for_a_larger_one_is_a_problem(cli, lists, card):
    code, out, _ = cli("doctor", "--preset", "l4")
    assert code == 0 and "NVIDIA L4, 24 GB, compute capability 8.9, bf16" in out
    assert re.search(r"frozen weights +2\.7 GB\n", out)
    assert re.search(r" [\d.]+ GB of 24\.2 GB\n", out)
    code, out, _ = cli("doctor", "--preset", "h200")
    assert code == 1 and "138 GB" in out and "all well" not in out


def test_every_problem_of_a_preset_is_named(cli, lists, card):
    code, out, _ = cli("doctor", "--preset", "h200", "-p", "lora_rank=100000")
    assert code == 1
    assert "lora_rank=100,000" in out
    assert "'h200'" in out and "138 GB" in out
