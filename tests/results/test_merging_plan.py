"""What notebook 05 is asked for and cannot do is refused before anything is loaded, and so is a
disk that is too small.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.environment import Machine
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.results.merging import check_disk
from helpers.runs import Run
from helpers.training.base import Base

POCKET = PRESETS["pocket"]
FOLDER = POCKET.model_path
HERE = Base(FOLDER, "here")
CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)

# --- Room -----------------------------------------------------------------------------------------


def test_a_disk_too_small_for_the_merge_is_refused_with_both_sizes(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    run.path("data")
    # Qwen3-8B has 8.19 billion weights: 16.4 GB in 16 bits, 32.8 in 32, and 5 % more for what lies
    # beside them.
    monkeypatch.setattr(
        merging.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 20e9})
    )
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16) is None
    with pytest.raises(
        ValueError, match=r"34\.4 GB and the disk of \S+/a has 20\.0 GB free.*GRPO_RUNS_DIR"
    ):
        check_disk(run, "unsloth/Qwen3-8B", torch.float32)


def test_the_pocket_model_has_room(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    run.path("data")
    assert check_disk(run, FOLDER, torch.float32) is None


# --- What is asked for and cannot be done ---------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"merge": "8bit"},
            "merge='8bit' is not known. Known: original, dequantised, 4bit, adapter",
        ),
        (
            {"gguf": "q4_k_m"},
            "gguf='q4_k_m' cannot be written here: Unsloth writes GGUF on a machine with an "
            "NVIDIA GPU",
        ),
        ({"push_to_hub": "mine"}, "name it owner/model"),
        ({"push_to_hub": "me/mine"}, "set HF_TOKEN"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_loaded(
    tmp_path, monkeypatch, asked, said
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    run = Run("a")
    run.path("data")
    nothing = {"merge": "original", "gguf": None, "push_to_hub": None}
    with pytest.raises(ValueError) as error:
        merging.check_plan(run, POCKET, HERE, CPU, torch.float32, **(nothing | asked))
    assert said in str(error.value)
    for merge in merging.WAYS:
        assert (
            merging.check_plan(
                run, POCKET, HERE, CPU, torch.float32, merge=merge, gguf=None, push_to_hub=None
            )
            is None
        )


def test_the_disk_must_hold_all_that_a_gguf_file_takes_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    run.path("data")
    # 8.19 billion weights: merged 17.2 GB; then 16.4 in 16 bits again, 16.4 converted, and about 5
    # in four to five bits.
    monkeypatch.setattr(
        merging.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 50e9})
    )
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16, gguf=None) is None
    with pytest.raises(
        ValueError,
        match=r"merged model would take 17\.2 GB and the GGUF file would take (3[89]|4[01])\.\d "
        r"GB and the",
    ):
        check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16, gguf="q4_k_m")
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16, gguf="q8_0") is None, (
        "converted in one pass: 16.4 and 8.7 GB"
    )
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16, merge=False, gguf="q4_k_m") is None


def test_a_working_directory_on_another_disk_must_hold_what_is_converted(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run = Run("a")
    run.path("data")
    free = {run.folder: 500e9, tmp_path / "here": 10e9}
    monkeypatch.setattr(
        merging.shutil, "disk_usage", lambda path: type("Usage", (), {"free": free[path]})
    )
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16, gguf="q4_k_m") is None, "one disk"
    monkeypatch.setattr(merging, "_on_one_disk", lambda one, other: False)
    with pytest.raises(
        ValueError,
        match=r"on its way would take 18\.5 GB and the working directory's disk \(\S+/here\) has "
        r"10\.0 GB",
    ):
        check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16, gguf="q4_k_m")
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16) is None, (
        "a merge is written to the run alone"
    )


def test_gguf_files_are_collected_from_where_unsloth_writes_them(tmp_path):
    made = {
        "save_directory": str(tmp_path / "gguf/16_bits"),
        "gguf_directory": str(tmp_path / "gguf/16_bits_gguf"),
    }
    for place, name in (
        ("save_directory", "model.safetensors"),
        ("gguf_directory", "a.Q4_K_M.gguf"),
        ("gguf_directory", "Modelfile"),
    ):
        Path(made[place]).mkdir(parents=True, exist_ok=True)
        (Path(made[place]) / name).write_text(name)
    merging.collect_gguf(made, tmp_path / "gguf")
    assert sorted(path.name for path in (tmp_path / "gguf").rglob("*")) == [
        "Modelfile",
        "a.Q4_K_M.gguf",
    ]


def test_gguf_names_each_thing_that_is_missing(monkeypatch):
    monkeypatch.setattr(
        merging.shutil, "which", lambda tool: None if tool == "cmake" else f"/bin/{tool}"
    )
    card = replace(CPU, gpu="NVIDIA L4", gpu_memory_gb=24.2)
    assert merging.gguf_obstacles(card, "unsloth") == [
        "llama.cpp is built for it, which needs cmake: install them with the system's packages."
    ]
    assert len(merging.gguf_obstacles(CPU, "transformers")) == 3
    monkeypatch.setattr(merging.shutil, "which", lambda tool: tool)
    assert merging.gguf_obstacles(card, "unsloth") == []
