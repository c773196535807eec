"""vLLM on a card or a machine of its own: what can be asked of its server before a training loads
anything.

TRL 1.15 trains against vLLM's own server in its development mode, and sends it the weights through
NCCL after each step. (`trl vllm-serve` only starts that server; it goes with TRL 2.)
"""

import json
import urllib.request
from pathlib import Path

from helpers.environment import Machine
from helpers.presets import Preset

_PATIENCE = 5.0  # seconds for each question
START = (  # as trl/scripts/vllm_serve.py has it
    "VLLM_SERVER_DEV_MODE=1 vllm serve {model} --enable-scale-out --weight-transfer-config "
    """'{{"backend":"nccl"}}' --logprobs-mode processed_logprobs --max-logprobs -1"""
)


def check(url: str | None, settings: Preset, machine: Machine) -> None:
    """ValueError if `vllm_server` is no server that this training can sample from; None is fine."""
    if url is None:
        return
    if settings.engine == "vllm":
        raise ValueError(
            "vllm_server samples in place of the training's own vLLM: set engine='transformers'."
        )
    if settings.load_in_4bit:
        raise ValueError(
            "vllm_server takes weights in 16 bits, as the server holds them: prepare the run with "
            "load_in_4bit=False."
        )
    if machine.gpu is None:
        raise ValueError(
            "vllm_server needs a GPU here, too: TRL hands the server its weights through NCCL."
        )
    wanted = settings.model_path
    start = (
        f"Start it on another card than the training's: `{START.format(model=wanted)}`. Its "
        "address is one such as http://localhost:8000."
    )
    try:
        _answer(url, "get_world_size")["world_size"]  # a question that only TRL's mode answers
        models = _answer(url, "v1/models")["data"]
        served = [model.get(key) for model in models for key in ("id", "root")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"no vLLM server answers at {url} as TRL's does ({error}). {start}"
        ) from None
    if not {wanted, Path(wanted).name} & set(served):
        raise ValueError(
            f"{url} serves {served[0] if served else 'no model'} and the training is of "
            f"{settings.model}. {start}"
        )


def keep_base(model) -> None:
    """Put the frozen weights back from a copy in the machine's memory each time that TRL has sent
    the policy to the server.

    To send it, TRL merges the adapter into them and takes it out again (vllm_generation.py,
    `_iter_named_params`). In 16 bits that rounds them, and they drift. Unsloth has a merge that
    leaves them alone, in a method that TRL 1.15 no longer calls (`_move_model_to_vllm`).
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    weights = [layer.get_base_layer().weight for layer in adapted]
    kept = [weight.detach().to("cpu", copy=True) for weight in weights]
    unmerge = model.unmerge_adapter

    def unmerge_adapter() -> None:
        unmerge()
        for weight, whole in zip(weights, kept, strict=True):
            weight.data.copy_(whole)

    model.unmerge_adapter = unmerge_adapter


def _answer(url: str, path: str) -> dict:
    with urllib.request.urlopen(f"{str(url).rstrip('/')}/{path}", timeout=_PATIENCE) as answer:
        return json.load(answer)
