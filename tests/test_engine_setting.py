"""What samples: asked for, chosen for the machine, or refused."""

import pytest
import torch

from helpers import presets
from helpers.environment import Machine
from helpers.presets import PRESETS, check_machine, with_overrides
from helpers.training import vllm_cpu

POCKET = PRESETS["pocket"]


def machine(gpu_memory_gb: float = 0.0) -> Machine:
    gpu = "NVIDIA Card" if gpu_memory_gb else None
    return Machine(gpu, gpu_memory_gb, 8.0 if gpu else 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)


def test_vllm_is_refused_where_it_was_asked_for_and_cannot_be_had(capsys, monkeypatch):
    asked = with_overrides(POCKET, engine="vllm")
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: "vLLM is not installed")
    for here in (machine(), machine(24.2)):
        with pytest.raises(
            ValueError, match=r"engine='vllm': vLLM is not installed\. Take engine='transformers'"
        ):
            check_machine(asked, here)
    assert (
        check_machine(with_overrides(POCKET, engine="auto"), machine()) == POCKET
        and not capsys.readouterr().out
    )
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: None)
    assert check_machine(asked, machine()) == asked
    assert check_machine(with_overrides(POCKET, engine="auto"), machine()) == POCKET, (
        "on a CPU only where it is asked for"
    )
    for temperature in (0.005, 2.5):
        assert with_overrides(POCKET, temperature=temperature).engine == "transformers"
        with pytest.raises(
            ValueError, match=f"temperature={temperature}: vLLM samples at 0.01 to 2"
        ):
            with_overrides(asked, temperature=temperature)
    with pytest.raises(ValueError, match="engine='sglang' is not one of: auto, transformers, vllm"):
        with_overrides(POCKET, engine="sglang")


def test_beside_a_gpu_no_second_engine_is_started_where_unsloth_started_none(model, monkeypatch):
    """Unsloth falls back to its own sampling on some cards; an engine in 32 bits would take half
    the card.
    """
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(
        ValueError, match=r"Unsloth has started no vLLM engine.*engine=transformers"
    ):
        vllm_cpu.attach(model, with_overrides(POCKET, engine="vllm"))
    vllm_cpu.attach(model, POCKET)
    assert not hasattr(model, "vllm_engine")
