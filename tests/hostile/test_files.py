"""A finished run with a damaged file in it: every command that reads it says one sentence, no
traceback.
"""

import shutil

import pytest
from finished import finished_run

from helpers.commands import generate, report
from helpers.metrics import comparing
from helpers.metrics.history import read_metrics
from helpers.presets import PRESETS
from helpers.results import card
from helpers.results.answering import weights_identity
from helpers.rewards.lab import verdicts
from helpers.runs import Run

DAMAGE = {
    "empty": b"",
    "list": b"[]",
    "object": b"{}",
    "null": b"null",
    "number": b"3",
    "text": b'"x"',
    "garbage": bytes(range(256)) * 4,
    "deep": b"[" * 100_000,
    "truncated": None,
}
FILES = [
    "manifest.json",
    "data_report.json",
    "reward_report.json",
    "evaluation.json",
    "comparison.json",
    "metrics.csv",
]
FILES += [
    "completions.parquet",
    "asked.json",
    "merged/config.json",
    "merged/model.safetensors",
    "merged/tokenizer.json",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose merged model is the pocket model itself, a copy of it to compare with, and a file
    of questions.
    """
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(folder))
        run = finished_run()
        shutil.rmtree(run.folder / "merged")
        shutil.copytree(PRESETS["pocket"].model_path, run.folder / "merged")
        run.path("adapter").mkdir()
        shutil.copytree(run.folder, folder / "other")
    (folder / "q.jsonl").write_text('{"question": "What is 1 + 1?"}\n')
    return folder


def damage(path, content: bytes | None) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)


def commands(run: Run, folder) -> dict:
    """What reads a run, as far as damaged files let it; of report and card, what is read and not
    what is drawn.
    """
    return {
        "report": lambda: report.read(run),
        "card": lambda: [
            run.section("data"),
            run.section("training"),
            card.command(report.read(run), card._asked(run)),
        ],
        "compare": lambda: [
            comparing.settings_that_differ(both(run)),
            comparing.outcomes(both(run)),
        ],
        "against": lambda: verdicts.against_report(run, [len], [1.0]),
        "generate": lambda: generate.answer_file(run, folder / "q.jsonl", folder / "answers.jsonl"),
        "merged": lambda: weights_identity(run.require("merged")),
        "metrics": lambda: read_metrics(run.require("metrics.csv")),
    }


def both(run: Run) -> list[Run]:
    return [run, Run("other")]


@pytest.mark.parametrize("name", FILES)
def test_every_command_says_what_is_damaged(finished, tmp_path, monkeypatch, name):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    monkeypatch.setattr("helpers.training.policy.sample", lambda *arguments, **options: [["2"]])
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run, told = Run("told"), []
    whole = (run.folder / name).read_bytes()
    for kind, content in DAMAGE.items():
        (run.folder / name).write_bytes(whole)
        damage(run.folder / name, content)
        for command, act in commands(run, tmp_path).items():
            (tmp_path / "answers.jsonl").unlink(missing_ok=True)
            try:
                act()
            except (ValueError, FileNotFoundError) as error:
                said = str(error)
                told.append(said)
                assert not isinstance(error, UnicodeError) and "." in said and len(said) < 600, (
                    command,
                    kind,
                    said,
                )
                assert any(
                    part in said for part in (name, name.split("/")[0], "Run notebook", "run's")
                ), (command, kind, said)
            except Exception as error:
                pytest.fail(f"{command} with {name} {kind}: {type(error).__name__}: {error}")
    assert told or name == "asked.json", (
        "a damaged file stops something; of asked.json the card makes do without"
    )


NESTED = {  # a file, what takes its place, and what is said of it
    "an evaluation that is a text": (
        "evaluation.json",
        '{"trained": "x"}',
        "trained is a text, not an object",
    ),
    "an accuracy that is a text": (
        "evaluation.json",
        '{"trained": {"accuracy": "x", "ci95": [0, 1], "n": 3}}',
        "trained.accuracy is a text, not a number",
    ),
    "one bound": (
        "evaluation.json",
        '{"trained": {"accuracy": 1, "ci95": [0], "n": 3}}',
        "trained.ci95 has 1 entry, not 2",
    ),
    "no question": (
        "evaluation.json",
        '{"trained": {"accuracy": 1, "ci95": [0, 1], "n": 0}}',
        "trained.n is the number 0",
    ),
    "no accuracy": ("evaluation.json", '{"trained": {}}', "trained has no 'accuracy'"),
    "a section": ("manifest.json", '{"training": 3}', "training is the number 3, not an object"),
    "a moment": (
        "manifest.json",
        '{"training": {"written": "x"}}',
        "training.written is a text, not a time",
    ),
    "settings": (
        "manifest.json",
        '{"training": {"settings": {}}}',
        "training.settings has no 'name'",
    ),
    "weights": (
        "manifest.json",
        '{"training": {"weights": ["x"]}}',
        "training.weights[0] is a text, not a number",
    ),
    "versions": (
        "manifest.json",
        '{"data": {"versions": {"torch": 2}}}',
        "data.versions.torch is the number 2",
    ),
    "counts": ("data_report.json", '{"source": "x"}', "it has no 'system_prompt'"),
    "dropped": ("data_report.json", '{"dropped": []}', "it has no 'source'"),
    "a verdict": (
        "reward_report.json",
        '{"rewards": {}, "verdict": true}',
        "verdict is true or false, not an object",
    ),
    "stops": (
        "reward_report.json",
        '{"rewards": {}, "verdict": {"go": true, "stops": "x"}}',
        "verdict.stops is a text",
    ),
    "a weight": (
        "reward_report.json",
        '{"rewards": {"a": {}}, "verdict": {"go": true, "stops": []}}',
        "rewards.a has no 'weight'",
    ),
    "a comparison": ("comparison.json", '{"sampled": {"n": 3}}', "sampled has no 'won'"),
    "a column of text": (
        "metrics.csv",
        "step,reward,reward_std,loss\n1,x,0,0\n",
        "column 'reward'",
    ),
    "no rows": ("metrics.csv", "step,reward,reward_std,loss\n", "has no row"),
}


@pytest.mark.parametrize(("name", "content", "said"), NESTED.values(), ids=NESTED)
def test_what_is_wrong_inside_a_file_is_named(finished, tmp_path, monkeypatch, name, content, said):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    (Run("told").folder / name).write_text(content)
    with pytest.raises(ValueError) as error:
        report.read(Run("told"))
    assert said in str(error.value) and name in str(error.value)


def test_a_table_of_completions_without_rows_or_columns(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = Run("told")
    table = run.table("completions.parquet")
    table.head(0).to_parquet(run.folder / "completions.parquet")
    with pytest.raises(
        ValueError, match=r"completions\.parquet is damaged \(it has no row\)\. Run notebook 03"
    ):
        report.read(run)
    table.drop(columns="question").to_parquet(run.folder / "completions.parquet")
    with pytest.raises(ValueError, match=r"it has no column question"):
        report.read(run)


@pytest.mark.parametrize("folder", ["merged", "adapter"])
def test_weights_that_were_cut_off_are_named_before_anything_loads_them(
    finished, tmp_path, monkeypatch, folder
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = Run("told")
    whole = (run.folder / "merged" / "model.safetensors").read_bytes()
    file = run.folder / folder / "model.safetensors"
    file.write_bytes(whole)
    assert run.require(folder) == run.folder / folder
    for size in (len(whole) - 1, len(whole) // 2, 100, 5, 0):
        file.write_bytes(whole[:size])
        with pytest.raises(
            ValueError, match=rf"told/{folder} is damaged \(model\.safetensors: it is cut off"
        ):
            run.require(folder)
