"""The command `doctor`: the machine, the packages, and the memory that settings need."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from helpers import PROJECT, environment, presets
from helpers.training import memory

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """A project that holds nothing but empty lists of requirements; lists(text) replaces them."""
    monkeypatch.setattr(environment, "PROJECT", tmp_path)

    def write(text: str) -> None:
        for name in ("requirements.txt", "requirements-cpu.txt"):
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
    assert any(line.split() == ["pytest", version] for line in out.splitlines())
    assert "switch    UNSLOTH_GRPO_LOSS_AGGREGATION=prompt (see SWITCHES.md)\n" in out
    lists("pytest==0.1\n")
    code, out, _ = cli("doctor")
    assert code == 1 and "pytest" in out and "0.1" in out and "all well" not in out


def test_the_memory_of_a_model_and_lengths_is_estimated(cli, lists):
    own = "--preset h200 --model unsloth/Qwen3-4B -p max_completion_length=1024 -p lora_rank=16"
    code, out, _ = cli("doctor", *own.split())
    settings = presets.override(
        presets.PRESETS["h200"], model="unsloth/Qwen3-4B", max_completion_length=1024, lora_rank=16
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
def card(tmp_path, monkeypatch):
    """A machine whose nvidia-smi reports an L4."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-0, NVIDIA L4, 23034, 8.9'\n")
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", str(tmp_path))
    environment.this_machine.cache_clear()


def test_a_card_is_named_and_a_preset_for_a_larger_one_is_a_problem(cli, lists, card):
    code, out, _ = cli("doctor", "--preset", "l4")
    assert code == 0 and "NVIDIA L4, 24 GB, compute capability 8.9, bf16" in out
    assert re.search(r"frozen weights +2\.7 GB\n", out)
    assert re.search(r"at most, while \w+ +[\d.]+ GB of 24\.2 GB\n", out)
    code, out, _ = cli("doctor", "--preset", "h200")
    assert code == 1 and "138 GB" in out and "all well" not in out
