"""A model served by vLLM over HTTP, as people serve it, and its greedy answers.

`python -m helpers.results.serving ARGUMENTS` is the server's own process: `vllm serve`, which ends
with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError, URLError

from helpers import PROJECT
from helpers.environment import Machine, this_machine, vllm_obstacle
from helpers.presets import Preset

# the names to ask for: the model served, or its adapter; and the base below an adapter
MODEL, BASE = "policy", "base"
# no proxy stands before 127.0.0.1
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_PARALLEL = 32  # questions asked at once; vLLM answers them in one batch
_PATIENCE = 5.0  # seconds that a server has to end by itself
# what vLLM's log says of an exception; pydantic puts the message on the next line
_RAISED = re.compile(r"(?:Error:|Exception:|Value error,) (?!\d+ validation error)(.+)")


def obstacle(serve: bool | None, machine: Machine) -> str | None:
    """Why nothing is to be served, in a few words; None where it is.

    `serve=None` serves where vLLM is installed.

    ValueError for a `serve` that is none of True, False, None, and for True where vLLM cannot
    serve.
    """
    if serve is not None and type(serve) is not bool:
        raise ValueError(
            f"serve={serve!r} is not known: give True, False, or None, which serves where vLLM is "
            "installed."
        )
    if serve is False:
        return "serve=False"
    why = vllm_obstacle(machine)
    if why and serve:
        raise ValueError(
            f"serve=True: {why}. Leave serve out, and everything but the server is made."
        )
    return why


@contextlib.contextmanager
def server(
    model: str | Path,
    settings: Preset,
    dtype,
    *,
    adapter: Path | None = None,
    timeout: float = 600,
) -> Iterator[str]:
    """vLLM's server of a model, or of an adapter on that model, on a free port of 127.0.0.1; yields
    its address once it answers.

    model: a folder or a hub name. dtype: torch's, in which it computes, or its name. timeout:
    seconds that the start may take. The server has a session of its own and is ended with all its
    children when the block is left, however that is; should this process be killed, it ends by
    itself. ValueError, with what its log says, where it does not start or stops answering.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "helpers.results.serving"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, *_arguments(str(model), settings, dtype, adapter, port)],
            env=_environment(str(model)),
            # held open and never written to: it closes when this process ends
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait(process, address, timeout)
            yield address
        except (URLError, ConnectionError, TimeoutError) as error:
            what = f"does not answer ({error})"
            if process.poll() is not None:
                what = f"ended with exit code {process.returncode}"
            raise ValueError(f"vLLM's server of {Path(model).name} {what}. {_said(log)}") from None
        finally:
            _end(process)


def answers(
    address: str, prompts: list[list[dict]], max_tokens: int, *, model: str = MODEL
) -> list[str]:
    """The greedy completion of each chat prompt, in order, through `/v1/chat/completions`; at most
    `max_tokens` tokens each.

    ValueError for a prompt that the server refuses, with its reason.
    """

    def answer(messages: list[dict]) -> str:
        asked = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0.0}
        request = urllib.request.Request(
            f"{address}/v1/chat/completions",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with _LOCAL.open(request, timeout=600) as reply:
                return json.load(reply)["choices"][0]["message"]["content"] or ""
        except HTTPError as error:
            said = error.read().decode(errors="replace")[:300]
            raise ValueError(
                f"vLLM's server refuses {messages[-1]['content'][:60]!r}: {said}"
            ) from None

    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(answer, prompts))


def _arguments(model: str, settings: Preset, dtype, adapter: Path | None, port: int) -> list[str]:
    options = {
        "model": model,
        "served-model-name": BASE if adapter else MODEL,
        "host": "127.0.0.1",
        "port": port,
        "dtype": str(dtype).removeprefix("torch."),
        "max-model-len": settings.context,
        "gpu-memory-utilization": settings.gpu_memory_utilization,
        # what a model ships there (a repetition penalty) would bend the answers
        "generation-config": "vllm",
    }
    if adapter:
        lora = json.dumps({"name": MODEL, "path": str(adapter)})
        options |= {"max-lora-rank": settings.max_lora_rank, "lora-modules": lora}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*given, "--enforce-eager", *(["--enable-lora"] if adapter else [])]


def _environment(model: str) -> dict[str, str]:
    """The server's: this process's own, no network where the model is a folder, and one GiB of
    cache on a CPU.
    """
    default = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    # one is left to the part that speaks HTTP
    default["OMP_NUM_THREADS"] = str(max(1, this_machine().cores - 1))
    path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # On a CPU this spares a third process, 8 s to import vLLM; on a GPU that one is not there.
    fixed = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": path}
    return default | os.environ | fixed | ({"HF_HUB_OFFLINE": "1"} if Path(model).is_dir() else {})


def _wait(process: subprocess.Popen, address: str, timeout: float) -> None:
    """Return when the server answers.

    ConnectionError where it has ended, TimeoutError after so many seconds.
    """
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        with contextlib.suppress(OSError), _LOCAL.open(f"{address}/v1/models", timeout=5):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"within {timeout:g} s")
        time.sleep(0.2)
    raise ConnectionError


def _said(log) -> str:
    """What a server's log says of its end, in one sentence: the last exception but vLLM's own
    summary of it, or else the last line.
    """
    log.seek(0)
    text = log.read().decode(errors="replace")
    found = [raised for raised in _RAISED.findall(text) if "See root cause above" not in raised]
    last = (found or text.strip().splitlines() or ["nothing"])[-1]
    return f"Its log says: {last.strip()[:400]}"


def _end(process: subprocess.Popen) -> None:
    """End the server and all its children: they are a process group. First asked, then killed."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
    process.stdin.close()


def _main() -> None:
    """What `vllm serve` does; the command itself asks for metadata that vllm-cpu has not."""

    def end_with_parent() -> None:
        os.read(0, 1)  # returns when the pipe is closed, and with kill -9 the system closes it
        os.killpg(0, signal.SIGTERM)
        time.sleep(_PATIENCE)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    from vllm.entrypoints.launchers.api_server.entry import main

    main()


if __name__ == "__main__":
    _main()
