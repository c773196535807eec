"""vLLM's server, started for real where vLLM is installed: its answers, its faults, and that
nothing of it is left.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from helpers.data.tasks import load_task
from helpers.environment import Machine, this_machine, vllm_obstacle
from helpers.presets import PRESETS
from helpers.results import serving
from helpers.subprocesses import last_error
from helpers.training.policy import sample

pytestmark = pytest.mark.usefixtures("one_thread")

POCKET = PRESETS["pocket"]
CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64")
PROMPTS = [
    list(p)
    for p in load_task("arithmetic/sums", train_size=1, holdout_size=64, seed=5).holdout["prompt"]
]


def real(test):
    """A test that starts a server, which takes half a minute."""
    return pytest.mark.slow(pytest.mark.needs("vllm")(test))


# --- A server that answers ------------------------------------------------------------------------


@real
def test_a_model_is_served_until_the_block_ends(model, tokenizer):
    this, limit = psutil.Process(), POCKET.max_completion_length
    before = this.children(recursive=True)
    machine = this_machine()
    _, curl = serving.commands("merged", POCKET, torch.float32, machine, PROMPTS[0])
    with (
        pytest.raises(
            ValueError, match=r"server of model does not answer \(lost\)\. Its log says: "
        ),
        serving.server(POCKET.model_path, POCKET, torch.float32) as address,
    ):
        processes = [one for one in this.children(recursive=True) if one not in before]
        answers = serving.answers(address, PROMPTS, limit)
        first = serving.asked(curl, address)
        too_long = [{"role": "user", "content": "What is" + " + 1" * 200}]
        with pytest.raises(ValueError, match=r"refuses 'What is \+ 1.*context length is 136"):
            serving.answers(address, [too_long], 8)
        _, refused = serving.commands("merged", POCKET, torch.float32, machine, too_long)
        with pytest.raises(ValueError, match=r"curl got no answer: .*context length is 136"):
            serving.asked(refused, address)
        raise ConnectionError("lost")
    assert len(processes) > 1 and not psutil.wait_procs(processes, timeout=300)[1]
    groups = sample(model, tokenizer, PROMPTS, max_new_tokens=limit, temperature=0, progress=False)
    assert sum(a != e for a, (e,) in zip(answers, groups, strict=True)) / len(PROMPTS) <= 0.01
    assert first == answers[0]
    assert all("<think>" in text for text in answers), "the tags are part of the text"


# --- Servers that do not come to answer -----------------------------------------------------------


@real
def test_a_server_that_dies_while_starting_is_told_with_what_its_log_says(tmp_path):
    (folder := tmp_path / "no_model").mkdir()
    with pytest.raises(
        ValueError,
        match=r"server of no_model ended with exit code 1\. Its log says: Invalid repository ID "
        r"or local",
    ):
        serving.server(folder, POCKET, torch.float32).__enter__()


@real
def test_a_server_that_does_not_answer_in_time_is_ended():
    with pytest.raises(ValueError, match=r"does not answer \(within 0\.5 s\)"):
        serving.server(POCKET.model_path, POCKET, torch.float32, timeout=0.5).__enter__()
    left = [child.cmdline() for child in psutil.Process().children()]
    assert not [words for words in left if "helpers.results.serving" in words]


# What vLLM 0.31 wrote, shortened in between.
LOGS = {
    "Available memory on node 0 (14.12/15.59 GiB) on kv cache allocation is less than requested "
    "memory for kv (100.0 GiB). "
    "Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used by other "
    "processes.": """
(EngineCore pid=7) ERROR 11-21 20:04:29 [core.py:1433] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-21 20:04:29 [core.py:1433] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-21 20:04:29 [core.py:1433]     raise ValueError(
(EngineCore pid=7) ERROR 11-21 20:04:29 [core.py:1433] ValueError: {said}
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
""",
    "User-specified max_model_len (13600) is greater than the derived max_model_len (1024).": """
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, {said}
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
""",
    "Killed": "Starting to load model …\n{said}\n\n",
}


@pytest.mark.parametrize("said", LOGS)
def test_of_a_log_the_cause_is_told(tmp_path, said):
    (tmp_path / "log").write_text(LOGS[said].format(said=said))
    assert last_error(tmp_path / "log", serving._RAISED) == said


# --- The lines to type ----------------------------------------------------------------------------


def test_the_lines_name_the_folder_and_a_question_with_an_apostrophe_survives_the_shell():
    messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": "What's 1?"}]
    start, curl = serving.commands("my runs/merged", POCKET, torch.float32, CPU, messages)
    cache, python, *words = shlex.split(start)
    assert (cache, python) == ("VLLM_CPU_KVCACHE_SPACE=1", "python")
    assert words[:4] == ["-m", "vllm.entrypoints.openai.api_server", "--model", "my runs/merged"]
    # what 05 starts itself
    assert words[2:] == serving._arguments("my runs/merged", POCKET, torch.float32, 8000)
    assert words[words.index("--served-model-name") + 1] == "policy"
    words = shlex.split(curl)
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/chat/completions"]
    asked = json.loads(words[-1])
    assert asked["messages"] == messages and "chat_template_kwargs" not in asked
    quiet = replace(POCKET, thinking=False)
    _, curl = serving.commands("merged", quiet, torch.float32, CPU, messages)
    asked = json.loads(shlex.split(curl)[-1])
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    gpu = replace(CPU, gpu="NVIDIA L4")
    assert serving.commands("merged", POCKET, torch.bfloat16, gpu, messages)[0].startswith(
        "vllm serve merged --served-model-name policy "
    )


@real
def test_the_printed_line_starts_a_server_and_the_printed_curl_asks_it(
    model, tokenizer, tmp_path, monkeypatch
):
    for name in ("VLLM_CPU_KVCACHE_SPACE", "VLLM_ENABLE_V1_MULTIPROCESSING"):
        monkeypatch.delenv(name, raising=False)  # a user has set neither
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    start, curl = serving.commands(
        str(POCKET.model_path), POCKET, torch.float32, this_machine(), PROMPTS[0]
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = start.replace("--port 8000", f"--port {port}")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            line, shell=True, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path
        )
    try:
        while True:
            try:
                answer = serving.asked(curl, f"http://127.0.0.1:{port}")
                break
            except ValueError:
                assert server.poll() is None, (tmp_path / "log").read_text()
                time.sleep(1)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
    limit = POCKET.max_completion_length
    alone = sample(model, tokenizer, PROMPTS[:1], max_new_tokens=limit, temperature=0)
    assert [[answer]] == alone


# --- Where vLLM is not installed ------------------------------------------------------------------


def test_what_is_no_wish_is_refused_and_without_vllm_the_reason_is_said():
    with pytest.raises(ValueError, match="serve='yes' is not known: give True, False, or"):
        serving.obstacle("yes", CPU)
    assert serving.obstacle(False, CPU) == "serve=False"
    if vllm_obstacle(CPU):
        assert serving.obstacle(None, CPU) == "vLLM is not installed"
        with pytest.raises(ValueError, match=r"serve=True: vLLM is not installed\. Leave serve"):
            serving.obstacle(True, CPU)
