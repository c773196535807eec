"""vLLM on a card or a machine of its own: what can be asked of its server before a training loads
anything.

TRL 1.15 trains against vLLM's own server in its development mode; `trl vllm-serve --model NAME`
starts that with the options that TRL needs. TRL sends the weights to it through NCCL after each
step.
"""

import json
import urllib.request
from pathlib import Path

from helpers.environment import Machine
from helpers.presets import Preset

_PATIENCE = 5.0  # seconds for each question


def check(url: str | None, settings: Preset, machine: Machine) -> None:
    """ValueError if `vllm_server` is no server that this training can sample from; None is fine."""
    if url is None:
        return
    if settings.backend != "transformers":
        raise ValueError(
            f"vllm_server goes with backend='transformers'; backend={settings.backend!r} starts "
            "its own vLLM in the process."
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
        f"Start it with `trl vllm-serve --model {wanted}`, on another card than the training's; "
        "its address is one such as http://localhost:8000."
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


def _answer(url: str, path: str) -> dict:
    with urllib.request.urlopen(f"{str(url).rstrip('/')}/{path}", timeout=_PATIENCE) as answer:
        return json.load(answer)
