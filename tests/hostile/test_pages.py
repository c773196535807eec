"""Hostile text from a policy or a dataset is shown as text, and no secret is written."""

import json

import nbformat
import pytest
from bs4 import BeautifulSoup
from finished import change, finished_run

from helpers.laboratory.cases import style_cases
from helpers.laboratory.measures import Lab
from helpers.printing import escaped
from helpers.results import card
from helpers.rewards.correctness import correctness_reward
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


def test_hostile_text_is_shown_as_it_is(machine, cli, tmp_path):
    run = finished_run()
    change(run, "manifest.json", lambda m: m["training"].update(rewards=[EVIL, "format_reward"]))
    case = {"name": EVIL, "completion": EVIL, "answer": "4", "expected": {"correctness_reward": 1}}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    output = nbformat.v4.new_output("stream", name="stdout", text=EVIL)
    copy = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[output])])
    copy.metadata["papermill"] = {"end_time": "2100-01-01T00:00:00"}
    nbformat.write(copy, run.path("notebooks/05_merge_and_inference.ipynb"))
    assert cli("report", "--run", run.name)[0] == 0
    pages = {
        "report": (run.folder / "report.html").read_text(encoding="utf-8"),
        "marked": style_cases(
            Lab([correctness_reward], [1.0]).cases(tmp_path / "cases.jsonl")
        ).to_html(),
    }
    for name, page in pages.items():
        assert "&lt;script&gt;" in page, name
        elements = BeautifulSoup(page, "html.parser")
        assert not elements(["script", "img"]) and not elements(onload=True), name
        assert not elements("a", href=lambda address: "javascript" in address), name


# texts that Markdown, a terminal or a browser would read as more than text
TEXTS = (
    EVIL,
    r"$\href{https://evil.example}{x}$ $$a<b$$ \(a*b*\) \[c\] \begin{equation}<b>\end{equation}",
    "[x](https://evil.example) ![x](x.png) https://evil.example www.evil.example a@evil.example",
    "&lt;b&gt; &#60;b&#62; &amp; <!-- x --> <![CDATA[",
    "a | b |\n| --- |\n| forged | 100 % |\n\n# forged\n\n---\nlicense: mit\n---\n````\n~~~",
    "\x1b[2J\x1b]8;;https://evil.example\x07\x9b31m \u202elive\u2066 \u200b\0 \ud800 \x0b\x85\u2028",
)


def test_the_card_shows_every_text_literally(machine, cli):
    run = finished_run()
    for text in TEXTS:
        change(run, "reward_report.json", lambda m, text=text: m["verdict"].update(notes=[text]))
        assert cli("report", "--run", run.name)[0] == 0
        page = (run.folder / "report.html").read_text(encoding="utf-8")
        elements = BeautifulSoup(page, "html.parser")
        (shown,) = [p.get_text() for p in elements("p") if "The laboratory, before" in p.get_text()]
        assert escaped(" ".join(text.split())) in shown, shown
        assert not elements("a", href=lambda address: "evil" in address), text
        written = card.write(run).read_text(encoding="utf-8")
        assert escaped(written) == written
        # a formula would begin with either, on the hub and in notebooks
        (line,) = [
            line for line in written.split("\n") if line.startswith("The laboratory, before")
        ]
        assert "$" not in line and r"\\" not in line and "@" not in line.replace("<!-- -->@", "")


def test_no_control_character_of_an_output_reaches_the_report(machine, cli):
    run = finished_run()
    output = nbformat.v4.new_output("stream", name="stdout", text=TEXTS[-1].replace("\ud800", ""))
    copy = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[output])])
    copy.metadata["papermill"] = {"end_time": "2100-01-01T00:00:00"}
    nbformat.write(copy, run.path("notebooks/05_merge_and_inference.ipynb"))
    assert cli("report", "--run", run.name)[0] == 0
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "live" in page and not {*"\x1b\x07\x9b\0\x0b\x85\u202e\u2066"} & {*page}


def test_no_secret_is_written(machine, cli, monkeypatch):
    secret = "hf_0123456789abcdefghijklmnopqrstuvwxyz"
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, secret)
    run = finished_run()
    assert cli("report", "--run", run.name)[0] == 0
    card.write(run)
    written = [path for path in run.folder.rglob("*") if path.is_file()]
    holding = [path.name for path in written if secret.encode() in path.read_bytes()]
    assert len(written) > 6 and holding == []
    code, out, err = cli("run", "--run", "b", "-p", f"HF_TOKEN={secret}")
    assert code == 2 and "no chosen notebook has a parameter 'HF_TOKEN'" in err
    assert secret not in out + err and not Run("b").folder.exists()
