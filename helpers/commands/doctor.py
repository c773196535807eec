"""`python -m helpers doctor`: describe the machine and its packages, and estimate the memory of a
training run.

It needs no installed package, so it works before the installation, too.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from helpers import commands, environment
from helpers.parameters import absolute, read_parameters
from helpers.settings import Preset
from helpers.settling import settle
from helpers.training import memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor`."""
    parser.add_argument(
        "--preset", default="auto", metavar="PRESET", help="check for this preset (default: auto)"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="a hub name or a folder, to estimate the memory for"
    )
    commands.add_parameters(
        parser,
        "a setting to estimate the memory with, e.g. -p max_completion_length=2048; may be "
        "repeated",
    )


def main(parsed: argparse.Namespace) -> int:
    """Describe the machine, and print every problem with its remedy; return 1 if there is one."""
    settings = read_parameters(parsed.parameters)
    if parsed.model is not None:
        settings["model"] = absolute(parsed.model)
    name = settings.pop("preset", parsed.preset)
    machine = environment.this_machine()
    environment.say_which_gpu(machine)
    preset = settle(name, **settings)
    print_machine_and_preset(machine, preset)

    # 1. Estimate the memory that the preset needs. If this machine is too small, estimate it for
    # the smallest card that the preset is meant for.
    problems = []
    estimate = []
    card = machine
    if preset.needs_gb > machine.gpu_memory_gb:
        card = replace(machine, gpu="such a card", gpu_memory_gb=preset.needs_gb)
    try:
        if environment.installed_version("torch"):
            estimate = memory.check(preset, card)
    except ValueError as error:
        problems.append(str(error))

    # 2. Ask whether the preset can run on this machine: `settle` raises if it cannot.
    try:
        settle(preset, machine)
    except ValueError as error:
        problems.append(str(error))

    # 3. Compare the installed packages with the pins.
    problems += package_problems(machine)

    print("\n".join(["", *estimate, ""]))
    print("\n".join(problems or ["all well"]))
    return int(bool(problems))


def print_machine_and_preset(machine: environment.Machine, preset: Preset) -> None:
    """Print the machine, the preset, the versions of the pinned packages that are installed, and
    the switches of Unsloth that are set.
    """
    print(
        f"machine   {machine.system}, {machine.cores} cores, {machine.memory_gb:.0f} GB, Python "
        f"{machine.python}"
    )
    if machine.gpu:
        print(
            f"GPU       {machine.gpu}, {machine.gpu_memory_gb:.0f} GB, compute capability "
            f"{machine.compute_capability}, {'bf16' if machine.bf16 else 'fp16 only'}, driver "
            f"{machine.driver or 'unknown'}"
        )
    else:
        bits = "bfloat16" if environment.cpu_has_bf16() else "32 bits, slower than the README says"
        print(f"GPU       none; on this CPU, a policy computes in {bits}")
    print(f"preset    {preset.name}: {preset.model} on {preset.source}")
    print(f"batch     {preset.batch} (processes × batch × accumulation)")
    print("packages  of requirements.txt, as installed")
    for package in environment.pins():
        if have := environment.installed_version(package):
            print(f"          {package:<24}{have}")
    for variable, value in environment.unsloth_switches().items():
        print(f"switch    {variable}={value} (see docs/switches.md)")


def package_problems(machine: environment.Machine) -> list[str]:
    """Return a sentence for each missing or wrong package, and then how to repair them."""
    problems = []
    for name, pin, have in environment.mismatches(machine):
        installed = f"{have} is" if have else "is not"
        problems.append(f"{name} {installed} installed, the pin is {pin}.")
    if problems:
        problems.append(f"repair: {Path(sys.executable).name} -m helpers install")
    return problems
