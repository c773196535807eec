"""Around the training: the history row by row, which checkpoint it goes on from, and what is set
aside or kept.
"""

import json
import subprocess
from dataclasses import replace
from functools import partial
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
SUMMARY = {"train_runtime": 3.2, "train_loss": 0.01, "epoch": 1.0}  # what Trainer logs at the end


@pytest.fixture
def run(run) -> Run:
    """A run whose data is prepared."""
    run.record("data", fingerprint="f00d")
    return run


def row(step: int, **more) -> dict:
    return {"loss": 0.0, "reward": step / 10, "reward_std": 0.5, "kl": 0.01} | more


def log(history: History, step: int, logs: dict | None, beta: float | None = None) -> None:
    state, args = TrainerState(global_step=step, max_steps=50), SimpleNamespace(beta=beta)
    history.on_log(args, state, TrainerControl(), logs=logs)


def table(run: Run) -> pd.DataFrame:
    return read_metrics(run.require("checkpoints/metrics.csv"))


def checkpoint(run: Run, step: int, state: str | None = "{}"):
    """A folder of a checkpoint; its last file may be missing."""
    folder = run.path(f"checkpoints/checkpoint-{step}/weights").parent
    (folder / "weights").write_text(f"weights of step {step}")
    if state is not None:
        (folder / "trainer_state.json").write_text(state)
    return folder


# --- The history ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "there"), [(0.0, False), (0.02, True)])
def test_a_kl_that_nothing_computes_is_no_measurement(run, beta, there):
    log(History(run), 1, row(1, kl=0.0), beta)
    assert ("kl" in table(run)) == there


def test_each_step_is_on_disk_as_soon_as_it_is_logged_and_nothing_else_is(run):
    history = History(run)
    log(history, 1, SUMMARY)
    assert not history.path.exists()
    log(history, 1, row(1))
    assert list(table(run)["step"]) == [1]
    log(history, 2, row(2) | {"step": 999})
    for no_step in (None, {}, SUMMARY, {"eval_loss": 0.1}):
        log(history, 2, no_step)
    assert list(table(run).columns) == ["step", *row(1)]
    log(history, 3, row(3, late=0.5))
    assert list(table(run)["step"]) == [1, 2, 3] and list(table(run)["reward"]) == [0.1, 0.2, 0.3]
    assert list(table(run)["late"].isna()) == [True, True, False]


def test_going_on_drops_the_rows_after_the_checkpoint(run):
    history = History(run, resumed_from=checkpoint(run, 4))  # nothing was logged before
    for step in range(1, 8):
        log(history, step, row(step))
    resumed = History(run, resumed_from=checkpoint(run, 4))
    for step in (5, 6):
        log(resumed, step, row(step, reward=9.0))
        assert list(table(run)["step"]) == list(range(1, step + 1))
    assert list(table(run)["reward"]) == [0.1, 0.2, 0.3, 0.4, 9.0, 9.0]
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
        ((25,), {3: None}, 1000, 25),
    ],
)
def test_the_last_checkpoint_is_the_largest_complete_one(run, complete, incomplete, before, last):
    for step in complete:
        checkpoint(run, step)
    for step, state in incomplete.items():
        checkpoint(run, step, state)
    for kept in ("checkpoint-best", "checkpoint-16-kept"):
        run.path(f"checkpoints/{kept}/trainer_state.json").write_text("{}")
    found = last_checkpoint(run.path("checkpoints"), before)
    assert (found and checkpoint_step(found)) == last


def test_the_adapter_of_the_checkpoint_is_loaded(run, policy):
    """Transformers does not if the checkpoint has another one, TRL's `ref`, in its own folder."""
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
    with pytest.raises(ValueError, match=r"has lora_rank=4 and lora_alpha=16, not 4 and 8"):
        checkpoints.load_adapter(model, folder)


# --- Beginning ------------------------------------------------------------------------------------


