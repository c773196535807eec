"""A model behind vLLM's server, started by the line that notebook 05 prints."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

PRINTED = "http://127.0.0.1:8000"  # where that line puts it


@contextlib.contextmanager
def served(start: str, log: Path) -> Iterator[str]:
    """Type the line in a shell, on a free port in place of 8000; yield the server's address once it
    answers, and end it afterwards. AssertionError, with its log, if it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            start.replace("--port 8000", f"--port {port}"),
            shell=True,
            env=kept | {"PATH": path},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{address}/v1/models", trust_env=False).is_success:
                    break
            assert process.poll() is None, log.read_text()
            time.sleep(0.5)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
