"""A user's rewards in the cells of notebooks 02 and 03, edited in between."""

import pytest
from reading import defined

import unsloth  # isort: skip  # noqa: F401  # before trl

from helpers.laboratory.measures import Lab
from helpers.rewards import own
from helpers.runs import Run
from helpers.tags import THINK_ANSWER

REWARD = "def brevity(completions, **columns):\n    return [1.0 for _ in completions]\n"


@pytest.mark.filterwarnings("ignore:.*have no answer")
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_notebook_03_trains_the_file_as_it_is_and_says_if_02_tested_another(
    tmp_path, monkeypatch, capsys, edited, named
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    folder, file = Run("mine"), tmp_path / "my_rewards.py"
    file.write_text(REWARD, encoding="utf-8")
    rewards = f"{file}:brevity,correctness*0.5"
    functions, weights = own.own_rewards(folder, rewards, THINK_ANSWER)
    folder.record("data", fingerprint="f")
    names = {"lab": Lab(functions, weights), "folder": folder, "rewards": rewards}
    names |= {"sampled_by": "nobody", "warm_started": None}
    defined("02", 'folder.write_object("reward_report.json"', **names)

    if edited:
        file.write_text(REWARD.replace("1.0", "0.0"), encoding="utf-8")
    capsys.readouterr()
    names = {"folder": folder, "rewards": rewards if named else None, "fmt": THINK_ANSWER}
    names["control"] = None
    names = defined("03", "against_report(folder", **names)
    trained = names["reward_functions"][0](completions=["a"])
    said = capsys.readouterr().out
    if edited:
        assert trained == [0.0] and said.startswith("NOT WHAT NOTEBOOK 2 TESTED: the source of bre")
    else:
        assert trained == [1.0] and said.strip().endswith("tested and approved.")
