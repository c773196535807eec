"""The two commands that notebook 05 prints for vLLM: in a shell, they give the model's answer."""

import json
import shlex
import subprocess
from dataclasses import replace

import pytest
import torch
from served import PRINTED, served

from helpers.data.tasks import load_task
from helpers.environment import Machine, this_machine
from helpers.presets import PRESETS
from helpers.results import serving
from helpers.training.sampling import sample

POCKET = PRESETS["pocket"]
CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64")
MESSAGES = [{"role": "system", "content": "Think."}, {"role": "user", "content": "What's 1?"}]


def test_folder_and_question_are_quoted_for_the_shell():
    start, curl = serving.serve_commands("my runs/merged", POCKET, torch.float32, CPU, MESSAGES)
    words = shlex.split(start)
    assert words[:3] == ["VLLM_CPU_KVCACHE_SPACE=1", "python", "-m"]
    assert words[4:6] == ["--model", "my runs/merged"]
    assert words[words.index("--dtype") + 1] == "float32"
    program, address, *_, request = shlex.split(curl)
    assert (program, address) == ("curl", f"{PRINTED}/v1/chat/completions")
    request = json.loads(request)
    assert request["messages"] == MESSAGES and "chat_template_kwargs" not in request
    assert request["model"] == words[words.index("--served-model-name") + 1]


def test_a_gpu_uses_the_vllm_command_and_thinking_is_passed_on():
    quiet, card = replace(POCKET, thinking=False), replace(CPU, gpu="NVIDIA L4")
    start, curl = serving.serve_commands("merged", quiet, torch.bfloat16, card, MESSAGES)
    assert start.startswith("vllm serve merged --served-model-name policy ")
    assert '"chat_template_kwargs": {"enable_thinking": false}' in curl


@pytest.mark.slow
@pytest.mark.needs("vllm")
@pytest.mark.usefixtures("one_thread")
def test_the_served_model_gives_the_answer_of_transformers(model, tokenizer, tmp_path):
    prompts = load_task("arithmetic/sums", train_size=1, holdout_size=1, seed=5).holdout["prompt"]
    prompt = list(prompts[0])
    start, curl = serving.serve_commands(
        POCKET.model_path, POCKET, torch.float32, this_machine(), prompt
    )
    with served(start, tmp_path / "log") as address:
        line = curl.replace(f"curl {PRINTED}", f"curl --silent --noproxy '*' {address}")
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)["choices"][0]["message"]["content"]
    limit = POCKET.max_completion_length
    alone = sample(model, tokenizer, [prompt], max_new_tokens=limit, temperature=0)
    assert [[answer]] == alone and "<think>" in answer
