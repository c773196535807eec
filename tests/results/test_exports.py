"""Exports that notebook 05 cannot make are refused before anything is loaded."""

from dataclasses import replace

import pytest

from helpers.environment import Machine
from helpers.presets import PRESETS
from helpers.results.exports import MERGES, check_merge
from helpers.training.base import Base

HERE = Base(PRESETS["pocket"].model_path, "here")
STORED = Base("me/mine-4bit", "before")  # the original model is not known
CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64")
CARD = replace(CPU, gpu="NVIDIA L4", gpu_memory_gb=24.2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"base": STORED},
            'model that me/mine-4bit was made from is not known: use merge="dequantised"',
        ),
        ({"merge": "8bit"}, "merge='8bit' is not known. Known: original, dequantised, adapter"),
        (
            {"gguf": "q4_k_m"},
            "gguf='q4_k_m' cannot be written here: only Unsloth quantises in this way",
        ),
        (
            {"gguf": "q4_k_m", "machine": CARD, "backend": "transformers"},
            "(this run: 'transformers')",
        ),
        ({"gguf": "f16", "merge": "adapter"}, "gguf='f16' is made from the merged model"),
        ({"push_to_hub": "mine"}, "name it owner/model"),
        ({"push_to_hub": "me/mine"}, "set HF_TOKEN"),
    ],
)
def test_impossible_parameters_are_refused_before_anything_is_loaded(monkeypatch, asked, said):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(ValueError) as error:
        check_merge(**{"backend": "unsloth", "machine": CPU, "base": HERE} | asked)
    assert said in str(error.value)
    monkeypatch.setenv("HF_TOKEN", "a token")  # possible parameters pass
    for merge in MERGES:
        check_merge("unsloth", CARD, HERE, merge=merge, gguf="q4_k_m", push_to_hub="me/mine")
    check_merge("unsloth", CPU, STORED, merge="dequantised")
