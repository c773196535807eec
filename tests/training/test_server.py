"""The questions to a vLLM server before a training: against a real HTTP server with vLLM's answers,
or others.
"""

import json
import socket
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.training import server

SETTINGS = replace(PRESETS["l4"], backend="transformers", engine="transformers", load_in_4bit=False)
GPU = replace(this_machine(), gpu="NVIDIA L4", gpu_memory_gb=22, compute_capability=8.9)

MINE = {"id": "mine", "root": SETTINGS.model, "max_model_len": 4096}
BY_ITS_SHORT_NAME = {"id": SETTINGS.model.split("/")[1], "root": "/models/7"}
RANK = {"world_size": 1}  # as vLLM 0.31 answers, and below the models that it serves


@pytest.fixture
def answering(tmp_path):
    """A server that answers each path with the file of that name; its address."""
    serves = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), serves) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{started.server_port}"
        started.shutdown()


@pytest.mark.parametrize(
    ("rank", "models", "said"),
    [
        (RANK, {"data": [MINE]}, None),
        (RANK, {"data": [BY_ITS_SHORT_NAME]}, None),
        (RANK, {"data": [{"id": "x/y"}]}, "serves x/y and the training is of"),
        (RANK, {"data": []}, "serves no model and"),
        (RANK, [], "no vLLM server answers at .* as TRL's does"),
        ("<html>", {"data": [MINE]}, "as TRL's does"),
        (None, {"data": [MINE]}, r"as TRL's does \(.*404.*\)\. Start it with `trl vllm-serve"),
    ],
)
def test_only_a_server_that_answers_as_vllm_does_and_serves_the_model_is_taken(
    answering, tmp_path, rank, models, said
):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "models").write_text(json.dumps(models))
    if rank:
        (tmp_path / "get_world_size").write_text(json.dumps(rank))
    with pytest.raises(ValueError, match=said) if said else nullcontext():
        server.check(answering + "/", SETTINGS, GPU)


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"^no vLLM server answers at {address} .*timed out"):
            server.check(address, SETTINGS, GPU)
    server.check(None, PRESETS["pocket"], GPU)


@pytest.mark.parametrize(
    ("url", "changes", "machine", "said"),
    [
        ("localhost:8000", {}, GPU, r"unknown url type.* such as http://localhost:8000\."),
        (8000, {}, GPU, "unknown url type"),
        ("http://h", {"backend": "unsloth"}, GPU, "goes with backend='transformers'"),
        ("http://h", {"load_in_4bit": True}, GPU, "weights in 16 bits"),
        ("http://h", {}, replace(GPU, gpu=None), "needs a GPU here, too"),
    ],
)
def test_what_does_not_go_with_a_server_is_refused_unasked(url, changes, machine, said):
    with pytest.raises(ValueError, match=said):
        server.check(url, replace(SETTINGS, **changes), machine)
