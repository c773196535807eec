"""How every notebook begins: with its run folder, this machine, the settings and the tags."""

from helpers.environment import Machine, quiet, this_machine
from helpers.runs import Run
from helpers.settings import SETTINGS, Preset, settings_of
from helpers.settling import settings_in, settle
from helpers.tags import TagFormat


def open_run(
    parameters: dict,
    notebook: str,
    start: str | None = None,
    *,
    makes: bool = True,
    loads: bool = True,
    small: dict | None = None,
    sees: bool = False,
    **changes,
) -> tuple[Run, Machine, Preset, TagFormat]:
    """Return what every notebook needs: its run folder, this machine, the settings and the tags.
    Raise ValueError if the settings cannot run, and FileNotFoundError if an earlier notebook has to
    run first.

    parameters: the notebook's `globals()`. `run` names the folder, and parameters that are named
        like a setting change it.
    notebook: its number.
    start: where the settings start: a preset, or "data" or "training", which the run has recorded.
        A measurement of a training samples with the engine of its data.
    makes: whether the notebook makes data or a training; see `Run.made_by`.
    loads: whether it loads a model here, so that this machine's limits matter.
    small, sees, changes: as for `settle`; the changes win over the parameters.
    """
    quiet()
    run = Run(parameters["run"])
    if makes:
        run.made_by(notebook)

    # 1. Which settings do the parameters change? Globals may have other values later: when 03 opens
    # its run again, `model` is the policy. So only the parameters of 03 itself are read.
    changes = settings_in(parameters, settings_of("03") if notebook == "03" else SETTINGS) | changes

    # 2. Where do the settings start? What the run has recorded also decides the tags.
    tags = parameters.get("tags") or "think/answer"
    if start in ("data", "training"):
        recorded = run.section(start)["settings"]
        prepared = run.section("data")
        tags = prepared["tags"]
        # The data's engine may be vLLM, which the backend Transformers does not have.
        if start == "training" and recorded.get("backend") != "transformers":
            changes.setdefault("engine", prepared["settings"].get("engine"))
        start = recorded

    # 3. Settle the settings.
    machine = this_machine()
    settings = settle(start, machine if loads else None, small=small, sees=sees, **changes)
    return run, machine, settings, TagFormat.parse(tags)
