"""A user's rewards in the cells of notebooks 02 and 03: edited in between, abstaining, failing."""

from types import SimpleNamespace

import pandas as pd
import pytest
from reading import defined

import unsloth  # isort: skip  # noqa: F401  # before trl

from helpers import figures
from helpers.presets import PRESETS
from helpers.rewards import own
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.lab import Lab
from helpers.runs import Run, write_json
from helpers.tags import THINK_ANSWER
from helpers.training import trial_step

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
    names = {"lab": Lab(functions, weights), "folder": folder, "rewards": rewards, "own": own}
    names |= {"write_json": write_json, "data": {"fingerprint": "f"}, "sampled_by": "nobody"}
    defined("02", 'write_json(folder.path("reward_report.json")', **names)

    if edited:
        file.write_text(REWARD.replace("1.0", "0.0"), encoding="utf-8")
    capsys.readouterr()
    names = {"folder": folder, "rewards": rewards if named else None, "fmt": THINK_ANSWER}
    names = defined("03", "against_report(folder", **names)
    trained = names["reward_functions"][0](completions=["a"])
    said = capsys.readouterr().out
    if edited:
        assert trained == [0.0] and said.startswith("NOT WHAT NOTEBOOK 2 TESTED: the source of bre")
    else:
        assert trained == [1.0] and said.strip().endswith("tested and approved.")


def sums_only(completions, answer, family, **columns):
    """1.0 for a right answer; None for the rows of another task."""
    scores = correctness_reward(completions, answer)
    return [score if one == "sums" else None for score, one in zip(scores, family, strict=True)]


def fragile(completions, **columns):
    return [1.0 / len(completion[0]["content"].split("+")[1]) for completion in completions]


@pytest.mark.parametrize("rewards", [[sums_only], [sums_only, fragile]])
def test_notebook_03_works_a_group_out_where_a_reward_abstains_or_fails(
    tmp_path, monkeypatch, capsys, rewards
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    monkeypatch.setattr(trial_step, "questions_within", lambda *given: [given[-1]["questions"][0]])
    folder = Run("mine")
    rows = pd.DataFrame({"question": ["4 - 1?", "1 + 1?"], "answer": ["3", "2"]})
    rows = rows.assign(family=["differences", "sums"], prompt=[[], []])
    rows.to_parquet(folder.path("data/holdout.parquet"))
    groups = [[f"<answer>{n}</answer> 1+1" for n in "23"], ["<answer>2</answer>1+1", "none"]]
    names = {"reward_functions": rewards, "reward_weights": [1.0] * len(rewards), "display": print}
    names |= {
        "policy": SimpleNamespace(sample=lambda *_, **__: groups),
        "settings": PRESETS["pocket"],
    }
    names |= dict.fromkeys(("seed", "sampling_seconds", "model", "tokenizer"))
    names |= {"folder": folder, "fmt": THINK_ANSWER, "figures": figures, "shown": print}
    names = defined("03", "def scored(row, group)", "labels = [", **names)
    assert list(names["group"]["sums_only"]) == [1.0, 0.0] and names["question"]["answer"] == "2"
    assert list(names["labels"]) == ["0: a point", "1: no point"]
    said = capsys.readouterr().out
    assert ("note: fragile raised IndexError in test_edited_reward.py, line" in said) == (
        fragile in rewards
    )
