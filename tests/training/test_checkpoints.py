"""A training run on disk: its history, resuming from a checkpoint, and saving the results."""

import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from safetensors.torch import load_file
from transformers import AutoTokenizer, TrainerControl, TrainerState

from helpers import PROJECT
from helpers.metrics.history import read_metrics
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.training import checkpoints
from helpers.training.checkpoints import History, begin, checkpoint_step, last_checkpoint

POCKET = PRESETS["pocket"]
SUMMARY = {"train_runtime": 3.2, "train_loss": 0.01, "epoch": 1.0}  # logged at the end


@pytest.fixture
def run(run) -> Run:
    """A run with prepared data."""
    run.record("data", fingerprint="f00d")
    return run


def row(step: int, **more) -> dict:
    return {"loss": 0.0, "reward": step / 10, "reward_std": 0.5, "kl": 0.01} | more


def log(history: History, step: int, logs: dict, beta: float | None = None) -> None:
    state, args = TrainerState(global_step=step, max_steps=50), SimpleNamespace(beta=beta)
    history.on_log(args, state, TrainerControl(), logs=logs)


def table(run: Run) -> pd.DataFrame:
    return read_metrics(run.require("checkpoints/metrics.csv"))


def checkpoint(run: Run, step: int, state: str | None = "{}") -> Path:
    """Make a checkpoint's folder; state is the content of its last file, or None without it."""
    folder = run.path(f"checkpoints/checkpoint-{step}/weights").parent
    (folder / "weights").write_text(f"weights of step {step}")
    if state is not None:
        (folder / "trainer_state.json").write_text(state)
    return folder


# --- The history ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "logged"), [(0.0, False), (0.02, True)])
def test_without_beta_no_kl_is_kept(run, beta, logged):
    log(History(run), 1, row(1, kl=0.0), beta)
    assert ("kl" in table(run)) == logged


def test_each_logged_step_is_written_at_once(run):
    history = History(run)
    log(history, 1, row(1))
    assert list(table(run)["step"]) == [1]
    log(history, 2, row(2) | {"step": 999})
    for no_step in (SUMMARY, {"eval_loss": 0.1}):
        log(history, 2, no_step)
    log(history, 3, row(3, late=0.5))
    assert list(table(run).columns) == ["step", *row(1), "late"]
    assert list(table(run)["step"]) == [1, 2, 3] and list(table(run)["reward"]) == [0.1, 0.2, 0.3]
    assert list(table(run)["late"].isna()) == [True, True, False]


def test_resuming_drops_the_rows_after_the_checkpoint(run):
    history = History(run, resumed_from=checkpoint(run, 4))  # nothing was logged before
    for step in range(1, 8):
        log(history, step, row(step))
    resumed = History(run, resumed_from=checkpoint(run, 4))
    log(resumed, 5, row(5, reward=9.0))
    assert list(table(run)["reward"]) == [0.1, 0.2, 0.3, 0.4, 9.0]
    log(History(run), 1, row(1))
    assert list(table(run)["step"]) == [1], "a fresh start takes over no row"


# --- Checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("complete", "incomplete", "before", "last"),
    [
        ((), {5: None}, 1000, None),
        ((9, 10, 100), {}, 1000, 100),
        ((9, 10), {}, 10, 9),
        ((2, 10), {25: "", 100: '{"log_history": ['}, 1000, 10),
    ],
)
def test_the_last_checkpoint_is_the_newest_complete_one(run, complete, incomplete, before, last):
    for step, state in (dict.fromkeys(complete, "{}") | incomplete).items():
        checkpoint(run, step, state)
    found = last_checkpoint(run.path("checkpoints"), before)
    assert (found and checkpoint_step(found)) == last


def test_the_adapter_of_the_checkpoint_is_loaded(run, policy):
    """Transformers does not load it if TRL's `ref` is in a subfolder of the checkpoint."""
    model, _ = policy
    weights = [weight.data for name, weight in model.named_parameters() if "lora_" in name]
    saved = [weight.normal_().clone() for weight in weights]
    model.save_pretrained(folder := checkpoint(run, 4))
    for weight in weights:
        weight.zero_()
    start = TrainerState(global_step=4)
    History(run, resumed_from=folder).on_train_begin(None, start, None, model=model)
    assert all(now.equal(then) for now, then in zip(weights, saved, strict=True))
    config = folder / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 8', '"lora_alpha": 16'))
    with pytest.raises(ValueError, match=r"lora_rank=4 .*lora_alpha=16"):
        checkpoints.load_adapter(model, folder)


