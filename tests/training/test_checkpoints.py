"""Around the training: the history row by row, which checkpoint it goes on from, and what is set
aside or kept.
"""

import json
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerControl, TrainerState

from helpers import PROJECT
from helpers.metrics.history import read_metrics
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.training import checkpoints
from helpers.training.checkpoints import History, begin, checkpoint_step, last_checkpoint

POCKET = PRESETS["pocket"]
SUMMARY = {"train_runtime": 3.2, "train_loss": 0.01, "epoch": 1.0}  # what Trainer logs at the end


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A run whose data is prepared."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    run.record("data", fingerprint="f00d")
    return run


def row(step: int, **more) -> dict:
    return {
        "loss": 0.0,
        "reward": step / 10,
        "reward_std": 0.5,
        "frac_reward_zero_std": 0.25,
        "kl": 0.01,
    } | more


def log(history: History, step: int, logs: dict | None, max_steps: int = 50) -> None:
    state = TrainerState(global_step=step, max_steps=max_steps)
    history.on_log(None, state, TrainerControl(), logs=logs)


def steps_in(run: Run) -> list[int]:
    return list(read_metrics(run.require("checkpoints/metrics.csv"))["step"])


def checkpoint(run: Run, step: int, complete: bool = True):
    folder = run.path(f"checkpoints/checkpoint-{step}/weights").parent
    (folder / "weights").write_text(f"weights of step {step}")
    if complete:
        (folder / "trainer_state.json").write_text("{}")
    return folder


# --- The history ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "there"), [(0.0, False), (0.02, True)])
def test_a_kl_that_nothing_computes_is_no_measurement(run, beta, there):
    """Unsloth's trainer on a GPU logs 0.0 with beta 0, which a figure would show as a policy that
    has not moved.
    """
    state, args = TrainerState(global_step=1, max_steps=5), SimpleNamespace(beta=beta)
    history = History(run)
    history.on_log(args, state, TrainerControl(), logs=row(1, kl=0.0))
    assert ("kl" in history.rows[0]) is there and (
        "kl" in read_metrics(run.require("checkpoints/metrics.csv"))
    ) is there


def test_each_row_is_on_disk_as_soon_as_it_is_logged(run):
    history = History(run)
    for step in (1, 2, 3):
        log(history, step, row(step))
        assert steps_in(run) == list(range(1, step + 1))
    table = read_metrics(run.require("checkpoints/metrics.csv"))
    assert list(table.columns) == ["step", *row(1)] and list(table["reward"]) == [0.1, 0.2, 0.3]
    assert [path.name for path in run.path("checkpoints/metrics.csv").parent.iterdir()] == [
        "metrics.csv"
    ]


@pytest.mark.parametrize(
    "logs", [None, {}, SUMMARY, {"eval_loss": 0.1}], ids=["none", "empty", "summary", "eval"]
)
def test_what_is_no_step_gives_no_row(run, capsys, logs):
    history = History(run)
    log(history, 1, logs)
    assert not run.path("checkpoints/metrics.csv").exists()
    log(history, 1, row(1))
    capsys.readouterr()
    log(history, 1, logs)
    assert steps_in(run) == [1] and capsys.readouterr().out == ""


def test_a_column_that_comes_later_leaves_the_rows_before_it_blank(run):
    history = History(run)
    first = row(1)
    del first["kl"]
    log(history, 1, first)
    log(history, 2, row(2, kl=0.5))
    assert read_metrics(run.require("checkpoints/metrics.csv"))["kl"].isna().to_list() == [
        True,
        False,
    ]


def test_the_step_is_the_trainers_and_the_logs_are_not_changed(run):
    logs = row(4) | {"step": 999}
    log(History(run), 4, logs)
    assert steps_in(run) == [4] and logs == row(4) | {"step": 999}


