"""What an adapter was trained on: its base, that is, the model and the model's quantisation.

An adapter is only correct on the exact weights it was trained on. For a hub name in 4 bits, Unsloth
loads another repository, such as `unsloth/Qwen3-4B-unsloth-bnb-4bit`. Its *dynamic* quantisation
keeps the most sensitive layers in 16 bits, so its weights differ from those that quantising the
16-bit repository gives.

The second part writes the base into the manifest, and puts into words what the manifest records of
a training.
"""

import hashlib
import importlib.util
import json
import runpy
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import safe_open

from helpers.families import config_of
from helpers.rewards.controls import CONTROLS
from helpers.runs import Run
from helpers.settings import NAMED, Preset


@dataclass(frozen=True)
class Base:
    """The model that an adapter was trained on.

    name: a folder or a hub name, for `from_pretrained`.
    quantised: "before" if the weights are stored in 4 bits, "here" if they are quantised while
        loading, None if they stay in 16 bits.
    revision: the hub's commit, or a hash of the folder's weights; None if it was not recorded.
    text_only: whether only the language part of a vision model was loaded.
    """

    name: str
    quantised: str | None
    revision: str | None = None
    text_only: bool = False

    @property
    def original(self) -> str | None:
        """Return the name of the same model in 16 bits, into which Unsloth merges; None if unknown.

        The names are Unsloth's: `get_model_name(name, load_in_4bit=False)` of
        models/loader_utils.py reads the same table.
        """
        if self.quantised != "before":
            return self.name
        # the file of the table is run alone, because importing Unsloth may need a GPU
        package = importlib.util.find_spec("unsloth").submodule_search_locations[0]
        tables = runpy.run_path(str(Path(package) / "models" / "mapper.py"))
        known = tables["MAP_TO_UNSLOTH_16bit"] | tables["INT_TO_FLOAT_MAPPER"]
        return known.get(self.name.lower())

    def check(self, model) -> None:
        """Raise ValueError if a loaded model is not of the revision recorded in training."""
        revision = revision_of(model, self.name)
        if None not in (revision, self.revision) and revision != self.revision:
            raise ValueError(
                f"{self.name} has changed since training (revision {revision}; then "
                f"{self.revision}): the repository or the folder has changed, or this engine loads "
                "another quantisation. Use the engine used in training (`engine`), merge into the "
                'original base (merge="original"), or train again.'
            )


def base_of(run: Run, settings: Preset) -> Base:
    """Return the base of the run's adapter, as PEFT recorded it beside the adapter.
    Raise FileNotFoundError if the run has no adapter.
    """
    adapter = run.require("adapter")
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    base = _base_named(config["base_model_name_or_path"], settings)
    recorded = run.manifest.get("training", {}).get("base", {})
    text_only = False
    if "vision_config" in config_of(base.name):
        # in the whole model, the weights of the language part have this in their names
        with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
            text_only = not any("language_model." in name for name in file.keys())  # noqa: SIM118
    return replace(base, revision=recorded.get("revision"), text_only=text_only)


def _base_named(name: str | None, settings: Preset) -> Base:
    """Return the base that PEFT recorded under this name, if it recorded any. A model that is
    stored by name is found by its setting instead, because its folder differs between machines.
    """
    if settings.model in NAMED or not name:
        name = settings.model_path
    if config_of(name).get("quantization_config"):
        return Base(name, "before")
    return Base(name, "here" if settings.load_in_4bit else None)


def revision_of(model, name: str) -> str | None:
    """Return the hub's commit that a model was loaded from, or a hash of the weights in its folder.
    None if the commit is unknown.
    """
    if not Path(name).is_dir():
        return getattr(model.config, "_commit_hash", None)
    weights = hashlib.sha256()
    for path in sorted(Path(name).glob("*.safetensors")):
        with path.open("rb") as file:
            weights.update(hashlib.file_digest(file, "sha256").digest())
    return weights.hexdigest()[:40]  # as long as a commit


# --- In the manifest ------------------------------------------------------------------------------


def base_record(model, settings: Preset) -> dict:
    """Return the base of a trained PEFT model as the manifest records it; see `base_in_words`."""
    base = _base_named(model.peft_config["default"].base_model_name_or_path, settings)
    revision = revision_of(model, base.name)
    if settings.model in NAMED:  # its folder is of this machine
        base = replace(base, name=settings.model)
    return {
        "name": base.name,
        "original": base.original,
        "revision": revision,
        "quantised": base.quantised,
    }


def base_in_words(base: dict) -> str:
    """Return the record of `base_record` as a sentence without a full stop."""
    revision = f" (revision {base['revision'][:12]})" if base["revision"] else ""
    bits = {
        "before": "stored in 4 bits",
        "here": "quantised to 4 bits (NF4) when it was loaded",
        None: "in 16 bits",
    }
    return f"{base['name']}{revision}, {bits[base['quantised']]}"


def training_in_words(training: dict) -> list[str]:
    """Return what a reader must know of a training run before its numbers, from the manifest's
    section: that it is a control, and that it began with a warm start. One sentence each.
    """
    sentences = []
    if control := training.get("control"):
        sentences.append(
            f"A control, {control}: the policy was trained on {CONTROLS[control]}, so any gain is "
            "not an effect of the rewards."
        )
    if first := training.get("warm_start"):
        steps = training.get("earlier_steps", 0) + training.get("steps", 0)
        sentences.append(
            f"Two stages: a warm start on {first['examples']} worked examples ({first['epochs']} "
            f"epochs of supervised training), then {steps} steps of GRPO."
        )
    return sentences
