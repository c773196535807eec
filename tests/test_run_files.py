"""A run with a damaged file in it: its readers name the file and the field in one sentence."""

import pytest
from finished import finished_run

from helpers.results import card


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run; each test puts back what it has damaged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        yield finished_run()


DAMAGED = {  # a file, what takes its place, and what is named
    "half a file": ("manifest.json", '{"name": "told"', "Invalid JSON"),
    "a list": ("evaluation.json", "[]", "evaluation.json is damaged"),
    "no bytes": ("comparison.json", "", "Run notebook 05_merge"),
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
}


@pytest.mark.parametrize(("name", "content", "said"), DAMAGED.values(), ids=DAMAGED)
def test_what_is_wrong_in_a_file_is_named(run, name, content, said):
    path = run.folder / name
    whole = path.read_bytes()
    path.write_text(content)
    with pytest.raises(ValueError) as error:
        card.read_facts(run)
    path.write_bytes(whole)
    assert said in str(error.value) and name in str(error.value)


def test_what_no_model_names_is_kept_and_not_a_number_is_a_number(run):
    text = '{"trained": {"accuracy": NaN, "ci95": [0, 1], "n": 3, "new": {"a": null}}}'
    (run.folder / "evaluation.json").write_text(text)
    assert run.evaluation["trained"]["new"] == {"a": None}
    assert run.evaluation["trained"]["accuracy"] != run.evaluation["trained"]["accuracy"]