def test_going_on_drops_the_rows_after_the_checkpoint(run):
    history = History(run)
    for step in range(1, 8):
        log(history, step, row(step))
    resumed = History(run, resumed_from=checkpoint(run, 4))
    for step in (5, 6):
        log(resumed, step, row(step, reward=9.0))
        assert steps_in(run) == list(range(1, step + 1))
    rewards = read_metrics(run.require("checkpoints/metrics.csv"))["reward"]
    assert list(rewards) == [0.1, 0.2, 0.3, 0.4, 9.0, 9.0]


def test_going_on_without_a_history_starts_one(run):
    log(History(run, resumed_from=checkpoint(run, 4)), 5, row(5))
    assert steps_in(run) == [5]


def test_a_fresh_start_takes_over_no_row(run):
    log(History(run), 7, row(7))
    log(History(run), 1, row(1))
    assert steps_in(run) == [1]


# --- Checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("complete", "incomplete", "last"),
    [
        ((), (), None),
        ((), (5,), None),
        ((9, 10), (), 10),
        ((9, 10, 100), (), 100),
        ((2, 10), (25,), 10),
        ((25,), (3,), 25),
    ],
)
def test_the_last_checkpoint_is_the_largest_complete_one(run, complete, incomplete, last):
    for step in complete:
        checkpoint(run, step)
    for step in incomplete:
        checkpoint(run, step, complete=False)
    found = last_checkpoint(run.path("checkpoints"))
    assert (found and checkpoint_step(found)) == last


@pytest.mark.parametrize(
    "name", ["adapter_model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"]
)
@pytest.mark.parametrize("share", [0, 0.5])
def test_a_checkpoint_with_half_a_file_is_none(run, name, share):
    for step in (4, 8):
        folder = checkpoint(run, step)
        save_file({"a": torch.zeros(100)}, folder / "adapter_model.safetensors")
        for saved in ("optimizer.pt", "rng_state.pth"):
            torch.save({"a": torch.zeros(100)}, folder / saved)
    assert checkpoint_step(last_checkpoint(run.path("checkpoints"))) == 8
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: int(share * len(whole))])
    assert checkpoint_step(last_checkpoint(run.path("checkpoints"))) == 4


def test_other_files_are_no_checkpoints(run):
    run.path("checkpoints/completions/trainer_state.json").write_text("{}")
    run.path("checkpoints/trainer_state.json").write_text("{}")
    assert last_checkpoint(run.path("checkpoints")) is None


def test_the_adapter_of_the_checkpoint_is_loaded_beside_a_reference_adapter(executed):
    """Transformers loads only the adapters in sub-folders where there are any, and TRL's `ref` is
    in one.
    """
    checkpoint = last_checkpoint(executed.folder / "checkpoints")
    assert (checkpoint / "ref" / "adapter_model.safetensors").exists()
    base = AutoModelForCausalLM.from_pretrained(PRESETS["pocket"].model_path)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=PRESETS["pocket"].lora_rank, target_modules=targets))
    History(executed, resumed_from=checkpoint).on_train_begin(
        None, TrainerState(global_step=4), None, model=model
    )
    saved = load_file(checkpoint / "adapter_model.safetensors")
    fresh = dict(model.named_parameters())
    assert saved
    for name, tensor in saved.items():
        assert torch.equal(
            fresh[name.replace(".weight", ".default.weight")].float(), tensor.float()
        )


# --- Beginning ------------------------------------------------------------------------------------


def interrupted(run: Run, settings=POCKET, seed: int = 1) -> None:
    """A training that got to step 6 and saved step 4."""
    assert begin(run, settings, seed) is None
    history = History(run)
    for step in range(1, 7):
        log(history, step, row(step))
    checkpoint(run, 4)


def contents(folder) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_fresh_start_writes_down_what_is_trained(run):
    assert begin(run, POCKET, 1) is None
    written = json.loads(run.require("checkpoints/settings.json").read_text())
    assert (
        written["seed"] == 1
        and written["data"] == "f00d"
        and written["settings"]["max_steps"] == POCKET.max_steps
    )
    assert not run.path("checkpoints_previous").exists()


