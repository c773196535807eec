"""What `run`, `sweep` and `train` refuse before the first notebook starts.

papermill would only warn of a parameter that a notebook does not have, and a bad value would end a
run of hours in its last notebook. `check_names` checks the names of the parameters, `check_call`
the run and the settings, and `check_parameters` the values of all other parameters: the data, the
rewards, what is exported. No model is loaded.
"""

import os

from helpers.commands.notebooks import defaults, notebook_paths
from helpers.data.prompts import example_turns
from helpers.data.sources import check_columns, check_source
from helpers.environment import say_which_gpu, this_machine
from helpers.families import check_model
from helpers.judging.answers import check_kind
from helpers.presets import PRESETS
from helpers.results.exports import check_merge
from helpers.rewards import own
from helpers.rewards.controls import check_control
from helpers.runs import LESSONS, MAKERS, Run, check_seed
from helpers.settings import (
    Preset,
    check_early_stopping,
    check_report_to,
    check_sampling_seconds,
    did_you_mean,
)
from helpers.settling import changed, refuse, settings_in, settle
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training import memory

_LOADERS = {"00", "02", "03", "05"}  # load a model, as every lesson does
# What checks a parameter: each function raises for a bad value.
_RULES = {
    "seed": check_seed,
    "sampling_seconds": check_sampling_seconds,
    "early_stopping": check_early_stopping,
    "report_to": check_report_to,
    "tags": TagFormat.parse,
    "kind": check_kind,
    "control": check_control,
    "other_source": check_source,
    "rewards": lambda rewards: own.read_rewards(rewards, THINK_ANSWER),
    "grader": lambda grader: own.load_reward(str(grader), THINK_ANSWER, "grader"),
    "columns": check_columns,
    "few_shot": example_turns,
    "warm_start": example_turns,
    "model": check_model,
    "cases": os.stat,  # a FileNotFoundError names the file
    "completions": os.stat,
}
_COUNTS = {"groups", "batch_size", "samples", "sampled_questions"}  # at least 1


def check_names(numbers: list[str], parameters: dict) -> None:
    """Raise ValueError if none of these notebooks has a parameter.

    The message names the notebooks that have it, or a parameter of a similar name.
    """
    known = defaults(numbers)
    for name in parameters:
        if name in known:
            continue
        takers = [number for number in notebook_paths() if name in defaults([number])]
        if name == "preset":
            raise ValueError(
                f"--preset is for notebooks {', '.join(takers)}. The others continue with the "
                "run's settings, so omit it."
            )
        if takers:
            hint = f"It is a parameter of {', '.join(takers)}. "
        else:
            hint = did_you_mean(name, defaults(list(notebook_paths())))
        if not hint:  # dozens of names help only somebody who is not near any of them
            hint = f"Their parameters: {', '.join(sorted(known.keys() - {'run'}))}."
        raise ValueError(f"no chosen notebook has a parameter {name!r}. {hint.strip()}")


def check_call(
    name: str, numbers: list[str], parameters: dict, another_machine: bool = False
) -> Preset | None:
    """Return the settings with which these notebooks start in a run; None if they are not known
    yet. Raise ValueError or OSError if the run or the settings cannot be; change nothing.

    another_machine: whether they will run on another machine; then this machine's GPU and memory do
        not matter.
    """
    # 1. A run holds one training, and belongs to the notebooks that made it.
    run = Run(name)
    makers = [number for number in numbers if number in MAKERS]
    if len(makers) > 1 and makers != ["01", "03"]:
        raise ValueError(
            f"notebooks {', '.join(numbers)} would overwrite one another's run. Give each lesson "
            "its own --run, or none."
        )
    if makers:
        run.made_by(makers[0])
    if "05" in numbers:
        run.check_evaluable()

    # 2. Find where the settings start: from a preset, or from what the data was prepared with.
    changes = settings_in(parameters)
    lessons = set(LESSONS) & set(numbers)
    start = parameters.get("preset", defaults(numbers).get("preset"))
    if start is None and not lessons:
        start = run.manifest.get("data", {}).get("settings")
    machine = this_machine()
    say_which_gpu(machine)
    if not start:
        # The preset is not known: 07 chooses it by its source, and a run may not be prepared yet.
        # Types and ranges are the same for every preset.
        _, wrong = changed(PRESETS["pocket"], changes)
        refuse([], wrong.values())
        return None

    # 3. Only notebooks that load a model need a machine for it; 02 may read completions instead.
    loading = _LOADERS & set(numbers)
    if "completions" in parameters:
        loading.discard("02")
    loads = bool(loading | lessons) and not another_machine

    # 4. Settle the settings. Of the lessons' small models, only that of 00 is known outside its
    # notebook.
    settings = settle(
        start,
        machine if loads else None,
        small={"model": "pocket"} if "00" in numbers else None,
        sees="11" in numbers,
        **changes,
    )
    if loads and loading:
        memory.check(settings, machine)
    return settings


def check_parameters(parameters: dict, settings: Preset | None = None) -> None:
    """Raise ValueError or OSError if a notebook would refuse its parameter, whatever the settings
    and the run. Parameters that a notebook checks within seconds, such as 10's `environment`, are
    left to it.

    parameters: by name; a value of None is not checked.
    settings: those that `check_call` has returned. Their backend decides which files can be
        exported; None counts as Unsloth.
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
        backend = settings.backend if settings else "unsloth"
        check_merge(backend, this_machine(), **wishes)
