"""A merged model behind vLLM's HTTP server: how to start it, how to ask it, and a trial of both.

`python -m helpers.results.serving ARGUMENTS` is the server's own process: `vllm serve`, which ends
with the process that started it.
"""

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from helpers import subprocesses
from helpers.environment import Machine, this_machine, vllm_obstacle
from helpers.presets import Preset
from helpers.runs import Run
from helpers.templates import template_options

MODEL = "policy"  # the name to ask for
_ADDRESS = "http://127.0.0.1:8000"
_CACHE = "VLLM_CPU_KVCACHE_SPACE"  # GiB; without it vLLM wants more memory than most machines have
# What vLLM's log says of an exception, but for the summaries that name no cause; pydantic puts the
# message on the next line.
_RAISED = re.compile(
    r"(?:Error:|Exception:|Value error,) (?!\d+ validation error|.*See root cause above)(.+)"
)


def obstacle(serve: bool | None, machine: Machine) -> str | None:
    """Why nothing is served, in a few words; None if something is.

    `serve=None` serves where vLLM is installed.

    ValueError for a `serve` that is none of True, False, None, and for True if vLLM cannot
    serve.
    """
    if serve is not None and not isinstance(serve, bool):
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
    timeout: float = 600,
) -> Iterator[str]:
    """vLLM's server of a model on a free port of 127.0.0.1; yields its address once it answers.

    model: a folder or a hub name. dtype: torch's, in which it computes, or its name. timeout:
    seconds that the start may take. The server is ended with all its children when the block is
    left, however that is; should this process be killed, it ends by itself. ValueError, with what
    its log says, where it does not start or stops answering.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    place = str(Path(model).resolve()) if Path(model).is_dir() else str(model)
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        arguments = _arguments(place, settings, dtype, port)
        process = subprocesses.start("helpers.results.serving", arguments, log, _environment(place))
        deadline = time.monotonic() + timeout
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{address}/v1/models", timeout=5, trust_env=False).is_success:
                        break
                if process.poll() is not None:
                    raise ConnectionError
                if time.monotonic() > deadline:
                    raise TimeoutError(f"within {timeout:g} s")
                time.sleep(0.2)
            yield address
        except (httpx.TransportError, ConnectionError, TimeoutError) as error:
            what = f"does not answer ({error})"
            if process.poll() is not None:
                what = f"ended with exit code {process.returncode}"
            said = subprocesses.last_error(log, _RAISED)[:400]
            raise ValueError(
                f"vLLM's server of {Path(model).name} {what}. Its log says: {said}"
            ) from None
        finally:
            subprocesses.end([process])


def commands(
    folder: str, settings: Preset, dtype, machine: Machine, messages: list[dict]
) -> tuple[str, str]:
    """The line that starts vLLM's server of a folder on port 8000, with the options of `server`,
    and the `curl` that asks it these chat messages, greedily.
    """
    arguments = _arguments(folder, settings, dtype, 8000)
    start = f"vllm serve {shlex.join(arguments[1:])}"
    if not machine.gpu:  # the command of vllm-cpu asks for metadata that it has not
        start = f"{_CACHE}=1 python -m vllm.entrypoints.openai.api_server {shlex.join(arguments)}"
    limit = settings.max_completion_length
    asked = {"model": MODEL, "messages": messages, "max_tokens": limit, "temperature": 0}
    asked |= _told(settings.thinking)
    return (
        start,
        f"curl {_ADDRESS}/v1/chat/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(asked, ensure_ascii=False))}",
    )


def asked(curl: str, address: str) -> str:
    """What the server at `address` answers to the `curl` line of `commands`, run by a shell.

    ValueError if there is no answer.
    """
    line = curl.replace(f"curl {_ADDRESS}", f"curl --silent --noproxy '*' {address}", 1)
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["choices"][0]["message"]["content"]
    except (ValueError, KeyError):
        raise ValueError(f"curl got no answer: {(done.stdout + done.stderr)[:300]}") from None


def answers(
    address: str, prompts: list[list[dict]], max_tokens: int, thinking: bool | None = None
) -> list[str]:
    """The greedy completion of each chat prompt, in order, through `/v1/chat/completions`; at most
    `max_tokens` tokens each. thinking: the setting.

    ValueError for a prompt that the server refuses, with its reason.
    """

    def answer(messages: list[dict]) -> str:
        asked = {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "temperature": 0.0}
        asked |= _told(thinking)
        reply = client.post(f"{address}/v1/chat/completions", json=asked)
        if reply.is_error:
            raise ValueError(
                f"vLLM's server refuses {messages[-1]['content'][:60]!r}: {reply.text[:300]}"
            )
        return reply.json()["choices"][0]["message"]["content"] or ""

    # No proxy stands before 127.0.0.1. So many are asked at once: vLLM answers them in one batch.
    with httpx.Client(trust_env=False, timeout=600) as client, ThreadPoolExecutor(32) as pool:
        return list(pool.map(answer, prompts))


def tried(
    run: Run,
    settings: Preset,
    dtype,
    curl: str,
    prompts: list[list[dict]],
    expected: list[str],
    *,
    must: bool = False,
) -> None:
    """Serve a run's merged model; print what it answers to the `curl` line, and how many of its
    greedy answers to `prompts` are letter for letter the `expected` ones (in the manifest:
    `served`).

    A server that does not start or answer is named in a sentence; with `must`, by a ValueError.
    """
    try:
        with server(run.path("merged"), settings, dtype) as address:
            print("answer to the curl:", asked(curl, address))
            prompts, limit = [list(prompt) for prompt in prompts], settings.max_completion_length
            given = answers(address, prompts, limit, settings.thinking)
    except ValueError as error:
        if must:
            raise
        print(f"Not served: {error}")
        return
    n, same = len(given), sum(map(str.__eq__, given, expected))
    run.record("served", merged={"n": n, "same": same, "share": same / n})
    print(f"{same} of {n} answers of the server are those of Transformers")


def _told(thinking: bool | None) -> dict:
    """The part of a request that vLLM's server passes on to the chat template."""
    options = template_options(thinking)
    return {"chat_template_kwargs": options} if options else {}


def _arguments(model: str, settings: Preset, dtype, port: int) -> list[str]:
    options = {
        "model": model,
        "served-model-name": MODEL,
        "host": "127.0.0.1",
        "port": port,
        "dtype": str(dtype).removeprefix("torch."),
        "max-model-len": settings.context,
        "gpu-memory-utilization": settings.gpu_memory_utilization,
        # what a model ships there (a repetition penalty) would bend the answers
        "generation-config": "vllm",
    }
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*given, "--enforce-eager"]


def _environment(model: str) -> dict[str, str]:
    """The server's variables: no network where the model is a folder, one GiB of cache on a CPU."""
    variables = {
        _CACHE: "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # one core is left to the part that speaks HTTP
        "OMP_NUM_THREADS": str(max(1, this_machine().cores - 1)),
        # On a CPU this spares a third process, 8 s to import vLLM; a GPU has none to spare.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if Path(model).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return {name: os.environ.get(name, value) for name, value in variables.items()}


# What `vllm serve` does; the command itself asks for metadata that vllm-cpu has not.
if __name__ == "__main__":
    subprocesses.end_with_parent()
    from vllm.entrypoints.launchers.api_server.entry import main

    main()