def test_without_prepared_data_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Run notebook 01_data_preparation first"):
        begin(Run("b"), POCKET, 1)
    assert not (tmp_path / "b" / "checkpoints").exists()


def test_the_same_training_is_continued_and_nothing_is_touched(run, capsys):
    interrupted(run)
    before = contents(run.folder)
    capsys.readouterr()
    found = begin(run, replace(POCKET), 1)
    assert found == run.folder / "checkpoints" / "checkpoint-4" and contents(run.folder) == before
    assert (
        capsys.readouterr().out
        == f"continuing the interrupted training from step 4 of {POCKET.max_steps}\n"
    )


def test_a_training_of_before_there_were_settings_of_the_objective_is_continued_with_their_defaults(
    run,
):
    interrupted(run)
    path = run.require("checkpoints/settings.json")
    started = json.loads(path.read_text())
    for name in ("epsilon", "epsilon_high", "scale_rewards", "num_iterations"):
        del started["settings"][name]
    path.write_text(
        json.dumps(started | {"settings": started["settings"] | {"fast_inference": False}})
    )
    assert begin(run, POCKET, 1) == run.folder / "checkpoints" / "checkpoint-4"
    assert begin(run, replace(POCKET, epsilon_high=0.28), 1) is None


def test_a_training_interrupted_after_its_last_step_goes_on_from_an_earlier_one(run):
    interrupted(run, replace(POCKET, max_steps=6))
    checkpoint(run, 6)  # from here Trainer would take step 7 of 6
    assert checkpoint_step(begin(run, replace(POCKET, max_steps=6), 1)) == 4


def other_seed(run):
    return POCKET, 2


def other_settings(run):
    return replace(POCKET, beta=0.1), 1


def other_data(run):
    run.record("data", fingerprint="beef")
    return POCKET, 1


def finished(run):
    run.path("checkpoints/finished").touch()
    return POCKET, 1


def damaged_settings(run):
    run.path("checkpoints/settings.json").write_text("{")
    return POCKET, 1


def no_checkpoint(run):
    (run.folder / "checkpoints" / "checkpoint-4" / "trainer_state.json").unlink()
    return POCKET, 1


CHANGES = [other_seed, other_settings, other_data, finished, damaged_settings, no_checkpoint]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_any_other_training_starts_anew_with_the_old_one_set_aside_whole(run, change):
    interrupted(run)
    settings, seed = change(run)
    before = contents(run.folder / "checkpoints")
    assert begin(run, settings, seed) is None
    assert contents(run.folder / "checkpoints_previous") == before
    assert list(contents(run.folder / "checkpoints")) == ["settings.json"]
    log(History(run), 1, row(1))
    assert steps_in(run) == [1]
    checkpoint(run, 1)
    assert begin(run, settings, seed) == run.folder / "checkpoints" / "checkpoint-1", (
        "and the new one can be continued"
    )


def test_setting_aside_again_replaces_what_was_set_aside(run):
    for seed in (1, 2, 3):
        interrupted(run, seed=seed)
    aside = json.loads(run.require("checkpoints_previous/settings.json").read_text())
    assert aside["seed"] == 2 and steps_in(run) == [1, 2, 3, 4, 5, 6]


def test_faults_that_were_logged_before_the_training_stay(run):
    log = run.path("checkpoints/environment_faults.jsonl")
    log.write_text("{}\n", encoding="utf-8")
    (log.parent / "checkpoint-half").mkdir()
    assert begin(run, POCKET, 1) is None
    assert (
        log.read_text(encoding="utf-8") == "{}\n" and not (log.parent / "checkpoint-half").exists()
    )


def test_a_start_that_never_logged_a_step_leaves_nothing_to_set_aside(run):
    begin(run, POCKET, 1)
    assert begin(run, POCKET, 2) is None
    assert not (run.folder / "checkpoints_previous").exists()


