"""Reproducing a run: the same seed gives the same numbers, and a number that is not the same is
found and named.
"""

import shutil
from dataclasses import asdict

import pandas as pd
import pytest
from finished import change, finished_run

from helpers.commands import arguments, reproduce
from helpers.presets import PRESETS
from helpers.runs import Run, write_json


@pytest.fixture
def run(machine):
    """A finished run, `told`, that no notebook was executed for."""
    return finished_run()


# --- A real run -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(executed, cli):
    code, said, _ = cli("reproduce", "--run", "suite", "--only", "01,03")
    run, again = Run("suite"), Run("suite-again")
    assert code == 0 and "reproduced: 12 steps, every column equal to the last digit" in said, said
    tables = [pd.read_csv(one.folder / "metrics.csv") for one in (run, again)]
    assert len(tables[0]) == 12 and tables[0]["reward"].nunique() > 3
    assert (tables[0]["step_time"] != tables[1]["step_time"]).any(), "trained again, not copied"
    pd.testing.assert_frame_equal(*(t.drop(columns="step_time") for t in tables), check_exact=True)
    assert not (again.folder / "evaluation.json").exists()


# --- Comparing ------------------------------------------------------------------------------------

ROWS = "step,loss,reward,step_time\n1,0.1,0.5,9\n2,0.0,0.625,9\n"
DIFFERENT = {
    "times": (ROWS.replace(",9", ",8"), None),
    "an integer": (ROWS.replace("0.0,", "0,"), None),
    "order": ("reward,step,loss\n0.5,1,0.1\n0.625,2,0\n", None),
    "a digit": (
        ROWS.replace("0.625", "0.6250000000000001"),
        "step 2, reward: 0.625 there, 0.6250000000000001 here",
    ),
    "the earlier of two": (
        ROWS.replace("0.1", "0.2").replace("0.625", "1"),
        "step 1, loss: 0.1 there, 0.2 here",
    ),
    "a column more": (
        ROWS.replace("time", "time,kl").replace(",9", ",9,0.1"),
        "step 1, kl: nan there, 0.1 here",
    ),
    "a row less": (ROWS.partition("2,")[0], "step 2, loss: 0.0 there, nan here"),
    "nan": (ROWS.replace("0.625", "nan"), "step 2, reward: 0.625 there, nan here"),
}