def interrupted(run: Run, settings=POCKET, seed: int = 1) -> None:
    """A training that got to step 6 and saved step 4."""
    assert begin(run, settings, seed) is None
    history = History(run)
    for step in range(1, 7):
        log(history, step, row(step))
    checkpoint(run, 4)


def contents(folder) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_a_fresh_start_writes_down_what_is_trained_and_keeps_what_was_logged_before(run):
    faults = run.path("checkpoints/environment_faults.jsonl")
    faults.write_text("{}\n", encoding="utf-8")
    sampled = run.path("checkpoints/completions/completions_00001.parquet").parent
    for seed in (1, 2):  # without a step there is nothing to set aside
        assert begin(run, POCKET, seed) is None
        written = json.loads(run.require("checkpoints/settings.json").read_text())
        assert (written["seed"], written["data"]) == (seed, "f00d")
    assert written["settings"]["max_steps"] == POCKET.max_steps
    assert faults.read_text(encoding="utf-8") == "{}\n" and not sampled.exists()
    assert not (run.folder / "checkpoints_previous").exists()


def test_the_same_training_is_continued_and_nothing_is_touched(run, capsys):
    interrupted(run)
    before = contents(run.folder)
    found = begin(run, replace(POCKET), 1)
    assert found == run.folder / "checkpoints" / "checkpoint-4" and contents(run.folder) == before
    assert f"from step 4 of {POCKET.max_steps}" in capsys.readouterr().out
    # also one of before there were settings of the objective
    path = run.require("checkpoints/settings.json")
    started = json.loads(path.read_text())
    del started["settings"]["epsilon_high"], started["settings"]["num_iterations"]
    path.write_text(json.dumps(started))
    # from its last step it cannot go on: Trainer would take one too many
    checkpoint(run, POCKET.max_steps)
    assert checkpoint_step(begin(run, POCKET, 1)) == 4


def test_a_corrected_reward_is_named_and_another_list_begins_anew(run, capsys):
    def mine_reward(completions, words=1, **columns):
        return [1.0] * len(completions)

    mine = [mine_reward]
    assert begin(run, POCKET, 1, mine, [1.0]) is None
    checkpoint(run, 4)
    assert checkpoint_step(begin(run, POCKET, 1, mine, [1.0])) == 4
    assert "note: " not in capsys.readouterr().out
    assert checkpoint_step(begin(run, POCKET, 1, [partial(mine_reward, words=2)], [1.0])) == 4
    assert "note: the source of mine_reward has changed" in capsys.readouterr().out
    assert begin(run, POCKET, 1, mine, [0.5]) is None


CHANGES = {
    "other data": lambda run: run.record("data", fingerprint="beef"),
    "finished": lambda run: run.path("checkpoints/finished").touch(),
    "no settings": lambda run: run.require("checkpoints/settings.json").unlink(),
    "no checkpoint": lambda run: checkpoint(run, 4, state=""),
    "nothing": lambda run: None,
}


@pytest.mark.parametrize(
    ("changed", "settings", "seed"),
    [
        *((name, POCKET, 1) for name in CHANGES if name != "nothing"),
        ("nothing", POCKET, 2),
        ("nothing", replace(POCKET, beta=0.1), 1),
        ("nothing", replace(POCKET, epsilon_high=0.28), 1),
    ],
)
def test_any_other_training_starts_anew_with_the_last_one_set_aside_whole(
    run, capsys, changed, settings, seed
):
    for folder in ("checkpoints", "checkpoints_previous"):
        run.path(f"{folder}/checkpoint-2/trainer_state.json").write_text("{}")  # of one before
    interrupted(run)
    CHANGES[changed](run)
    before = contents(run.folder / "checkpoints")
    capsys.readouterr()
    assert begin(run, settings, seed) is None
    assert contents(run.folder / "checkpoints_previous") == before
    assert ("note: an interrupted" in capsys.readouterr().out) == (changed != "finished")
    assert list(contents(run.folder / "checkpoints")) == ["settings.json"]
    checkpoint(run, 1)
    assert checkpoint_step(begin(run, settings, seed)) == 1, "and the new one can be continued"