# --- begin ----------------------------------------------------------------------------------------


def mine_reward(completions, words=1, **columns):
    return [1.0] * len(completions)


def others_reward(completions, **columns):
    return [0.0] * len(completions)


def interrupted(run: Run, seed: int = 1) -> None:
    """Leave a training run that reached step 6 and saved step 4."""
    warm = {"made_for": "a"}
    assert begin(run, POCKET, seed, [mine_reward], [1.0], warm_start=warm) is None
    history = History(run)
    for step in range(1, 7):
        log(history, step, row(step))
    checkpoint(run, 4)


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_a_fresh_start_without_a_step_keeps_the_fault_log(run):
    faults = run.path("checkpoints/environment_faults.jsonl")
    faults.write_text("{}\n", encoding="utf-8")
    for seed in (1, 2):  # without a step there is nothing to set aside
        assert begin(run, POCKET, seed) is None
    assert faults.exists() and not (run.folder / "checkpoints_previous").exists()


EDITED = "note: the source of mine_reward has changed"
SET_ASIDE = "note: an interrupted training, with other settings, data or rewards, is now in "
RESUMPTIONS = [
    # changed settings; changed arguments of `begin`; a change on disk; the step it resumes from; the
    # note
    ({}, {}, None, 4, ""),
    ({"engine": "transformers"}, {}, None, 4, ""),
    ({"processes": 2, "per_device_train_batch_size": 32}, {}, None, 4, ""),
    # the last step is not resumed from: Trainer would take one step too many
    ({}, {}, lambda run: checkpoint(run, POCKET.max_steps), 4, ""),
    ({}, {"functions": [partial(mine_reward, words=2)]}, None, 4, EDITED),
    ({}, {"functions": [others_reward]}, None, None, SET_ASIDE),
    ({}, {"weights": [0.5]}, None, None, SET_ASIDE),
    ({}, {"seed": 2}, None, None, SET_ASIDE),
    ({}, {"warm_start": {"made_for": "b"}}, None, None, SET_ASIDE),
    ({}, {"warm_start": None}, None, None, SET_ASIDE),
    ({"beta": 0.1}, {}, None, None, SET_ASIDE),
    ({"epsilon_high": 0.28}, {}, None, None, SET_ASIDE),
    ({"per_device_train_batch_size": 32}, {}, None, None, SET_ASIDE),
    ({}, {}, lambda run: run.record("data", fingerprint="beef"), None, SET_ASIDE),
    ({}, {}, lambda run: run.require("checkpoints/settings.json").unlink(), None, SET_ASIDE),
    ({}, {}, lambda run: checkpoint(run, 4, state=""), None, SET_ASIDE),
    ({}, {}, lambda run: run.path("checkpoints/finished").touch(), None, ""),
]


@pytest.mark.parametrize(("settings", "arguments", "change", "step", "message"), RESUMPTIONS)
def test_the_same_training_run_resumes_and_another_is_set_aside(
    run, capsys, settings, arguments, change, step, message
):
    run.path("checkpoints_previous/checkpoint-2/trainer_state.json").write_text("{}")
    interrupted(run)
    if change:
        change(run)
    before = contents(run.folder / "checkpoints")
    capsys.readouterr()
    options = {"seed": 1, "functions": [mine_reward], "weights": [1.0]}
    options |= {"warm_start": {"made_for": "a"}} | arguments
    found = begin(run, replace(POCKET, **settings), **options)
    assert (found and checkpoint_step(found)) == step
    printed = capsys.readouterr().out
    assert message in printed and ("note: " in printed) == bool(message)
    kept = "checkpoints" if step else "checkpoints_previous"
    assert contents(run.folder / kept) == before
    if not step:
        assert list(contents(run.folder / "checkpoints")) == ["settings.json"]


