"""The questions to a vLLM server before a training: against a real HTTP server with vLLM's answers,
or others.
"""

import copy
import json
import shlex
import socket
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from peft import LoraConfig, get_peft_model

from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.training import server

SETTINGS = replace(PRESETS["l4"], backend="transformers", engine="transformers", load_in_4bit=False)
GPU = replace(this_machine(), gpu="NVIDIA L4", gpu_memory_gb=22, compute_capability=8.9)

MINE = {"id": "mine", "root": SETTINGS.model, "max_model_len": 4096}
BY_ITS_SHORT_NAME = {"id": SETTINGS.model.split("/")[1], "root": "/models/7"}
NAME = "base_model.model.model.layers.0.mlp.down_proj.base_layer.weight"
RANK = {"world_size": 1}  # as vLLM 0.31 answers, and below the models that it serves


@pytest.fixture
def answering(tmp_path):
    """A server that answers each path with the file of that name; its address."""
    serves = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), serves) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{started.server_port}"
        started.shutdown()


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
@pytest.mark.parametrize(
    ("rank", "models", "said"),
    [
        (RANK, {"data": [MINE]}, None),
        (RANK, {"data": [BY_ITS_SHORT_NAME]}, None),
        (RANK, {"data": [{"id": "x/y"}]}, "serves x/y and the training is of"),
        (RANK, {"data": []}, "serves no model and"),
        (RANK, [], "no vLLM server answers at .* as TRL's does"),
        ("<html>", {"data": [MINE]}, "as TRL's does"),
        (None, {"data": [MINE]}, r"as TRL's does \(.*404.*\)\. Start it on another card"),
    ],
)
def test_only_a_server_that_answers_as_vllm_does_and_serves_the_model_is_taken(
    answering, tmp_path, rank, models, said, backend
):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "models").write_text(json.dumps(models))
    if rank:
        (tmp_path / "get_world_size").write_text(json.dumps(rank))
    with pytest.raises(ValueError, match=said) if said else nullcontext():
        server.check(answering + "/", replace(SETTINGS, backend=backend), GPU)


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
        (
            "http://h",
            {"backend": "unsloth", "engine": "vllm"},
            GPU,
            "in place of the training's own vLLM: set engine='transformers'",
        ),
        ("http://h", {"load_in_4bit": True}, GPU, "weights in 16 bits"),
        ("http://h", {}, replace(GPU, gpu=None), "needs a GPU here, too"),
    ],
)
def test_what_does_not_go_with_a_server_is_refused_unasked(url, changes, machine, said):
    with pytest.raises(ValueError, match=said):
        server.check(url, replace(SETTINGS, **changes), machine)


@pytest.mark.needs("vllm")
def test_the_command_that_is_named_starts_the_server_as_trl_does():
    """Until TRL 2 takes its own command away."""
    from trl.scripts.vllm_serve import ScriptArguments, build_command

    settings = shlex.split(server.START.format(model="me/mine"))
    assert settings[:4] == ["VLLM_SERVER_DEV_MODE=1", "vllm", "serve", "me/mine"]
    trls = build_command(ScriptArguments(model="me/mine"))
    of_training = trls[trls.index("--enable-scale-out") :]
    assert [word.replace(" ", "") for word in of_training] == settings[4:]


def test_sending_the_policy_leaves_the_frozen_weights_as_they_are(model):
    """As TRL sends it: merged, read, and taken out again, in 16 bits."""

    def drift(keep: bool) -> tuple[bool, float]:
        lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
        policy = get_peft_model(copy.deepcopy(model).bfloat16(), lora)
        frozen = policy.get_parameter(NAME).detach().clone()
        if keep:
            server.keep_base(policy)
        torch.manual_seed(0)
        for _ in range(5):
            for name, weight in policy.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.01)
            policy.merge_adapter()
            sent = policy.get_parameter(NAME).detach().clone()
            policy.unmerge_adapter()
        return torch.equal(policy.get_parameter(NAME), frozen), (sent - frozen).norm().item()

    assert drift(keep=False)[0] is False, "or there would be nothing to keep"
    kept, sent = drift(keep=True)
    assert kept and sent > 0.1
