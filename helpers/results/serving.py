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
from uuid import uuid4

from helpers import PROJECT
from helpers.data.files import shortened
from helpers.environment import Machine, this_machine, vllm_obstacle
from helpers.presets import Preset

# the names to ask for: the model served, or its adapter; and the base below an adapter
MODEL, BASE = "policy", "base"
# no proxy stands before 127.0.0.1
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# what a server that is no longer there, or too slow, provokes
_LOST = (URLError, ConnectionError, TimeoutError)
_PARALLEL = 32  # questions asked at once; vLLM answers them in one batch
_PATIENCE = 5.0  # seconds that a server has to end by itself
# The last line of a traceback in vLLM's log; pydantic puts the message on the next.
_RAISED = re.compile(
    r"^(?:\(.*\] )?(?:\w+\.)*\w+(?:Error|Exception): (?:\d+ validation error.*\n +Value error, "
    r")?(.+)",
    re.M,
)


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
    port: int | None = None,
    timeout: float = 600,
) -> Iterator[str]:
    """vLLM's server of a model, or of an adapter on that model, on 127.0.0.1; yields its address
    once it answers.

    model: a folder or a hub name. dtype: torch's, in which it computes, or its name. port: None
    takes a free one. timeout: seconds that the start may take. The server has a session of its own
    and is ended with all its children when the block is left, however that is; should this process
    be killed, it ends by itself. ValueError, with what its log says, where it does not start or
    stops answering, and where the port is in use.
    """
    port, mark = _free(port), uuid4().hex
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "helpers.results.serving",
                *_arguments(str(model), settings, dtype, adapter, port, mark),
            ],
            env=_environment(str(model)),
            # held open and never written to: it closes when this process ends
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait(process, address, mark, timeout)
            yield address
        except _LOST as error:
            what = (
                f"ended with exit code {process.returncode}"
                if process.poll() is not None
                else f"does not answer ({error})"
            )
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
        header = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{address}/v1/chat/completions", json.dumps(asked).encode(), header
        )
        try:
            with _LOCAL.open(request, timeout=600) as reply:
                return json.load(reply)["choices"][0]["message"]["content"] or ""
        except HTTPError as error:
            said = shortened(error.read().decode(errors="replace"), 300)
            raise ValueError(
                f"vLLM's server refuses {shortened(messages[-1]['content'], 60)!r}: {said}"
            ) from None

    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(answer, prompts))


def _free(port: int | None) -> int:
    """The port, or a free one. ValueError where it is in use."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError as error:
            raise ValueError(
                f"port {port} cannot be served on ({error.strerror}): give another one, or None."
            ) from None
        return probe.getsockname()[1]


def _arguments(
    model: str, settings: Preset, dtype, adapter: Path | None, port: int, mark: str
) -> list[str]:
    options = {
        "model": model,
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
    # a second name, by which `_wait` knows this server
    given += ["--served-model-name", BASE if adapter else MODEL, mark]
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


def _wait(process: subprocess.Popen, address: str, mark: str, timeout: float) -> None:
    """Return when this server answers.

    ConnectionError where it has ended, TimeoutError after so many seconds.

    Another that was starting on the same port may answer in its place: vLLM lets two listen on one.
    """
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        models = None
        with contextlib.suppress(OSError), _LOCAL.open(f"{address}/v1/models", timeout=5) as reply:
            models = reply.read().decode()
        if models and mark in models:
            return
        if models:
            raise ConnectionError(f"another server answers at {address}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"within {timeout:g} s")
        time.sleep(0.2)
    raise ConnectionError


def _said(log) -> str:
    """What a server's log says of its end, in one sentence: the last exception but vLLM's own
    summary of it.
    """
    log.seek(0)
    text = log.read().decode(errors="replace")
    found = [raised for raised in _RAISED.findall(text) if "See root cause above" not in raised]
    last = (found or [line for line in text.splitlines() if line.strip()] or ["nothing"])[-1]
    return f"Its log says: {shortened(last.strip(), 400)}"


def _end(process: subprocess.Popen) -> None:
    """End the server and all its children: they are a process group. First asked, then killed."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        process.wait()


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the pipe is closed, and with kill -9 the system closes it
    os.killpg(0, signal.SIGTERM)
    time.sleep(_PATIENCE)
    os.killpg(0, signal.SIGKILL)


def _main() -> None:
    """What `vllm serve` does; the command itself asks for metadata that vllm-cpu has not."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from vllm.entrypoints.launchers.api_server.entry import main

    main()


if __name__ == "__main__":
    _main()
