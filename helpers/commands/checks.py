"""The parameters of a run that are no settings of a preset, each checked by the rule of the
notebook that takes it.

Here so that a run of hours does not end in its last notebook over a misspelt word. What a rule
needs is imported only where its parameter is given.
"""

from __future__ import annotations

from pathlib import Path

from helpers.data.files import shortened
from helpers.data.sources import check_columns, check_source
from helpers.environment import this_machine
from helpers.presets import check_early_stopping
from helpers.rewards.answers.kinds import checked
from helpers.runs import check_seed
from helpers.tags import TagFormat
from helpers.training import trackers

_COUNTS = ("groups", "batch_size", "samples", "sampled_questions")


def check(given: dict, run: str | None = None, backend: str = "unsloth") -> None:
    """ValueError or FileNotFoundError for a parameter that its notebook would refuse; nothing is
    loaded for it.

    given: parameters by name, as `run -p` takes them; None leaves one out. Settings of a preset are
    `presets.resolve`'s to check. run: the name of the run, which must not be compared with itself.
    backend: what it trains with.
    """
    given = {name: value for name, value in given.items() if value is not None}
    trackers.check(given.get("report_to", "none"))
    check_seed(given.get("seed", 0))
    for name in _COUNTS:
        if name in given and (type(given[name]) is not int or given[name] < 1):
            raise ValueError(
                f"{name}={given[name]!r} is not a number of completions or questions: give an "
                "integer of at least 1."
            )
    for name in ("system_prompt", "question"):
        if name in given and not isinstance(given[name], str):
            raise ValueError(f"{name}={shortened(repr(given[name]))} is not a text.")
    if "tags" in given:
        TagFormat.parse(given["tags"])
    if "kind" in given:
        checked(given["kind"])
    if "source" in given:
        check_source(given["source"], given.get("columns"))
    elif "columns" in given:
        check_columns(given["columns"])
    _check_tried(given)
    _check_played(given)
    _check_trained_and_merged(given, run, backend)


def _check_tried(given: dict) -> None:
    """What notebook 02 reads."""
    if "cases" in given:
        from helpers.rewards.lab import load_cases

        load_cases(given["cases"])
    if "completions" in given:
        from helpers.rewards.lab import stored_groups

        stored_groups(given["completions"])


def _check_played(given: dict) -> None:
    """What notebook 10 is asked for."""
    if "environment" in given:
        from helpers.agents.protocol import check_environment, named

        if problems := check_environment(
            named("environment", given["environment"], "my_game.py:MyGame")
        ):
            raise ValueError(" ".join(problems))
    if "rows_file" in given and not Path(str(given["rows_file"])).is_file():
        raise FileNotFoundError(f"rows_file={given['rows_file']!r}: there is no such file.")


def _check_trained_and_merged(given: dict, run: str | None, backend: str) -> None:
    """What notebooks 03, 04 and 05 are asked for."""
    check_early_stopping(given.get("early_stopping"))
    if "compare" in given:
        from helpers.metrics.comparing import check_names

        check_names(given["compare"], run)
    if "judge" in given:
        from helpers.results.evaluation import judge_named

        judge_named(given["judge"])
    if "serve" in given:
        from helpers.results.serving import obstacle

        obstacle(given["serve"], this_machine())
    wishes = {name: given[name] for name in ("merge", "gguf", "push_to_hub") if name in given}
    if wishes:
        from helpers.results.merging import check_wishes

        check_wishes(backend, this_machine(), **wishes)
