"""Write the commands that prepare and train a run like a finished one, for its model card.

The manifest records the settings and seeds of notebooks 01 and 03, whatever started them, and the
parameters that commands gave. `commands_of` writes the difference from the preset.
"""

from dataclasses import replace

from helpers.parameters import command_line
from helpers.presets import PRESETS
from helpers.results.facts import Facts, portable
from helpers.rewards.own import copies_of
from helpers.runs import PIPELINE
from helpers.settings import SETTINGS, Preset, settings_of
from helpers.settling import settle
from helpers.tags import THINK_ANSWER


def given_of(facts: Facts) -> dict[str, dict]:
    """Return what the commands gave the notebooks of this run, by number. Data and training have
    it in their own sections, because a later call of a notebook may have failed.
    """
    given = facts.manifest.get("call", {}).get("given", {})
    for section in (facts.manifest["data"], facts.manifest["training"]):
        if "given" in section:
            given = given | {section["notebook"]: section["given"]}
    return {number: values for number, values in given.items() if values is not None}


def commands_of(facts: Facts) -> list[str]:
    """Return the command that prepares and trains a run like this one, for a shell; one command per
    notebook if two of them had different values of a parameter.

    Settings and seeds are those that notebooks 01 and 03 recorded, whatever started them. The other
    parameters are those of the command that did; without it, those that the run records.
    """
    data = facts.manifest["data"]
    training = facts.manifest["training"]
    given = given_of(facts)

    # 1. A lesson prepares and trains by itself. Some of the recorded settings may be its own, and
    # none of its parameters, so only the preset, the seed and the given parameters are repeated.
    lesson = training.get("notebook", "03")
    if lesson != "03":
        recorded = {"preset": training["settings"]["name"], "seed": training["seed"]}
        return [command_line(facts.name, [lesson], recorded | given.get(lesson, {}))]

    # 2. Which settings did 03 change? It starts from those of 01.
    prepared = settle(data["settings"])
    trained = settle(training["settings"])
    changed_by_03 = _differing(trained, prepared, "03")

    # 3. Which settings did 01 change? It starts from the preset, and another source alone drops
    # some of the preset's values, such as its number of rows. So compare with the preset as it is
    # with the run's source, except for the source itself.
    preset = PRESETS.get(prepared.name, PRESETS["pocket"])
    unchanged = replace(settle(preset, source=prepared.source), source=preset.source)
    changed_by_01 = _differing(prepared, unchanged, "01")
    # If 03 changed a setting that 01 has, too, 01 keeps its own value.
    for name in settings_of("01"):
        if name in changed_by_03:
            changed_by_01[name] = getattr(prepared, name)

    # 4. What else is recorded? The preset and the seeds, and the columns, the tags and the rewards
    # if they are not the usual ones.
    recorded_by_01 = {"preset": preset.name, "seed": data["seed"]}
    if facts.data.get("columns") is not None:
        recorded_by_01["columns"] = facts.data["columns"]
    if data["tags"] not in (None, THINK_ANSWER.spec):
        recorded_by_01["tags"] = data["tags"]
    recorded_by_03 = {"seed": training["seed"]}
    if "own_rewards" in training and not given:
        rewards = copies_of(training["own_rewards"], f"runs/{facts.name}/rewards")
        recorded_by_03["rewards"] = rewards

    # 5. The notebooks are 01, 03 and those that a command started; if no command started the run,
    # the whole pipeline. Each gets the parameters that it was given, with the settings of steps 2
    # and 3 in place of the given ones.
    started = given.keys() | {"01", "03"} if given else set(PIPELINE)
    of_notebook: dict[str, dict] = {}
    for number in PIPELINE:
        if number in started:
            typed = given.get(number, {})
            of_notebook[number] = {name: typed[name] for name in typed if name not in SETTINGS}
    of_notebook["01"] |= changed_by_01 | recorded_by_01
    of_notebook["03"] |= changed_by_03 | recorded_by_03

    # 6. One command is enough unless two notebooks have different values of a parameter, one of
    # which is then missing among all parameters together.
    together = {}
    for parameters in of_notebook.values():
        together |= parameters
    if all(parameters.items() <= together.items() for parameters in of_notebook.values()):
        return [command_line(facts.name, list(of_notebook), together)]
    return [command_line(facts.name, [number], of_notebook[number]) for number in of_notebook]


def _differing(settings: Preset, start: Preset, number: str) -> dict:
    """Return the parameters of a notebook that change the settings from those at the start.

    A setting of None is left out, because a parameter of None changes nothing.
    """
    changed = {}
    for name in settings_of(number):
        # The settings come from `Facts`, where paths are portable, but the start may be a preset.
        before = portable(getattr(start, name), name)
        now = getattr(settings, name)
        if now is not None and now != before:
            changed[name] = now
    return changed
