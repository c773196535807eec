"""The base of an adapter: which model it was trained on, and which quantisation of that model.

For a hub name in 4 bits Unsloth loads a repository of its own, such as
`unsloth/Qwen3-4B-unsloth-bnb-4bit`, whose quantisation is *dynamic*: it keeps in 16 bits the layers
that suffer most. Quantising the 16-bit repository gives other weights.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from helpers.presets import EMBEDDED, Preset
from helpers.runs import Run
from helpers.training.memory import config_of


@dataclass(frozen=True)
class Base:
    """The model that an adapter was trained on.

    name: a folder or a hub name, as `from_pretrained` takes it. quantised: "before" it was stored,
    "here" while it was loaded, or None for 16 bits. revision: the hub's commit; None if no training
    recorded one.
    """

    name: str
    quantised: str | None
    revision: str | None = None

    @property
    def original(self) -> str | None:
        """The same model in 16 bits, the one that Unsloth's merge takes; None if it is not known.

        As Unsloth's `get_model_name(name, load_in_4bit=False)` has it (models/loader_utils.py); its
        table needs no GPU.
        """
        if self.quantised != "before":
            return self.name
        package = importlib.util.find_spec("unsloth").submodule_search_locations[0]
        tables = runpy.run_path(str(Path(package) / "models" / "mapper.py"))
        known = tables["MAP_TO_UNSLOTH_16bit"] | tables["INT_TO_FLOAT_MAPPER"]
        return known.get(self.name.lower())

    def check(self, model) -> None:
        """ValueError if a model that was loaded as this base is another revision of its repository
        than in the training. A folder has none.
        """
        found = getattr(model.config, "_commit_hash", None)
        if None not in (found, self.revision) and found != self.revision:
            raise ValueError(
                f"{self.name} is not as it was in the training: its revision is {found}, then it "
                f'was {self.revision}. Merge into the original base (merge="original"), or train '
                "again."
            )


def base_of(run: Run, settings: Preset) -> Base:
    """The base of the run's adapter, by what PEFT wrote beside it; FileNotFoundError without an
    adapter.
    """
    written = (run.require("adapter") / "adapter_config.json").read_text(encoding="utf-8")
    recorded = run.manifest.get("training", {}).get("base", {})
    base = _base(json.loads(written)["base_model_name_or_path"], settings)
    return replace(base, revision=recorded.get("revision"))


def describe(model, settings: Preset) -> dict:
    """What the manifest says of the base of a trained PEFT model; see `told`.

    Names are a folder's or the hub's. layers: the linear ones, without the output's.
    """
    base = _base(model.peft_config["default"].base_model_name_or_path, settings)
    embedded = settings.model in EMBEDDED
    linear = [
        layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and "lora_" not in name and not name.endswith("lm_head")
    ]
    return {
        "name": settings.model if embedded else base.name,
        "original": settings.model if embedded else base.original,
        "revision": getattr(model.config, "_commit_hash", None),
        "quantised": base.quantised,
        "layers": len(linear),
        "layers_in_4_bits": sum(
            getattr(layer.weight, "quant_state", None) is not None for layer in linear
        ),
    }


def _base(name: str | None, settings: Preset) -> Base:
    # an embedded model's folder is elsewhere in another checkout
    if settings.model in EMBEDDED or not name:
        name = settings.model_path
    if config_of(name).get("quantization_config"):
        return Base(name, "before")
    return Base(name, "here" if settings.load_in_4bit else None)


def told(base: dict) -> str:
    """The base that `describe` described, in a sentence without its full stop."""
    name = base["name"] + (f" (revision {base['revision'][:12]})" if base["revision"] else "")
    if not base["quantised"]:
        return f"{name}, in 16 bits"
    when = {"before": "stored in 4 bits", "here": "quantised to 4 bits (NF4) when it was loaded"}
    return (
        f"{name}, {when[base['quantised']]}: {base['layers_in_4_bits']} of {base['layers']} linear "
        "layers"
    )
