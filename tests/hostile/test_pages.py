"""Hostile text wherever a policy or a data set writes is shown as text; no secret is written."""

import json

import pytest
from finished import change, finished_run

from helpers.results import card, report
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.lab import Lab
from helpers.rewards.lab.verdicts import marked
from helpers.runs import Run

pytestmark = pytest.mark.slow

EVIL = (
    "</style></title></textarea><script>console.log('pwned')</script><img src=x "
    "onerror=\"console.log('pwned')\">"
)
EVIL += (
    "<svg onload=console.log('pwned')><a href='javascript:console.log(1)'>x</a>{{7*7}}{% raw "
    "%}\r```\r\n\u2028]]>'\"`$\\"
)


def poison(comparison: dict) -> None:
    """Put hostile text in front of every question, answer and completion that is compared."""
    for compared in comparison.values():
        for example in compared["won_examples"] + compared["lost_examples"]:
            example |= {name: EVIL + text for name, text in example.items()}


def test_hostile_text_is_shown_as_it_is(machine, tmp_path):
    run = finished_run()
    change(run, "comparison.json", poison)
    table = run.table("completions.parquet")
    for column in ("question", "answer", "completion"):
        table[column] = EVIL + table[column]
    table.to_parquet(run.folder / "completions.parquet")
    case = {"name": EVIL, "completion": EVIL, "answer": "4", "expected": {"correctness_reward": 1}}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    pages = {
        "report": report.write(run).read_text(encoding="utf-8"),
        "marked": marked(
            Lab([correctness_reward], [1.0]).cases(tmp_path / "cases.jsonl")
        ).to_html(),
    }
    for name, page in pages.items():
        assert "<script" not in page and "<img" not in page and "<svg onload" not in page, name
        assert "&lt;script&gt;" in page, name
        assert "href='javascript" not in page and 'href="javascript' not in page, name


def test_no_secret_is_written(machine, cli, monkeypatch):
    secret = "hf_0123456789abcdefghijklmnopqrstuvwxyz"
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, secret)
    run = finished_run()
    report.write(run)
    card.write(run)
    written = [path for path in run.folder.rglob("*") if path.is_file()]
    holding = [path.name for path in written if secret.encode() in path.read_bytes()]
    assert len(written) > 8 and holding == []
    code, out, err = cli("run", "--run", "b", "-p", f"HF_TOKEN={secret}")
    assert code == 2 and "no chosen notebook has a parameter 'HF_TOKEN'" in err
    assert secret not in out + err and not Run("b").folder.exists()
