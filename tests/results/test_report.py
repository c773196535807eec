"""The report: what it concludes, that it holds everything it shows, and how it looks in a real
browser at two widths.
"""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
from browser import check_in_a_browser, in_a_browser
from bs4 import BeautifulSoup
from finished import change, compared, entry, proportion

from helpers.metrics.diagnosis import Finding
from helpers.results import report
from helpers.results.report import Facts, portable, verdict
from helpers.runs import Run

SECTIONS = ["verdict", "curves", "findings", "evaluation"]
SECTIONS += ["questions", "rewards", "settings", "versions"]


class Page:
    """A written page: its source, its text, its elements and their ids."""

    def __init__(self, path):
        self.source = path.read_text(encoding="utf-8")
        self.elements = BeautifulSoup(self.source, "html.parser")
        self.text = " ".join(self.elements.get_text(" ").split())
        self.ids = [element["id"] for element in self.elements(id=True)]


def written(run: Run) -> Page:
    return Page(report.write(run))


# --- The verdict ----------------------------------------------------------------------------------


NOTHING = {name: {} for name in ("manifest", "absent", "data", "rewards")}
PAIR = {"baseline": entry(167), "trained": entry(490)}
COMPARED = {"sampled": compared()}


def told(evaluation=PAIR, comparison=COMPARED, findings=(), **more) -> list[tuple[str, str]]:
    given = {"evaluation": evaluation, "comparison": comparison} | more
    known = {"name": "told", "history": None, "completions": None} | NOTHING | given
    return verdict(Facts(**known, findings=list(findings)))


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


def test_a_greedy_loss_is_told_beside_a_sampled_gain():
    measured = {
        name: one | {"greedy": proportion(correct)}
        for (name, one), correct in zip(PAIR.items(), (167, 90), strict=True)
    }
    said = told(measured, COMPARED | {"greedy": compared(3, 80, p=1e-9)})
    assert [severity for severity, _ in said] == ["good", "critical"]
    assert said[1][1].startswith("Training lowered greedy accuracy")


def finding(severity: str, what: str = "The KL is high.") -> Finding:
    return Finding(severity, "kl", what, "0.6 at steps 1 to 9", "Lower the learning rate.", (1, 9))


def test_the_worst_finding_comes_second_unless_it_is_for_information():
    assert len(told(findings=[finding("info")])) == 1
    _, worst = told(findings=[finding("critical"), finding("warning", "Something else.")])
    assert worst[0] == "critical"
    assert "The KL is high" in worst[1] and "Lower the learning rate." in worst[1]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"manifest": {"merge": {"kept": 1.0}}}, []),
        ({"manifest": {"merge": {"kept": 0.9}}}, []),
        ({"manifest": {"merge": {}}}, []),  # of an earlier version
        ({"manifest": {"merge": {"kept": 0.8}}}, ["does only 80.0 % of what the adapter does"]),
        ({"manifest": {"merge": {"kept": float("nan")}}}, ["does only nan % of"]),
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
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    for part in (
        "326 questions won, 3 lost",
        "reward 0.354 → 1.39",
        "95.7 % 93.6 to 97.1",
        "pass@1 pass@2 pass@4 pass@8 pass@16 majority",
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
        "Step 1: What is 0 + 1? → 1 completion reward it is 1 1.00",
        "Step 50: What is 0 + 1? → 1 completion reward <think>so</think><answer>1</answer> 1.50",
        "learning_rate 0.001",
        "Of 1515 rows read, 3 were dropped (empty answer). The system prompt: Think step by step "
        "inside <think>",
        "39d12b00ee4c3ef50872",
        "trl 1.15.0",
    ):
        assert part in page.text, part
        page.text = page.text[page.text.index(part) :]  # in this order
    assert "There is no" not in page.source and "This run has no" not in page.source


