"""The questions to a vLLM server before a training: against a real HTTP server that answers as
vLLM's does, or does not.
"""

import contextlib
import json
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.training import server

SETTINGS = replace(PRESETS["l4"], backend="transformers", engine="transformers", load_in_4bit=False)
GPU = replace(this_machine(), gpu="NVIDIA L4", gpu_memory_gb=22, compute_capability=8.9)
MODELS = {"data": [{"id": "mine", "root": SETTINGS.model, "max_model_len": 4096}]}
VLLM = {"/get_world_size": {"world_size": 1}, "/v1/models": MODELS}  # of vLLM 0.31


@pytest.fixture
def answering():
    """A server that gives these answers, by path, or none as long as the test lasts; its
    address.
    """
    started, over = [], threading.Event()

    def start(answers: dict | None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if answers is None:
                    over.wait()
                    return
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    self.send_response(200 if self.path in answers else 404)
                    self.end_headers()
                    self.wfile.write(json.dumps(answers.get(self.path)).encode())

            def log_message(self, *ignored):
                pass

        started.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=started[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{started[-1].server_port}"

    yield start
    over.set()
    for one in started:
        one.shutdown()
        one.server_close()


def test_a_server_that_answers_as_vllm_does_and_serves_the_model_is_fine(answering):
    server.check(answering(VLLM), SETTINGS, GPU)
    server.check(answering(VLLM) + "/", SETTINGS, GPU)
    by_its_short_name = {"data": [{"id": SETTINGS.model.split("/")[1], "root": "/models/7"}]}
    server.check(answering(VLLM | {"/v1/models": by_its_short_name}), SETTINGS, GPU)
    server.check(None, PRESETS["pocket"], GPU)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (VLLM | {"/v1/models": {"data": [{"id": "x/y"}]}}, "serves x/y and the training is of"),
        (VLLM | {"/v1/models": {"data": []}}, "serves no model and"),
        (VLLM | {"/v1/models": []}, "no vLLM server answers at .* as TRL's does"),
        (VLLM | {"/get_world_size": "<html>"}, "as TRL's does"),
        ({"/v1/models": MODELS}, r"as TRL's does \(.*404.*\)\. Start it with `trl vllm-serve"),
    ],
)
def test_any_other_server_is_refused_in_a_sentence(answering, answers, said):
    with pytest.raises(ValueError, match=said):
        server.check(answering(answers), SETTINGS, GPU)


def test_a_server_that_is_not_there_or_does_not_answer_is_not_waited_for(answering, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"^no vLLM server answers at {address} .*refused"):
            server.check(address, SETTINGS, GPU)
    monkeypatch.setattr(server, "_PATIENCE", 0.3)
    with pytest.raises(ValueError, match=r"^no vLLM server answers at .*timed out"):
        server.check(answering(None), SETTINGS, GPU)


@pytest.mark.parametrize(
    ("url", "changes", "machine", "said"),
    [
        ("localhost:8000", {}, GPU, "is not an address"),
        (8000, {}, GPU, "is not an address"),
        ("http://h", {"backend": "unsloth"}, GPU, "goes with backend='transformers'"),
        ("http://h", {"load_in_4bit": True}, GPU, "weights in 16 bits"),
        ("http://h", {}, replace(GPU, gpu=None), "needs a GPU here, too"),
    ],
)
def test_what_does_not_go_with_a_server_is_refused_unasked(url, changes, machine, said):
    with pytest.raises(ValueError, match=said):
        server.check(url, replace(SETTINGS, **changes), machine)
