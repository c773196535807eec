"""The lessons' configuration: what a lesson gives beside the settings."""

import pytest

from helpers.environment import this_machine
from helpers.presets import settle
from helpers.runs import Run
from helpers.training import lessons


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("report_to", ["tensorboard"]),
        ("save_total_limit", 7),
        ("learning_rate", 0.5),  # from the settings
        ("logging_first_step", True),  # not given otherwise
    ],
)
def test_a_lesson_adds_or_replaces_a_keyword(name, value, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    arguments = (Run("a"), settle("pocket"), this_machine(), 1)
    usual = lessons.configuration(*arguments)
    config = lessons.configuration(*arguments, **{name: value})
    assert getattr(usual, name) != value == getattr(config, name)
    assert config.beta == usual.beta and config.output_dir == usual.output_dir
