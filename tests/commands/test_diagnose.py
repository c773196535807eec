"""The command `diagnose`: the same findings whatever form the log has, and an exit code for batches."""

import json

import numpy as np
import pandas as pd
import pytest

from helpers.metrics import diagnose
from helpers.runs import Run

STEPS = 40
CLIPPED = pd.DataFrame(
    {
        "step": np.arange(1, STEPS + 1),
        "loss": 0.001,
        "grad_norm": 0.1,
        "learning_rate": 1e-6,
        "reward": np.tile([0.2, 0.3], STEPS // 2),
        "reward_std": 0.4,
        "frac_reward_zero_std": 0.1,
        "completions/mean_length": 250.0,
        "completions/clipped_ratio": 0.8,
    }
)


def as_csv(folder, rows):
    rows.to_csv(folder / "log.csv", index=False)
    return folder / "log.csv"


def as_json_lines(folder, rows):
    rows.to_json(folder / "log.jsonl", orient="records", lines=True)
    return folder / "log.jsonl"


def as_log_history(folder, rows):
    (folder / "log.json").write_text(json.dumps(rows.to_dict("records")))
    return folder / "log.json"


def as_parquet(folder, rows):
    rows.to_parquet(folder / "log.parquet")
    return folder / "log.parquet"


def as_checkpoints(folder, rows):
    """Two checkpoints of one training run; the later one has the whole history."""
    for step in (20, STEPS):
        state = folder / f"checkpoint-{step}" / "trainer_state.json"
        state.parent.mkdir()
        state.write_text(json.dumps({"log_history": rows[:step].to_dict("records")}))
    return folder


def as_printed(folder, rows):
    lines = [str(row) for row in rows.drop(columns="step").to_dict("records")]
    (folder / "train.log").write_text("loading\n" + "\n".join(lines) + "\n{'train_runtime': 1}\n")
    return folder / "train.log"


def as_verl(folder, rows):
    """What verl prints; its names are those of `in_trl_names`."""
    names = {
        "reward": "critic/score/mean",
        "reward_std": "critic/score/std",
        "grad_norm": "actor/grad_norm",
        "learning_rate": "actor/lr",
        "loss": "actor/pg_loss",
        "completions/mean_length": "response_length/mean",
        "completions/clipped_ratio": "response_length/clip_ratio",
    }
    lines = []
    for row in rows.rename(columns=names).to_dict("records"):
        step = int(row.pop("step"))
        pairs = " - ".join(f"{name}:{value}" for name, value in row.items())
        lines.append(f"(TaskRunner pid=7) step:{step} - {pairs}")
    (folder / "verl.log").write_text("\n".join(lines))
    return folder / "verl.log"


def as_verl_file(folder, rows):
    """verl's file logger, which nests the numbers of a step."""
    lines = [json.dumps({"step": row.pop("step"), "data": row}) for row in rows.to_dict("records")]
    (folder / "verl.jsonl").write_text("\n".join(lines))
    return folder / "verl.jsonl"


def as_wandb(folder, rows):
    """An export in which wandb's own steps stand before the trainer's."""
    exported = rows.add_prefix("run-7 - train/").rename(
        columns={"run-7 - train/step": "run-7 - train/global_step"}
    )
    exported.insert(0, "_step", 3 * exported.index)
    exported.to_csv(folder / "wandb.csv", index=False)
    return folder / "wandb.csv"


def as_percent(folder, rows):
    shares = [f"{100 * value:g} %" for value in rows["completions/clipped_ratio"]]
    rows.assign(**{"completions/clipped_ratio": shares}).to_csv(folder / "mine.csv", index=False)
    return folder / "mine.csv"


def as_state(folder, rows):
    state = {"log_history": rows.to_dict("records"), "global_step": STEPS}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder / "trainer_state.json"


FORMS = [as_csv, as_json_lines, as_log_history, as_parquet, as_checkpoints, as_printed, as_verl,
         as_verl_file, as_wandb, as_percent, as_state]  # fmt: skip


def as_european(folder, rows):
    """A spreadsheet's export: semicolons, and decimal commas."""
    rows.to_csv(folder / "table.csv", index=False, sep=";", decimal=",")
    return folder / "table.csv"


FORMS.append(as_european)


def test_evaluations_that_were_printed_are_read(cli, tmp_path):
    lines = []
    for step in range(1, 61):
        lines.append(str({"loss": 0.1, "reward": 0.3 + step / 100, "reward_std": 0.2}))
        if step % 6 == 0:
            lines.append(str({"eval_reward": f"{0.6 - step / 200:.4g}", "eval_runtime": "1.2"}))
    (tmp_path / "out.log").write_text("\n".join(lines))
    assert "critical (held_out)" in cli("diagnose", str(tmp_path / "out.log"))[1]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_log_has_the_same_findings(cli, tmp_path, form):
    code, out, _ = cli("diagnose", str(form(tmp_path, CLIPPED)), "--json")
    (finding,) = [one for one in json.loads(out) if one["rule"] == "clipped"]
    assert code == 0 and finding["severity"] == "warning"
    assert "80%" in finding["evidence"] and f"to {STEPS}" in finding["evidence"], finding


def test_in_python_a_list_is_a_history_too():
    found = diagnose(CLIPPED)
    assert found and found == diagnose(CLIPPED.to_dict("records"))


@pytest.mark.needs("tensorboard")
def test_tensorboards_events_are_read(cli, tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "runs") as writer:
        for row in CLIPPED.to_dict("records"):
            step = int(row.pop("step"))
            for name, value in row.items():
                writer.add_scalar(f"train/{name}", value, step)
    code, out, _ = cli("diagnose", str(tmp_path))
    assert code == 0 and "warning (clipped)" in out and f"to {STEPS}" in out


EPOCHS = CLIPPED.assign(epoch=CLIPPED["step"] / STEPS)
TWO = {
    "exported": [CLIPPED.add_prefix(f"{name} - train/") for name in ("one", "two")],
    "named": [CLIPPED.assign(run_name="one"), CLIPPED.assign(run_name="two")],
    "appended": [CLIPPED, CLIPPED],
    "printed": [EPOCHS, EPOCHS],
}


@pytest.mark.parametrize("name", TWO)
def test_no_number_is_made_of_two_runs_in_a_file(cli, tmp_path, name):
    form = as_printed if name == "printed" else as_csv
    rows = pd.concat(TWO[name], axis=1 if name == "exported" else 0)
    code, out, err = cli("diagnose", str(form(tmp_path, rows)))
    assert (code, out) == (2, "") and "holds 2 runs" in err


def test_of_two_runs_in_a_folder_one_is_named(cli, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        as_checkpoints(tmp_path / name, CLIPPED)
    code, _, err = cli("diagnose", str(tmp_path))
    assert code == 2 and "holds 2 runs" in err
    assert cli("diagnose", str(tmp_path / "two"))[0] == 0


@pytest.mark.needs("tensorboard")
def test_two_runs_of_tensorboard_are_refused_and_hyperparameters_are_none(cli, tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for name in ("one", "one/1700", "two"):
        with SummaryWriter(tmp_path / name) as writer:
            for step in range(1, STEPS):
                writer.add_scalar("hp" if "/" in name else "train/reward", step / STEPS, step)
    code, _, err = cli("diagnose", str(tmp_path))
    assert code == 2 and "holds 2 runs" in err and str(tmp_path / "one") in err
    assert cli("diagnose", str(tmp_path / "one"))[0] == 0


def test_a_log_of_verl_lacks_nothing_that_verl_logs(cli, tmp_path):
    rows = CLIPPED.assign(reward=np.linspace(0.2, 0.1, STEPS)).drop(columns="reward_std")
    rows = rows.assign(**{"critic/score/min": 0.0, "critic/score/max": 1.0})
    rules = [
        one["rule"]
        for one in json.loads(cli("diagnose", str(as_verl(tmp_path, rows)), "--json")[1])
    ]
    assert "unread" not in rules and "clipped" in rules
    rows = rows.assign(reward=np.r_[np.linspace(0.2, 0.9, 20), np.linspace(0.9, 0.2, 20)])
    assert "reward_fall" in cli("diagnose", str(as_verl(tmp_path, rows)))[1]


def test_the_exit_code_is_for_batches(cli, tmp_path):
    sick, healthy = as_csv(tmp_path, CLIPPED), tmp_path / "healthy.csv"
    CLIPPED.assign(
        reward=np.linspace(0.2, 0.8, STEPS), **{"completions/clipped_ratio": 0.0}
    ).to_csv(healthy, index=False)
    assert cli("diagnose", str(sick))[0] == 0
    assert cli("diagnose", str(sick), "--fail-on", "warning")[0] == 1
    assert cli("diagnose", str(sick), "--fail-on", "critical")[0] == 0
    code, out, _ = cli("diagnose", str(healthy), "--fail-on", "info")
    assert code == 0 and f"no findings in {STEPS} rows" in out


def test_a_run_of_this_suite_is_found_by_its_name(cli, runs):
    (runs / "mine").mkdir(parents=True)
    CLIPPED.to_csv(runs / "mine" / "metrics.csv", index=False)
    assert "warning (clipped)" in cli("diagnose", "mine")[1]
    assert "warning (clipped)" in cli("diagnose", str(runs / "mine"))[1]
    # a control is said to be one, because its log looks like any other
    Run("mine").record("training", control="shuffled")
    for log in ("mine", str(runs / "mine")):
        assert cli("diagnose", log)[1].startswith("A control, shuffled: ")
    # one that was interrupted
    run = Run("cut")
    run.record("data", fingerprint="f")
    run.record("call", notebooks=["03"], done=[], parameters={}, given={})
    CLIPPED.to_csv(run.path("checkpoints/metrics.csv"), index=False)
    assert "warning (clipped)" in cli("diagnose", "cut")[1]
    assert "run --run cut --resume" in cli("report", "--run", "cut")[2]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("empty.txt", "nothing\n", "no training history"),
        ("broken.json", "{", "broken.json"),
        ("numbers.json", "[1, 2]", "no training history"),
        ("people.csv", "name,phone\nAnn,12\n", "no column that GRPO trainers log"),
        ("missing.csv", None, "missing.csv is not there"),
        ("folder/", None, "no training history in this folder"),
    ],
)
def test_what_cannot_be_read_is_named(cli, tmp_path, name, text, says):
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    elif text is not None:
        path.write_text(text)
    code, _, err = cli("diagnose", str(path))
    assert code == 2 and says in err
