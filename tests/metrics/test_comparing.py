"""Runs side by side: only what differs, accuracies with intervals, and one figure."""

import json
from dataclasses import asdict, replace

import pandas as pd
import pytest

from helpers.presets import PRESETS
from helpers.runs import Run, write_json

POCKET = PRESETS["pocket"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three finished runs that differ in learning rate, seed and reward weights; the third was
    never evaluated.
    """
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    for number, name in enumerate(("one", "two", "three")):
        run = Run(name)
        history = pd.DataFrame({"step": range(1, 21), "loss": 0.0, "reward_std": 0.5, "kl": 0.01})
        history["reward"] = history["step"] / 20 + number
        history.to_csv(run.path("metrics.csv"), index=False)
        settings = replace(POCKET, learning_rate=1e-3 * (number + 1))
        manifest = {
            "data": {"source": "arithmetic/sums"},
            "training": {
                "settings": asdict(settings),
                "seed": 3407 + number,
                "rewards": ["correctness_reward"],
                "weights": [1.0 + (number == 2)],
            },
        }
        write_json(run.path("manifest.json"), manifest)
        if number < 2:
            entry = {
                "accuracy": 0.5 + number / 4,
                "ci95": [0.4 + number / 4, 0.6 + number / 4],
                "n": 100,
                "in_format": 1.0,
            }
            write_json(
                run.path("evaluation.json"),
                {"baseline": entry | {"accuracy": 0.3}, "trained": entry},
            )
    return tmp_path / "runs"


def test_only_what_differs_is_shown(cli, runs):
    code, out, _ = cli("compare", "one", "two")
    differ, _, rest = out.partition("holdout accuracy")
    assert (
        code == 0
        and "learning_rate" in differ
        and "0.001" in differ
        and "0.002" in differ
        and "3408" in differ
    )
    assert "max_steps" not in differ and "correctness_reward" not in differ, "the same in both"
    assert "75.0% (65.0% to 85.0%)" in rest and "50.0% (40.0% to 60.0%)" in rest
    figure = runs / "one" / "figures" / "compare-one-two.png"
    assert figure.is_file() and "runs/one/figures/compare-one-two.png" in out


def test_reward_weights_and_what_was_not_measured_are_told(cli, runs):
    code, out, _ = cli("compare", "one", "three")
    assert (
        code == 0
        and "correctness_reward x 1" in out
        and "correctness_reward x 2" in out
        and "not measured" in out
    )


def test_runs_with_the_same_settings_differ_in_nothing(cli, runs):
    manifest = json.loads((runs / "one" / "manifest.json").read_text())
    write_json(runs / "two" / "manifest.json", manifest)
    assert "nothing differs" in cli("compare", "one", "two")[1]


@pytest.mark.parametrize("names", [["one"], ["one", "one"]])
def test_it_takes_two_different_runs(cli, runs, names):
    code, out, err = cli("compare", *names)
    assert code == 2 and not out and "name two or more different runs" in err


def test_a_run_that_was_not_trained_is_named_with_the_notebook_to_run(cli, runs):
    code, _, err = cli("compare", "one", "nothing")
    assert code == 2 and "runs/nothing/metrics.csv is not there. Run notebook 03" in err
