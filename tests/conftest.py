import os
import shutil
import signal
import sys

import pytest

# the tests are about the CPU path; what only a GPU can show is in benchmarks/gpu/
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here may need a network

# A shell's background job ignores Ctrl-C, and so would every program that a test starts in order to
# press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# several tests at a time: threads of one would wait for those of another
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# before torch, trl and transformers, as in every notebook
import unsloth  # isort: skip
import torch
from needed import missing

from helpers.presets import PRESETS


def pytest_collection_modifyitems(items):
    """One process begins with the notebooks that many tests need; the others do what needs none,
    instead of waiting.
    """
    known = {item: item._fixtureinfo.name2fixturedefs.get("executed") for item in items}
    needing = dict.fromkeys(
        item.path for item, found in known.items() if found and found[-1].scope == "session"
    )
    first = next(iter(needing), None)
    items.sort(key=lambda item: (item.path != first, item.path in needing))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip a test if something that it is marked to need is missing."""
    for mark in item.iter_markers("needs"):
        for reason in filter(None, map(missing, mark.args)):
            pytest.skip(reason)


@pytest.fixture(scope="session")
def executed(tmp_path_factory):
    """The five notebooks, run once with few steps for all processes of the session; returns this
    process's copy of the run.
    """
    from executions import SMALL
    from filelock import FileLock

    from helpers.commands.run import run_notebooks
    from helpers.runs import Run

    own = tmp_path_factory.mktemp("runs")
    together = tmp_path_factory.getbasetemp()
    together = (together.parent if "PYTEST_XDIST_WORKER" in os.environ else together) / "executed"
    with pytest.MonkeyPatch.context() as patch:
        with FileLock(f"{together}.lock"):
            if not together.exists():
                patch.setenv("GRPO_RUNS_DIR", str(together))
                assert run_notebooks("suite", "pocket", None, SMALL) == 0
        shutil.copytree(together / "suite", own / "suite")
        patch.setenv("GRPO_RUNS_DIR", str(own))
        yield Run("suite")


@pytest.fixture(autouse=True)
def in_the_runs_folder(request, monkeypatch):
    """Who asks for the executed run finds it by its name, whichever test asked first and whatever
    that one has put back.
    """
    if "executed" in request.node._fixtureinfo.argnames and hasattr(
        run := request.getfixturevalue("executed"), "folder"
    ):
        monkeypatch.setenv("GRPO_RUNS_DIR", str(run.folder.parent))


@pytest.fixture(scope="session")
def tokenizer():
    """The pocket model's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path)


@pytest.fixture(scope="module")
def model():
    """The pocket model in 32 bits, in which no padding can flip the order of two tokens by
    rounding.
    """
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(PRESETS["pocket"].model_path, dtype=torch.float32)


@pytest.fixture(scope="session")
def fresh():
    """A function to the pocket model with a fresh adapter, made as in notebook 03, and its
    tokenizer.
    """

    def fresh(load_in_4bit: bool = True):
        model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
            PRESETS["pocket"].model_path, max_seq_length=256, load_in_4bit=load_in_4bit
        )
        lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"]}
        model = unsloth.FastLanguageModel.get_peft_model(
            model, use_gradient_checkpointing=False, random_state=1, **lora
        )
        return model, tokenizer

    return fresh


@pytest.fixture(scope="session")
def config():
    """A function to the configuration of a quiet training in groups of four."""

    from trl import GRPOConfig

    def config(folder, **settings) -> GRPOConfig:
        quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1}
        few = {"num_generations": 4, "per_device_train_batch_size": 8, "save_strategy": "no"}
        return GRPOConfig(output_dir=str(folder), **quiet | few | settings)

    return config


@pytest.fixture
def cli(capsys):
    """The command line, in this process: cli("run", "--run", "x") gives (exit code, standard
    output, standard error).
    """
    from helpers.__main__ import main

    def call(*arguments):
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def executions(monkeypatch):
    """In place of execution: what each notebook was given, and `outcomes` to say which fail."""
    from executions import Executions

    from helpers.commands import run

    monkeypatch.setattr(run, "run_notebook", Executions())
    return run.run_notebook


@pytest.fixture(scope="module")
def one_thread():
    """So small a model is fastest on one thread, and many times slower on two that other processes
    share.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def python():
    """The running interpreter, for tests that start a fresh process."""
    return sys.executable


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A runs folder of each test's own."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture
def machine(runs, monkeypatch):
    """A machine without a GPU, whatever this one has, and `runs`."""
    from helpers import environment

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    environment.this_machine.cache_clear()
    yield
    environment.this_machine.cache_clear()


@pytest.fixture
def smi(machine, tmp_path, monkeypatch):
    """smi("NVIDIA L4, 23034, 8.9, 580.95.05"): an nvidia-smi that reports these GPUs and accepts
    only the query of `this_machine`. Its folder becomes the whole PATH.
    """
    from helpers import environment

    asked = "--query-gpu=uuid,name,memory.total,compute_cap,driver_version"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(*gpus: str) -> None:
        lines = "\\n".join(f"GPU-{number}, {gpu}" for number, gpu in enumerate(gpus))
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ntest $1 = {asked} || exit 2\nprintf '{lines}\\n'\n")
        program.chmod(0o755)
        environment.this_machine.cache_clear()

    return write
