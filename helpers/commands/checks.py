"""The rules of single parameters: what a value alone shows, and its notebook would refuse, perhaps
after hours. The settings of a training have theirs in `presets` and `training/run_settings.py`.
"""

from helpers.data.sources import check_columns, check_model, check_source
from helpers.data.tasks import example_turns
from helpers.environment import this_machine
from helpers.rewards import own
from helpers.rewards.answers import kinds
from helpers.runs import check_seed
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training import warm
from helpers.training.run_settings import check_early_stopping, check_sampling_seconds

_RULES = {
    "seed": check_seed,
    "sampling_seconds": check_sampling_seconds,
    "early_stopping": check_early_stopping,
    "tags": TagFormat.parse,
    "kind": kinds.check_kind,
    "rewards": lambda rewards: own.read_rewards(rewards, THINK_ANSWER),
    "judge": lambda judge: own.load_reward(str(judge), THINK_ANSWER, "judge"),
    "columns": check_columns,
    "examples": example_turns,
    "warm_start": warm.check,
    "model": check_model,
}
_COUNTS = {"groups", "batch_size", "samples", "sampled_questions"}


def check_parameters(parameters: dict, backend: str = "unsloth") -> None:
    """Raise ValueError or OSError for a parameter that its notebook would refuse, so that a run of
    hours does not end in its last notebook over a misspelt word; no model is loaded for it.

    parameters: by name, as `run -p` takes them; None leaves one out. Settings of a preset are
    `presets.resolve`'s to check, and what a notebook refuses before it has spent time, such as
    02's `cases` and 10's `environment`, is that notebook's. backend: what it trains with.
    """
    parameters = {name: value for name, value in parameters.items() if value is not None}
    for name, value in parameters.items():
        if name in _RULES:
            _RULES[name](value)
        if name in _COUNTS and (type(value) is not int or value < 1):
            raise ValueError(
                f"{name}={value!r} is not a number of completions or questions: give an integer of "
                "at least 1."
            )
    if "source" in parameters:
        check_source(parameters["source"], parameters.get("columns"))
    wishes = {key: parameters[key] for key in ("merge", "gguf", "push_to_hub") if key in parameters}
    if wishes:
        from helpers.results.merging import check_merge  # takes seconds

        check_merge(backend, this_machine(), **wishes)
