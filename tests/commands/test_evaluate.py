"""The command `evaluate`: one or two models on a file of questions."""

import json
import re
import shutil

import pytest

from helpers.presets import PRESETS
from helpers.runs import Run

pytestmark = pytest.mark.usefixtures("one_thread")
FOLDER = PRESETS["pocket"].model_path


@pytest.fixture
def questions(tmp_path):
    """Sums below 20, which the pocket model solves, and one that nobody does."""
    file = tmp_path / "held.jsonl"
    rows = [{"q": f"What is {n} + 3?", "a": str(n + 3)} for n in range(2, 10)]
    rows.append({"q": "What is 5 + 5?", "a": "1,234,567"})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_two_models_are_compared_on_every_row_of_the_file(cli, runs, questions):
    """The second model is a run's merged one; its end token is the first that it writes."""
    shutil.copytree(FOLDER, Run("mute").path("merged"))
    config = Run("mute").folder / "merged" / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": list(range(3000))}))
    asked = ("--questions", str(questions), "--columns", '{"question": "q", "answer": "a"}')
    code, out, _ = cli("evaluate", FOLDER, "mute", *asked, "--max-tokens", "72")
    assert code == 0 and "9 questions\n" in out
    right = float(re.search(r"to [\d.]+%\s+([\d.]+)%\s", out)[1])
    won = round(right * 9 / 100)
    assert 0 < won < 9 and f"mute against {FOLDER}: won 0, lost {won} of 9; exact McNemar" in out
    grader = questions.with_name("mine.py")
    grader.write_text("def lenient(completions, **columns):\n    return [1.0] * len(completions)\n")
    code, out, _ = cli("evaluate", "pocket", "--grader", f"{grader}:lenient", *asked)
    assert code == 0 and "100.0%" in out
    code, out, _ = cli("evaluate", "pocket", *asked, "--max-tokens", "72", "--system-prompt", "")
    assert code == 0 and "McNemar" not in out and re.search(r"pocket .*%", out)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (("pocket", "pocket"), "two different"),
        (("pocket", "a", "b"), "one model, or two"),
        (("nobody",), "nobody/merged is not there"),
        (("nowhere/model",), "nowhere/model"),
    ],
)
def test_what_is_no_model_is_refused_before_one_is_loaded(cli, runs, questions, models, said):
    code, out, err = cli("evaluate", *models, "--questions", str(questions))
    assert code == 2 and said in err and not out and not runs.exists()