def test_a_note_says_that_a_finished_training_run_will_be_replaced(run, capsys):
    begin(run, POCKET, 1, from_adapter=False)
    assert capsys.readouterr().out == "", "there is none"
    run.record("training", steps=32, data="f00d")
    run.path("metrics.csv").write_text("step\n")
    note = f"note: {run.show()} holds a finished training of 32 steps, which this one replaces when"
    longer = replace(POCKET, max_steps=64)
    for from_adapter, offered in ((False, True), (None, False), (True, False)):
        assert begin(run, longer, 1, from_adapter=from_adapter) is None
        printed = capsys.readouterr().out
        assert printed.startswith(note) and ("from_adapter=True" in printed) == offered
    checkpoint(run, 4)
    assert checkpoint_step(begin(run, longer, 1, from_adapter=True)) == 4
    assert begin(run, longer, 1, from_adapter=False) is None, "another training"
    run.record("data", fingerprint="beef")
    with pytest.raises(ValueError, match="was trained on other data"):
        begin(run, longer, 1, from_adapter=True)


# --- keep -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy(fresh):
    """A policy whose weights these tests may overwrite."""
    return fresh()


def keep(run: Run, policy, weight: float) -> None:
    """Save a training run in which every entry of lora_B is `weight`. `keep` reads only the model
    of the trainer.
    """
    model, tokenizer = policy
    for name, matrix in model.named_parameters():
        if "lora_B" in name:
            matrix.data.fill_(weight)
    checkpoints.keep(run, SimpleNamespace(model=model), tokenizer, POCKET, 1, rewards=["r"])


def kept_weights(run: Run) -> set[float]:
    weights = load_file(run.require("adapter/adapter_model.safetensors"))
    return {
        value for name in weights if "lora_B" in name for value in weights[name].unique().tolist()
    }


def trls_completions(run: Run, step: int, questions: list[str]) -> None:
    columns = {
        "step": step,
        "prompt": [[{"content": "s"}, {"content": question}] for question in questions],
        "completion": [[{"role": "assistant", "content": f"{text} {step}"}] for text in questions],
        "r": 1.0,
        "advantage": 0.0,
    }
    path = run.path(f"checkpoints/completions/completions_{step:05d}.parquet")
    pd.DataFrame(columns).to_parquet(path)


# another process that trains the run
TRAINS = """
from helpers.runs import TRAINING_LOCK, Run, lock
with lock(Run("a").folder, "the training", TRAINING_LOCK):
    pass
"""


def test_only_a_finished_training_run_replaces_results(run, policy, python):
    train = pd.DataFrame({"prompt": [[], []], "question": ["1 + 1", "1 + 2"], "answer": ["2", "3"]})
    train.to_parquet(run.path("data/train.parquet"))
    interrupted(run)
    for step in (10, 9):
        trls_completions(run, step, ["1 + 2", "1 + 1"])
    run.record("data", fingerprint="beef")  # replaced after training began
    keep(run, policy, 0.5)
    assert kept_weights(run) == {0.5}
    assert AutoTokenizer.from_pretrained(run.require("adapter")).chat_template
    logged = run.require("checkpoints/metrics.csv")
    assert run.require("metrics.csv").read_text() == logged.read_text()
    kept = pd.read_parquet(run.require("completions.parquet"))
    assert list(kept.columns) == ["step", "question", "answer", "completion", "r", "advantage"]
    assert list(kept["answer"]) == ["3", "2", "3", "2"]
    assert list(kept["completion"]) == ["1 + 2 9", "1 + 1 9", "1 + 2 10", "1 + 1 10"]
    # another process may train the run now
    assert subprocess.run([python, "-c", TRAINS], cwd=PROJECT).returncode == 0
    with pytest.raises(ValueError, match="--only 03,04,05"):
        run.section("training")
    section = run.manifest["training"]
    assert (section["seed"], section["data"], section["rewards"]) == (1, "f00d", ["r"])
    assert section["base"]["name"] == "pocket"

    interrupted(run, seed=2)  # a finished training run is not resumed
    with pytest.raises(FileNotFoundError, match="log_completions=True"):
        keep(run, policy, 0.25)
    assert kept_weights(run) == {0.5}
    trls_completions(run, 1, ["1 + 2"])
    keep(run, policy, 0.25)
    assert kept_weights(run) == {0.25}
    assert len(pd.read_parquet(run.require("completions.parquet"))) == 1
