"""vLLM on a card or a machine of its own: what can be asked of its server before a training loads
anything.

TRL 1.15 trains against vLLM's own server in its development mode; `trl vllm-serve --model NAME`
starts that with the options that TRL needs. TRL pushes the weights to it through NCCL after each
step.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

from helpers.environment import Machine
from helpers.presets import Preset

_PATIENCE = 10.0  # seconds, for all questions together


def check(url: str | None, settings: Preset, machine: Machine) -> None:
    """ValueError where `vllm_server` is no server that this training can sample from, within ten
    seconds; None is fine.
    """
    if url is None:
        return
    parsed = urlparse(url) if isinstance(url, str) else None
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise ValueError(
            f"vllm_server={url!r} is not an address: give one such as http://localhost:8000."
        )
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
    start = (
        f"Start it with `trl vllm-serve --model {settings.model_path}`, on another card than "
        "the training's."
    )
    ends = time.monotonic() + _PATIENCE
    _get(url, "health", ends, start)
    workers = _get(url, "get_world_size", ends, start)
    if not isinstance(workers, dict) or "world_size" not in workers:
        raise ValueError(
            f"{url} answers, but not as TRL's vLLM server does: /get_world_size gave "
            f"{str(workers)[:80]!r}. {start}"
        )
    listed = _get(url, "v1/models", ends, start)
    served = (
        [str(one.get(key)) for one in listed.get("data", []) for key in ("id", "root")]
        if isinstance(listed, dict)
        else []
    )
    wanted = settings.model_path
    if not any(name == wanted or Path(name).name == Path(wanted).name == name for name in served):
        raise ValueError(
            f"{url} serves {served[0] if served else 'no model'} and the training is of "
            f"{settings.model}. {start}"
        )
    if machine.gpu is None:
        raise ValueError(
            "vllm_server needs a GPU here, too: TRL hands the server its weights through NCCL."
        )


def _get(url: str, path: str, ends: float, start: str) -> object:
    """What the server answers to a question, read as JSON where it is; None for an empty answer."""
    try:
        with urllib.request.urlopen(
            f"{url.rstrip('/')}/{path}", timeout=max(0.1, ends - time.monotonic())
        ) as answer:
            text = answer.read(1_000_000).decode(errors="replace")
    except urllib.error.HTTPError as error:
        raise ValueError(
            f"{url} answers, but not as TRL's vLLM server does: /{path} gave HTTP {error.code}. "
            f"{start}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"no vLLM server answers at {url} ({getattr(error, 'reason', error)}). {start}"
        ) from None
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return text