@pytest.mark.parametrize(("after", "difference"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_the_first_difference_but_for_times_and_ways_of_writing_is_found(
    tmp_path, after, difference
):
    (tmp_path / "before.csv").write_text(ROWS)
    (tmp_path / "after.csv").write_text(after)
    found = reproduce.first_difference(tmp_path / "before.csv", tmp_path / "after.csv")
    assert found == difference


def test_all_that_differs_is_told(run, capsys):
    shutil.copytree(run.folder, run.folder.with_name("told-again"))
    again = Run("told-again")
    assert reproduce.compare(run, again) == 0
    assert "reproduced: 50 steps, every column equal" in capsys.readouterr().out

    def other(manifest):
        manifest["data"]["fingerprint"] = manifest["training"]["data"] = "f" * 20
        manifest["training"]["versions"]["trl"] = "9.9.9"
        manifest["training"]["switches"] = {"UNSLOTH_GRPO_LOSS_AGGREGATION": "prompt"}
        manifest["training"]["git"] = {"revision": "abcdef0123456789", "dirty": True}
        manifest["training"]["weights"] = [1.0, 0.25]

    change(again, "manifest.json", other)
    assert reproduce.compare(run, again) == 1, "other data, though the same numbers"
    assert "\nnot reproduced: 50 steps, every column equal" in capsys.readouterr().out
    table = pd.read_csv(run.folder / "metrics.csv")
    table.loc[6, ["kl", "reward"]] = 0.5, 9.0
    table.to_csv(run.folder / "metrics.csv", index=False)
    assert reproduce.compare(run, again) == 1
    out = capsys.readouterr().out
    for said in (
        "not reproduced: first difference: step 7, reward: 9.0 there, ",
        "the data differ (39d12b00ee4c3ef5 there, ffffffffffffffff here)",
        "weights was [1.0, 0.5] and is now [1.0, 0.25]",
        f"trl was '{run.manifest['training']['versions']['trl']}' and is now '9.9.9'",
        "UNSLOTH_GRPO_LOSS_AGGREGATION was None and is now 'prompt'",
        "is now 'abcdef0123456789'",
        "OMP_NUM_THREADS",
    ):
        assert said in out


# --- What is run ----------------------------------------------------------------------------------


def test_the_manifest_wins_over_what_was_asked(machine, executions):
    run = finished_run(max_steps=7, lora_rank=8)
    asked = {
        "max_steps": 99,
        "seed": 5,
        "columns": {"question": "q"},
        "early_stopping": 4,
        "push_to_hub": "me/mine",
    }
    write_json(
        run.path("asked.json"),
        {"parameters": asked, "notebooks": ["01", "03"], "done": ["01", "03"]},
    )
    change(run, "data_report.json", lambda report: report.update(system_prompt="Answer."))
    given = reproduce.parameters(run)
    expected = {"preset": "pocket", "max_steps": 7, "lora_rank": 8, "columns": {"question": "q"}}
    expected |= {"early_stopping": 4, "system_prompt": "Answer.", "tags": "think/answer"}
    assert (expected | {"train_size": 1000}).items() <= given.items()
    assert not {"push_to_hub", "max_seq_length"} & given.keys()


def test_data_and_training_keep_each_its_own_seed_and_parameters(cli, run, executions):
    change(run, "manifest.json", lambda manifest: manifest["data"].update(seed=1))
    executions.outcomes["03"] = False
    code, *_ = cli("reproduce", "--run", "told", "--only", "01,03")
    assert code == 1, "the second notebook failed"
    (_, first), (_, second) = executions
    assert (first["seed"], second["seed"]) == (1, 3407)
    assert first["run"] == "told-again" and "max_steps" in second.keys() - first.keys()


def test_a_later_call_forgets_nothing_that_made_the_run(cli, run, executions):
    columns = {"question": "q"}
    first = {
        "parameters": {"columns": columns, "samples": 4},
        "notebooks": ["01", "03", "04", "05"],
        "done": ["01", "03", "04", "05"],
    }
    write_json(run.path("asked.json"), first)
    assert cli("run", "--run", "told", "--only", "02")[0] == 0
    assert cli("run", "--run", "told", "--only", "06", "-p", "seed=1")[0] == 0
    assert arguments.last(run)["used"]["06"] == {"seed": 1}
    executions.outcomes["05"] = False
    assert cli("run", "--run", "told", "--only", "05", "-p", "samples=9")[0] == 1, (
        "it failed, so what is there was made with 4"
    )
    given = reproduce.parameters(run)
    assert (given["columns"], given["samples"]) == (columns, 4)
    executions.clear()
    del executions.outcomes["05"]
    assert cli("reproduce", "--run", "told")[0] == 2, "nothing was trained"
    assert [number for number, _ in executions] == ["01", "02", "03", "04", "05"]


# --- Refused --------------------------------------------------------------------------------------


def refused(cli, *more: str) -> str:
    code, _, err = cli("reproduce", "--run", "told", *more)
    assert code == 2 and err.startswith("error: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize("only", ["03", "01,03,04", "99"])
def test_only_some_of_what_was_done_can_be_done_again(cli, run, only):
    said = "give some of 01, 02, 03, 05, which are done; 01 and 03 among them"
    assert said in refused(cli, "--only", only)


def test_what_the_folder_holds_outlives_a_refusal_and_is_then_set_aside(cli, run, executions):
    old = Run("told-again").path("manifest.json")
    write_json(old, {"data": {"notebook": "09"}})  # another lesson's, which is no reason
    executions.outcomes["01"] = False
    finished_run(**asdict(PRESETS["h200"]))
    assert "needs an NVIDIA GPU" in refused(cli) and old.exists() and executions == []
    finished_run()
    code, out, _ = cli("reproduce", "--run", "told")
    assert code == 1 and "set aside, whole: " in out and not old.exists()
    assert (Run("told-again").folder / "set_aside/1/manifest.json").exists()
    assert [number for number, _ in executions] == ["01"]
