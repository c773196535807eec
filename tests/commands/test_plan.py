"""The command `plan`: what is assumed, what runs have measured, and what cannot be."""

import re

import pandas as pd
import pytest
from finished import compared, finished_run

from helpers.runs import Run, write_json

GIVEN = ("plan", "--baseline", "0.31", "--gain", "0.1")


def test_a_plan_prints_its_assumptions_and_fewer_questions_for_a_larger_gain(cli):
    code, out, _ = cli(*GIVEN)
    assert code == 0 and "from 31.0% to 41.0%" in out
    assert re.search(r"lost +0\.030  assumed", out) and re.search(r"baseline +0\.310  given", out)
    needed = [
        int(re.search(r"one training: ([\d,]+) held-out", text)[1].replace(",", ""))
        for text in (out, cli(*GIVEN[:-1], "0.2")[1], cli(*GIVEN, "--lost", "0.1")[1])
    ]
    assert needed[1] < needed[0] < needed[2]
    seeds = [
        int(re.search(r"(\d+) seeds with", text)[1])
        for text in (out, cli(*GIVEN, "--spread", "0.1")[1])
    ]
    assert 2 <= seeds[0] < seeds[1]


def test_runs_give_what_is_not_given_and_the_cost(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = finished_run(max_steps=100, num_generations=8)
    history = pd.read_csv(run.path("metrics.csv")).head(4)
    history.assign(step_time=[9.0, 6.0, 6.0, 6.0]).to_csv(run.path("metrics.csv"), index=False)
    write_json(run.path("comparison.json"), {"sampled": compared(won=60, lost=6, both=100)})
    code, out, _ = cli("plan", "--run", "told", "--gain", "0.1")
    assert code == 0 and re.search(r"baseline +0\.207 .* told", out)
    assert re.search(r"gain +0\.100  given", out) and re.search(r"lost +0\.012  measured", out)
    seeds = int(re.search(r"(\d+) seeds with", out)[1])
    assert f"{seeds} x 100 steps, about {10 * seeds} minutes" in out
    longer = cli("plan", "--run", "told", "--gain", "0.1", "--steps", "300")[1]
    assert f"{seeds} x 300 steps, about {30 * seeds} minutes" in longer
    other = Run("second")
    for name in ("manifest.json", "metrics.csv"):
        other.path(name).write_bytes(run.path(name).read_bytes())
    write_json(other.path("comparison.json"), {"sampled": compared(won=160, lost=6, both=100)})
    out = cli("plan", "--run", "told", "second")[1]
    assert re.search(r"spread +0\.1\d\d .* told, second", out)
    assert re.search(r"gain +0\.203 .* told, second", out)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--gain", "0.1"), "--baseline is not given"),
        (("--baseline", "0.95", "--gain", "0.1"), "whose sum is at most 1"),
        (
            ("--baseline", "0.3", "--gain", "0.1", "--lost", "0.4"),
            "lost 0.4: a share of at most 0.3 of the questions",
        ),
        (("--baseline", "0.3", "--gain", "0.001"), "needs more than 20,000 questions"),
        (("--run", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(cli, tmp_path, monkeypatch, given, says):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    code, _, err = cli("plan", *given)
    assert code == 2 and says in err and err.count("\n") == 1
