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
MODELS = {
    "object": "list",
    "data": [
        {"id": SETTINGS.model, "object": "model", "root": SETTINGS.model, "max_model_len": 4096}
    ],
}
# of vLLM 0.31
VLLM = {
    "/health": (200, ""),
    "/get_world_size": (200, {"world_size": 1}),
    "/v1/models": (200, MODELS),
}


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
                status, body = answers.get(self.path, (404, {"detail": "Not Found"}))
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write((body if isinstance(body, str) else json.dumps(body)).encode())

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
    server.check(None, PRESETS["pocket"], GPU)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (VLLM | {"/v1/models": (200, {"data": [{"id": "other/model"}]})}, "serves other/model and "
                                                                          "the training is of"),
        (VLLM | {"/v1/models": (200, {"data": []})}, "serves no model and"),
        (VLLM | {"/get_world_size": (404, {})}, r"as TRL's vLLM server does: /get_world_size gave "
                                                r"HTTP 404\. Start it with"),
        (VLLM | {"/get_world_size": (200, "<html>")}, "not as TRL's vLLM server does: "
                                                      "/get_world_size gave '<html>'"),
        ({}, "not as TRL's vLLM server does: /health gave HTTP 404"),
        (VLLM | {"/health": (503, "")}, "/health gave HTTP 503"),
    ],
)  # fmt: skip
def test_any_other_server_is_refused_in_a_sentence(answering, answers, said):
    with pytest.raises(ValueError, match=said):
        server.check(answering(answers), SETTINGS, GPU)


def test_a_server_that_is_not_there_or_does_not_answer_is_not_waited_for(answering, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(
            ValueError,
            match=rf"^no vLLM server answers at {address} \(.*refused.*\)\. Start it with",
        ):
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
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_server_is_refused_unasked(url, changes, machine, said):
    with pytest.raises(ValueError, match=said):
        server.check(url, replace(SETTINGS, **changes), machine)


def test_without_a_gpu_no_weights_could_be_handed_over(answering):
    with pytest.raises(
        ValueError, match="needs a GPU here, too: TRL hands the server its weights through NCCL"
    ):
        server.check(answering(VLLM), SETTINGS, replace(GPU, gpu=None))
