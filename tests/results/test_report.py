"""The report: what it concludes, that it holds everything it shows, and how it looks in a real
browser at two widths.
"""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
from browser import check_in_a_browser
from bs4 import BeautifulSoup
from finished import change, compared, entry, proportion

from helpers.metrics.diagnosis import Finding
from helpers.results import report
from helpers.results.report import Facts, portable, verdict
from helpers.runs import Run

SECTIONS = ["verdict", "curves", "findings", "evaluation"]
SECTIONS += ["questions", "rewards", "settings", "versions"]


def written(run: Run) -> BeautifulSoup:
    return BeautifulSoup(report.write(run).read_text(encoding="utf-8"), "html.parser")


def text_of(page: BeautifulSoup) -> str:
    return " ".join(page.get_text(" ").split())


def sections(page: BeautifulSoup) -> list[str]:
    return [element["id"] for element in page(id=True) if element["id"] in SECTIONS]


# --- The verdict ----------------------------------------------------------------------------------


NOTHING = {name: {} for name in ("manifest", "absent", "data", "rewards")}
PAIR = {"baseline": entry(167), "trained": entry(490)}
COMPARED = {"sampled": compared()}


def told(evaluation=PAIR, comparison=COMPARED, findings=(), **more) -> list[tuple[str, str]]:
    given = {"evaluation": evaluation, "comparison": comparison} | more
    known = {"name": "told", "history": None, "findings": list(findings)} | NOTHING | given
    return verdict(Facts(**known))


@pytest.mark.parametrize(
    ("after", "comparison", "severity", "said"),
    [
        (
            490,
            compared(),
            "good",
            "Training raised sampled accuracy on 512 held-out questions from 32.6 % (28.7 to 36.8) "
            "to 95.7 % (93.6 to 97.1): 326 questions won, 3 lost (exact McNemar p < 1e-15).",
        ),
        (100, compared(3, 70, p=0.004), "critical", "Training lowered sampled accuracy"),
        (180, compared(1, 0, p=1.0), "warning", ": 1 question won, 0 lost (exact McNemar p = 1)"),
        (
            180,
            compared(20, 7, p=0.05),
            "warning",
            "cannot be told from chance. It went from 32.6 %",
        ),
        (180, compared(20, 7, p=0.049), "good", "Training raised"),
        (None, compared(), "warning", "Whether training helped is not known"),
        (490, None, "warning", "Whether training helped is not known"),
    ],
)
def test_the_result_is_said_as_strongly_as_it_is_known(after, comparison, severity, said):
    evaluation = {"baseline": entry(167)} | ({"trained": entry(after)} if after else {})
    (found,) = told(evaluation, {"sampled": comparison} if comparison else {})
    assert found[0] == severity and said in found[1]


def finding(severity: str, what: str = "The KL is high.") -> Finding:
    return Finding(severity, "kl", what, "0.6 at steps 1 to 9", "Lower the learning rate.")


def test_the_worst_finding_comes_second_unless_it_is_for_information():
    assert len(told(findings=[finding("info")])) == 1
    _, worst = told(findings=[finding("critical"), finding("warning", "Something else.")])
    assert worst[0] == "critical"
    assert "The KL is high" in worst[1] and "Lower the learning rate." in worst[1]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"merge_is_outdated": True}, ["is of an earlier training"]),
        ({"evaluation": PAIR | {"merged": entry(480)}}, []),
        ({"evaluation": PAIR | {"merged": entry(400)}}, ["is less accurate: 78.1 %"]),
    ],
)
def test_what_is_wrong_with_the_merge_is_told(facts, said):
    found = told(**facts)[1:]
    assert [severity for severity, _ in found] == ["warning"] * len(said)
    assert all(part in sentence for part, (_, sentence) in zip(said, found, strict=True))


# --- The page -------------------------------------------------------------------------------------


