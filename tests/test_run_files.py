"""A run with a damaged file in it: every command that reads it says one sentence, no traceback."""

import shutil

import pytest
from finished import finished_run

from helpers.metrics import comparing
from helpers.metrics.history import read_metrics
from helpers.results import report
from helpers.rewards.lab import verdicts
from helpers.runs import Run

DAMAGE = {
    "empty": b"",
    "list": b"[]",
    "object": b"{}",
    "garbage": bytes(range(256)) * 4,
    "deep": b"[" * 100_000,
    "truncated": None,
}
JSON = ["manifest.json", "data_report.json", "reward_report.json", "evaluation.json"]
FILES = [*JSON, "comparison.json", "metrics.csv", "completions.parquet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a run and a copy of it to compare with."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(folder))
        shutil.copytree(finished_run().folder, folder / "other")
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch) -> Run:
    """A copy of that run, to damage."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return Run("told")


def readers(run: Run) -> list:
    """What reads a run; of the report, what is read and not what is drawn."""
    both = [run, Run("other")]
    return [
        lambda: report.read(run),
        lambda: [run.section("data"), run.section("training")],
        lambda: comparing.settings_that_differ(both),
        lambda: comparing.outcomes(both),
        lambda: verdicts.against_report(run, [len], [1.0]),
        lambda: read_metrics(run.require("metrics.csv")),
    ]


@pytest.mark.parametrize("name", FILES)
def test_every_reader_says_what_is_damaged(run, name):
    told, whole = [], (run.folder / name).read_bytes()
    for content in DAMAGE.values():
        damaged = whole[: len(whole) // 2] if content is None else content
        (run.folder / name).write_bytes(damaged)
        for read in readers(run):
            try:
                read()
            except (ValueError, FileNotFoundError) as error:
                said = str(error)
                told.append(said)
                assert name in said and "." in said and len(said) < 600
                assert not isinstance(error, UnicodeError)
    assert told


NESTED = {  # a file, what takes its place, and the field that is named
    "an accuracy that is a text": (
        "evaluation.json",
        '{"trained": {"accuracy": "x", "ci95": [0, 1], "n": 3}}',
        "trained.accuracy:",
    ),
    "one bound": (
        "evaluation.json",
        '{"trained": {"accuracy": 1, "ci95": [0], "n": 3}}',
        "trained.ci95",
    ),
    "no question": (
        "evaluation.json",
        '{"trained": {"accuracy": 1, "ci95": [0, 1], "n": 0}}',
        "trained.n:",
    ),
    "a section of another notebook": ("manifest.json", '{"curves": 3}', "curves:"),
    "a moment": ("manifest.json", '{"training": {"written": "x"}}', "training.written:"),
    "nothing for a moment": ("manifest.json", '{"data": {"written": null}}', "data.written:"),
    "settings": (
        "manifest.json",
        '{"training": {"settings": {}}}',
        "training.settings.name: Field required",
    ),
    "weights": ("manifest.json", '{"training": {"weights": ["x"]}}', "training.weights.0:"),
    "counts": ("data_report.json", '{"source": "x"}', "system_prompt: Field required"),
    "a verdict": ("reward_report.json", '{"rewards": {}, "verdict": true}', "verdict:"),
    "a weight": (
        "reward_report.json",
        '{"rewards": {"a": {}}, "verdict": {"go": true, "stops": []}}',
        "rewards.a.weight: Field required",
    ),
    "a comparison": ("comparison.json", '{"sampled": {"n": 3}}', "sampled.won: Field required"),
    "a column of text": (
        "metrics.csv",
        "step,reward,reward_std,loss\n1,x,0,0\n",
        "column 'reward'",
    ),
    "no rows": ("metrics.csv", "step,reward,reward_std,loss\n", "has no row"),
}


@pytest.mark.parametrize(("name", "content", "said"), NESTED.values(), ids=NESTED)
def test_what_is_wrong_inside_a_file_is_named(run, name, content, said):
    (run.folder / name).write_text(content)
    with pytest.raises(ValueError) as error:
        report.read(run)
    assert said in str(error.value) and name in str(error.value)


def test_what_no_model_names_is_kept_and_not_a_number_is_a_number(run):
    text = '{"trained": {"accuracy": NaN, "ci95": [0, 1], "n": 3, "new": {"a": null}}}'
    (run.folder / "evaluation.json").write_text(text)
    assert run.evaluation["trained"]["new"] == {"a": None}
    assert run.evaluation["trained"]["accuracy"] != run.evaluation["trained"]["accuracy"]


def test_a_table_of_completions_without_rows_or_columns(run):
    table = run.table("completions.parquet")
    path = run.folder / "completions.parquet"
    for damaged, why in (
        (table.head(0), "it has no row"),
        (table.drop(columns="question"), "it has no column question"),
    ):
        damaged.to_parquet(path)
        with pytest.raises(ValueError, match=rf"parquet is damaged \({why}\)\. Run notebook 03"):
            report.read(run)