BEGUN = """
import sys
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.training import checkpoints
checkpoints.begin(Run("a"), PRESETS["pocket"], 1)
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_two_processes_do_not_train_one_run_at_once(run, python):
    """Two kernels with notebook 03: the second would clear away what the first writes."""
    other = subprocess.Popen(
        [python, "-c", BEGUN], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "begun\n"
    mine = run.path("checkpoints/completions/step")
    mine.touch()
    with pytest.raises(
        ValueError, match=f"the training of run 'a' is being executed by process {other.pid} on "
    ):
        begin(run, POCKET, 2)
    assert mine.exists()
    other.communicate()
    assert begin(run, POCKET, 2) is None


@pytest.mark.slow
def test_a_training_that_is_kept_lets_another_process_train_the_run(trained, policy, python):
    begin(trained, POCKET, 1)
    trls_completions(trained, 1, ["1 + 2"])
    log(History(trained), 1, row(1))
    keep(trained, policy, 0.5)
    done = subprocess.run(
        [python, "-c", BEGUN], cwd=PROJECT, input="", capture_output=True, text=True
    )
    assert done.stdout == "begun\n", done.stderr


# --- Keeping --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy():
    """An adapter on the pocket model, and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(POCKET.model_path)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    return get_peft_model(model, lora), AutoTokenizer.from_pretrained(POCKET.model_path)


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
        value
        for name, matrix in weights.items()
        if "lora_B" in name
        for value in matrix.unique().tolist()
    }


def trls_completions(run: Run, step: int, questions: list[str]) -> None:
    prompts = [
        [{"role": "system", "content": "s"}, {"role": "user", "content": question}]
        for question in questions
    ]
    said = [[{"role": "assistant", "content": f"{question} {step}"}] for question in questions]
    table = pd.DataFrame(
        {"step": step, "prompt": prompts, "completion": said, "r": 1.0, "advantage": 0.0}
    )
    table.to_parquet(run.path(f"checkpoints/completions/completions_{step:05d}.parquet"))


@pytest.fixture
def trained(run) -> Run:
    interrupted(run)
    train = pd.DataFrame({"prompt": [[], []], "question": ["1 + 1", "1 + 2"], "answer": ["2", "3"]})
    train.to_parquet(run.path("data/train.parquet"))
    for step in (10, 9):
        trls_completions(run, step, ["1 + 2", "1 + 1"])
    return run


def test_a_finished_training_is_kept_whole(trained, policy):
    keep(trained, policy, 0.5)
    assert (
        kept_weights(trained) == {0.5}
        and AutoTokenizer.from_pretrained(trained.require("adapter")).chat_template
    )
    assert (
        trained.require("metrics.csv").read_text()
        == trained.require("checkpoints/metrics.csv").read_text()
    )
    table = pd.read_parquet(trained.require("completions.parquet"))
    assert list(table.columns) == ["step", "question", "answer", "completion", "r", "advantage"]
    assert list(table["step"]) == [9, 9, 10, 10] and list(table["answer"]) == ["3", "2", "3", "2"]
    assert list(table["completion"]) == ["1 + 2 9", "1 + 1 9", "1 + 2 10", "1 + 1 10"]
    section = trained.section("training")
    assert (section["seed"], section["data"], section["rewards"]) == (1, "f00d", ["r"])
    assert begin(trained, POCKET, 1) is None, "a finished training is not continued"


def test_another_finished_training_takes_its_place(trained, policy):
    for weight in (0.5, 0.25):
        keep(trained, policy, weight)
        assert kept_weights(trained) == {weight}


def test_without_completions_the_last_finished_training_stays_whole(trained, policy):
    keep(trained, policy, 0.5)
    before = {
        name: trained.require(name).read_bytes() for name in ("metrics.csv", "completions.parquet")
    }
    interrupted(trained, seed=2)
    with pytest.raises(FileNotFoundError, match="log_completions=True"):
        keep(trained, policy, 0.25)
    assert {name: trained.require(name).read_bytes() for name in before} == before
    assert kept_weights(trained) == {0.5}