def test_the_page_has_every_part_in_order_and_its_numbers(run):
    page = written(run)
    assert sections(page) == SECTIONS
    text = text_of(page)
    for part in (
        "326 questions won, 3 lost",
        "logged by TRL first 10 steps last 10 steps reward 0.354 1.39",
        "rewards/format_reward/mean 0.237 0.944",
        "95.7 % 93.6 to 97.1",
        "pass@1 pass@2",
        "majority",
        "difficulty questions",
        "2 412 12.1 %",
        "10 100 3.0 %",
        "arithmetic/differences, 128 questions",
        "differ by 2.4 on the original base, 0.9 on the dequantised base",
        "won lost both right both wrong",
        "+63.1 60.1 to 66.1",
        "Lost: 3 What is 2 + 1? → 3 before 2 + 1 = 3 after <think>2 + 1 = "
        "3</think><answer>3</answer>",
        "Won: 326, of which 4",
        "correctness_reward 1 0.50 66.7 % 0.0 %",
        "What the laboratory said go Nothing found spoke against training.",
        "learning_rate 0.001",
        "Of 1515 rows read, 3 were dropped (empty answer). The system prompt: Think step by step "
        "inside <think>",
        "39d12b00ee4c3ef50872",
        "trl 1.15.0",
    ):
        assert part in text, part
        text = text[text.index(part) :]  # in this order
    assert "This run has no" not in page.text


def test_the_page_holds_all_it_shows_and_its_figures_are_svg_with_a_text_alternative(run):
    path = run.folder / "metrics.csv"
    history = pd.read_csv(path)
    for more, titles in (({}, 7), ({"tools/call_frequency": np.linspace(8, 5.5, 50)}, 8)):
        history.assign(**more).to_csv(path, index=False)  # an agent's calls are drawn, too
        page = written(run)
        labels = [figure.parent["aria-label"] for figure in page("svg")]
        assert len(set(labels)) == titles and labels[0].startswith("Reward: weighted sum, mean of")
        assert ("tools/call_frequency 7.77 5.73" in text_of(page)) == bool(more)
    # black would not be seen in the dark
    assert "#000000" not in str(page)
    referred = re.findall(r'(?:url\(|href=")#([^)"]+)', str(page))
    ids = [element["id"] for element in page(id=True)]
    assert len(set(referred)) > 20 and {ids.count(one) for one in referred} == {1}
    # and the page asks no network for anything
    assert not re.search('(src|href)="?[a-z]+://|<script|@import', str(page))
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert page.find("meta", content=policy)["http-equiv"] == "Content-Security-Policy"


def test_what_a_model_or_a_file_says_is_shown_as_text_and_a_long_one_without_its_middle(run):
    nasty, long = '<b>x</b> & "quotes"', f"begins {'x' * 5000} <answer>4</answer>"
    change(run, "manifest.json", lambda m: m["training"].update(rewards=[nasty, "format_reward"]))
    change(run, "comparison.json", lambda c: c["sampled"]["won_examples"][0].update(after=long))
    page = written(run)
    text = text_of(page)
    assert nasty in text and not [bold for bold in page("b") if bold.text == "x"]
    assert "begins xxx" in text and "x <answer>4</answer>" in text
    assert "x" * 600 not in text and "characters…" in text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"cases": ["/tmp/a b.jsonl"]}, {"cases": ["a b.jsonl"]}),
        ({"source": "C:\\data\\a.csv"}, {"source": "a.csv"}),
        ({"source": "C:/data/a.csv", "seed": 7}, {"source": "a.csv", "seed": 7}),
        ({"model": "unsloth/Qwen3-4B"}, {"model": "unsloth/Qwen3-4B"}),
        ({"system_prompt": "/no_think Answer."}, {"system_prompt": "/no_think Answer."}),
    ],
)
def test_of_a_path_only_the_file_name_is_told(value, told):
    assert portable(value) == told