def test_the_page_holds_all_it_shows_its_figures_as_svg_with_a_text_alternative(run):
    page = written(run)
    figures = page.elements("svg")
    labels = [figure["aria-label"] for figure in figures]
    assert len(set(labels)) == 7 and all(figure["role"] == "img" for figure in figures)
    assert labels[0] == "Reward: weighted sum, mean of the batch. reward 0.354 → 1.39"
    assert labels[-1].startswith(
        "Holdout accuracy, with 95 % intervals. baseline 32.6 % (28.7 to 36.8); trained 95.7 %"
    )
    assert "#000000" not in page.source  # black would not be seen in the dark
    assert len(set(page.ids)) == len(page.ids)
    referred = set(re.findall(r'(?:url\(|href=")#([^)"]+)', page.source))
    assert len(referred) > 20 and referred <= set(page.ids)
    assert written(run).source == page.source
    # and the page asks no network for anything
    assert not re.search("://|<script|@import", page.source)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert page.elements.find("meta", content=policy)["http-equiv"] == "Content-Security-Policy"


def test_the_calls_of_an_agent_are_drawn_and_told(run):
    path = run.folder / "metrics.csv"
    history = pd.read_csv(path)
    history["tools/call_frequency"] = np.linspace(8, 5.5, len(history))
    history.assign(**{"tools/failure_frequency": 0.02, "rewards/finished/mean": 0.9}).to_csv(
        path, index=False
    )
    page = written(run)
    labels = [figure["aria-label"] for figure in page.elements("svg")]
    said = "Tools: calls, failures, unfinished episodes. tools/call_frequency 7.77 → 5.73"
    assert len(labels) == 8 and said in " ".join(labels)
    assert "tools/failure_frequency 0.02 → 0.02; finished 0.9 → 0.9" in page.text
    assert "last call was not answered" in page.text


def test_what_a_model_or_a_file_says_is_shown_as_text_and_a_long_one_without_its_middle(run):
    nasty = '<b>x</b> & "quotes" $\\foo$'
    change(run, "manifest.json", lambda m: m["training"].update(rewards=[nasty, "format_reward"]))
    path, long = run.folder / "completions.parquet", f"begins {'x' * 5000} <answer>4</answer>"
    pd.read_parquet(path).assign(question=nasty, completion=long).to_parquet(path)
    page = written(run)
    assert f"Step 1: {nasty}" in page.text and page.text.count(nasty) > 2
    assert not [bold for bold in page.elements("b") if bold.text == "x"]
    assert "begins xxx" in page.text and "x <answer>4</answer>" in page.text
    assert "x" * 600 not in page.text and "characters…" in page.text


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
        assert said + "helpers run --run told --only" in page.text
    for part in ("helped is not known", "1000 questions to train on", "preset pocket"):
        assert part in page.text
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS


def test_an_empty_run_is_refused_with_the_notebook_to_run(machine):
    with pytest.raises(FileNotFoundError, match="Run notebook 01_data_preparation first"):
        report.write(Run("nobody"))
    assert not Run("nobody").folder.exists()


def test_what_an_older_version_has_written_is_shown(run):
    kept = ("accuracy", "ci95", "n", "in_format")
    old = {name: {key: one[key] for key in kept} for name, one in PAIR.items()}
    change(run, "evaluation.json", lambda e: (e.clear(), e.update(old)))
    change(run, "manifest.json", lambda m: m["merge"].update(quantisation_gap=2.4))
    text = written(run).text
    assert "95.7 % 93.6 to 97.1 – 50.0 %" in text
    assert "pass@" not in text and "By difficulty" not in text
    assert "they differ by 2.4: the price of quantisation" in text


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
    assert page.elements.find(id="verdict")["class"] == ["verdict", severity] and said in page.text
    counted = "2 critical findings" in page.text[: page.text.index("Curves")]
    assert counted == (severity == "critical")


# --- In a browser ---------------------------------------------------------------------------------


@in_a_browser
def test_the_report_of_the_executed_notebooks(executed, tmp_path):
    path = report.write(executed)
    page = Page(path)
    assert "This run has no" not in page.text and "is not known" not in page.text
    assert re.search(
        r"(Training raised|Training lowered|Whether training changed) sampled accuracy", page.text
    )
    check_in_a_browser(path, tmp_path)