def test_a_finished_training_is_named_before_it_is_replaced_or_gone_on_from(run, capsys):
    begin(run, POCKET, 1, from_adapter=False)
    assert capsys.readouterr().out == "", "there is none"
    run.record("training", steps=32, data="f00d")
    run.path("metrics.csv").write_text("step\n")
    note = f"note: {run.show()} holds a finished training of 32 steps, which this one replaces when"
    longer = replace(POCKET, max_steps=64)
    for can, offered in ((False, True), (None, False), (True, False)):
        assert begin(run, longer, 1, from_adapter=can) is None
        said = capsys.readouterr().out
        assert said.startswith(note) and ("from_adapter=True goes on" in said) == offered
    checkpoint(run, 4)
    assert checkpoint_step(begin(run, longer, 1, from_adapter=True)) == 4
    assert begin(run, longer, 1, from_adapter=False) is None, "another training"
    run.record("data", fingerprint="beef")
    with pytest.raises(ValueError, match="was trained on other data"):
        begin(run, longer, 1, from_adapter=True)


# --- Keeping --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy(fresh):
    """One whose weights these tests may overwrite."""
    return fresh()


def keep(run: Run, policy, weight: float) -> None:
    """Keep a training whose every lora_B is this number; of the trainer, `keep` reads the
    model alone.
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
    said = {
        "step": step,
        "prompt": [[{"content": "s"}, {"content": question}] for question in questions],
        "completion": [[{"role": "assistant", "content": f"{one} {step}"}] for one in questions],
        "r": 1.0,
        "advantage": 0.0,
    }
    path = run.path(f"checkpoints/completions/completions_{step:05d}.parquet")
    pd.DataFrame(said).to_parquet(path)


@pytest.fixture
def trained(run) -> Run:
    train = pd.DataFrame({"prompt": [[], []], "question": ["1 + 1", "1 + 2"], "answer": ["2", "3"]})
    train.to_parquet(run.path("data/train.parquet"))
    interrupted(run)
    for step in (10, 9):
        trls_completions(run, step, ["1 + 2", "1 + 1"])
    return run


# what another process does to train the run
TAKES = """
from helpers.runs import TRAINING_LOCK, Run, lock
with lock(Run("a").folder, "the training", TRAINING_LOCK):
    pass
"""


def test_a_finished_training_is_kept_whole_and_only_a_finished_one_takes_its_place(
    trained, policy, python
):
    trained.record("data", fingerprint="beef")  # which the training has not read
    keep(trained, policy, 0.5)
    assert kept_weights(trained) == {0.5}
    assert AutoTokenizer.from_pretrained(trained.require("adapter")).chat_template
    logged = trained.require("checkpoints/metrics.csv")
    assert trained.require("metrics.csv").read_text() == logged.read_text()
    table = pd.read_parquet(trained.require("completions.parquet"))
    assert list(table.columns) == ["step", "question", "answer", "completion", "r", "advantage"]
    assert list(table["step"]) == [9, 9, 10, 10] and list(table["answer"]) == ["3", "2", "3", "2"]
    assert list(table["completion"]) == ["1 + 2 9", "1 + 1 9", "1 + 2 10", "1 + 1 10"]
    # from now on another process may train the run
    assert subprocess.run([python, "-c", TAKES], cwd=PROJECT).returncode == 0
    with pytest.raises(ValueError, match=r"was trained on other data .* --only 03,04,05"):
        trained.section("training")
    section = trained.manifest["training"]
    assert (section["seed"], section["data"], section["rewards"]) == (1, "f00d", ["r"])
    assert section["base"]["name"] == "pocket"

    interrupted(trained, seed=2)  # a finished training is not continued
    with pytest.raises(FileNotFoundError, match="log_completions=True"):
        keep(trained, policy, 0.25)
    assert kept_weights(trained) == {0.5}
    trls_completions(trained, 1, ["1 + 2"])
    keep(trained, policy, 0.25)
    assert kept_weights(trained) == {0.25}
    assert len(pd.read_parquet(trained.require("completions.parquet"))) == 1