def test_of_a_run_that_has_only_its_data_the_notebooks_that_make_the_rest_are_named(run):
    for part in report.PARTS[1:]:
        (run.folder / part).unlink()
    shutil.rmtree(run.folder / "merged")
    later = ("rewards", "training", "merge")
    change(run, "manifest.json", lambda m: [m.pop(name) for name in later])
    page = written(run)
    for part in report.PARTS[1:]:
        said = f"This run has no {part}, which notebook {run.notebook_of(part)} makes: python -m "
        assert said + "helpers run --run told --only" in text_of(page)
    for part in ("helped is not known", "1000 questions to train on", "preset pocket"):
        assert part in text_of(page)
    assert sections(page) == SECTIONS
    with pytest.raises(FileNotFoundError, match="Run notebook 01_data_preparation first"):
        report.write(Run("nobody"))
    assert not Run("nobody").folder.exists()


def test_what_an_older_version_has_written_is_shown(run):
    kept = ("accuracy", "ci95", "n", "in_format")
    old = {name: {key: one[key] for key in kept} for name, one in PAIR.items()}
    change(run, "evaluation.json", lambda e: (e.clear(), e.update(old)))
    change(run, "manifest.json", lambda m: m["merge"].update(quantisation_gap=2.4))
    text = text_of(written(run))
    assert "95.7 % 93.6 to 97.1 – 50.0 %" in text
    assert "pass@" not in text and "By difficulty" not in text
    assert "they differ by 2.4: the price of quantisation" in text


def test_a_run_of_agents_is_reported_and_what_its_notebook_never_writes_is_no_advice(run):
    """Notebook 10 measures successes: no format, no greedy answers, no examples. Beta is 0."""
    won = {key: value for key, value in compared().items() if not key.endswith("_examples")}
    only = {"baseline": proportion(167), "trained": proportion(490)}
    change(run, "evaluation.json", lambda e: (e.clear(), e.update(only)))
    change(run, "comparison.json", lambda c: (c.clear(), c.update(sampled=won)))
    counts = ("rows_read", "rows_train", "rows_holdout", "dropped", "system_prompt")
    change(run, "data_report.json", lambda d: [d.pop(name) for name in counts])
    change(run, "manifest.json", lambda m: m["data"].update(notebook="10"))
    (run.folder / "reward_report.json").unlink()
    history = pd.read_csv(run.folder / "metrics.csv")
    history = history.rename(columns={"rewards/format_reward/mean": "rewards/my/game/mean"})
    history.drop(columns="kl").to_csv(run.folder / "metrics.csv", index=False)
    text = text_of(written(run))
    assert "Training raised sampled accuracy on 512 held-out questions" in text
    assert "no KL: beta is 0" in text and "rewards/my/game/mean 0.237 0.944" in text
    assert "This run has no reward_report.json: notebook 10_agents wrote none." in text
    assert "--only 10" not in text


@pytest.mark.parametrize(
    ("found", "severity", "said"),
    [
        ([], "good", "The rules that read the curves found nothing to remark."),
        (
            [finding("critical"), finding("critical", "Another."), finding("info", "By the way.")],
            "critical",
            "info By the way: 0.6 at steps 1 to 9. Lower the learning rate.",
        ),
    ],
)
def test_critical_findings_are_counted_where_nobody_overlooks_them(
    run, monkeypatch, found, severity, said
):
    monkeypatch.setattr(report, "diagnose", lambda history: found)
    page = written(run)
    shown = page.find(id="verdict")
    assert shown["class"] == ["verdict", severity] and said in text_of(page)
    assert ("2 critical findings" in text_of(shown)) == (severity == "critical")


# --- In a browser ---------------------------------------------------------------------------------


@pytest.mark.needs("chromium")
def test_the_report_of_the_executed_notebooks(executed, tmp_path):
    path = report.write(executed)
    text = text_of(written(executed))
    assert "This run has no" not in text and "is not known" not in text
    assert re.search(r"(Training (raised|lowered)|Whether training changed) sampled accuracy", text)
    check_in_a_browser(path, tmp_path)
