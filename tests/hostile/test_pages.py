"""Hostile text in every field of what is shown: it is shown as text; and no secret is written."""

import json

import pytest
from finished import finished_run

from helpers.metrics import browse
from helpers.results import card, report
from helpers.rewards import correctness_reward
from helpers.rewards.lab import Lab
from helpers.rewards.lab.verdicts import marked
from helpers.runs import Run, write_json

pytestmark = pytest.mark.slow

EVIL = (
    "</style></title></textarea><script>console.log('pwned')</script><img src=x "
    "onerror=\"console.log('pwned')\">"
)
EVIL += (
    "<svg onload=console.log('pwned')><a href='javascript:console.log(1)'>x</a>{{7*7}}{% raw "
    "%}\r```\r\n\u2028]]>'\"`$\\"
)
NUMBERS = (int, float, bool, type(None))
KEPT = ("written", "dtype", "into", "tags")  # read as what they are: a time, a type


def poisoned(value, key: str = ""):
    """The same JSON with hostile text in front of every text, and in the names that are free."""
    if isinstance(value, dict):
        free = key in ("dropped", "attacks", "by_difficulty", "versions")
        return {
            (EVIL + name if free else name): poisoned(entry, name) for name, entry in value.items()
        }
    if isinstance(value, list):
        return [poisoned(entry, key) for entry in value]
    return value if isinstance(value, NUMBERS) or key in KEPT else EVIL + str(value)


@pytest.fixture
def run(machine):
    run = finished_run()
    for name in (
        "manifest.json",
        "data_report.json",
        "reward_report.json",
        "comparison.json",
        "evaluation.json",
    ):
        content = json.loads((run.folder / name).read_text(encoding="utf-8"))
        hostile = poisoned(content)
        # settings of another kind are no settings: only free text is anybody's
        if name == "manifest.json":
            for section in ("data", "training"):
                hostile[section]["settings"] = content[section]["settings"] | {
                    "model": EVIL,
                    "source": EVIL,
                }
            hostile["training"]["rewards"] = content["training"]["rewards"]
        write_json(run.path(name), hostile)
    table = run.table("completions.parquet")
    for column in ("question", "answer", "completion"):
        table[column] = EVIL + table[column]
    table.to_parquet(run.folder / "completions.parquet")
    return run


def pages(run, folder) -> dict:
    table = run.table("completions.parquet").rename(columns={"format_reward": EVIL})
    lab = Lab([correctness_reward], [1.0])
    (folder / "cases.jsonl").write_text(
        json.dumps(
            {"name": EVIL, "completion": EVIL, "answer": "4", "expected": {"correctness_reward": 1}}
        )
        + "\n"
    )
    return {
        "report": report.write(run).read_text(encoding="utf-8"),
        "browse": browse.completions(table, ["correctness_reward", EVIL]).data,
        "marked": marked(lab.cases(folder / "cases.jsonl")).to_html(),
    }


def test_hostile_text_is_shown_as_it_is(run, tmp_path):
    for name, page in pages(run, tmp_path).items():
        assert "<script" not in page and "<img" not in page and "<svg onload" not in page, name
        assert "&lt;script&gt;" in page, name
        assert "href='javascript" not in page and 'href="javascript' not in page, name


def test_a_card_keeps_its_fences_closed(run):
    text = card.write(run).read_text(encoding="utf-8")
    assert "\r" not in text.partition("## Use")[2].partition("## Data")[0]
    opened = [line for line in text.splitlines() if line.startswith("````") and line != "````"]
    assert opened == ["````python", "````bash"] and text.count("\n````\n") == 2, (
        "longer than the fences in the prompt"
    )


def test_no_secret_is_written(machine, cli, monkeypatch):
    secret = "hf_0123456789abcdefghijklmnopqrstuvwxyz"
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, secret)
    run = finished_run()
    report.write(run)
    card.write(run)
    Lab([correctness_reward], [1.0]).cases()
    browse.completions(run.table("completions.parquet"), ["correctness_reward"])
    written = [path for path in run.folder.rglob("*") if path.is_file()]
    assert len(written) > 8 and not [
        path.name for path in written if secret.encode() in path.read_bytes()
    ]
    code, out, err = cli("run", "--run", "b", "-p", f"HF_TOKEN={secret}")
    assert (
        code == 2
        and "no chosen notebook has a parameter 'HF_TOKEN'" in err
        and secret not in out + err
    )
    assert not Run("b").folder.exists()
