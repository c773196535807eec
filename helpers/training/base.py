"""The base of an adapter: which model it was trained on, and which quantisation of that model.

For a hub name in 4 bits Unsloth loads a repository of its own, such as
`unsloth/Qwen3-4B-unsloth-bnb-4bit`, whose quantisation is *dynamic*: it keeps in 16 bits the layers
that suffer most. Quantising the 16-bit repository gives other weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import runpy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from helpers.presets import EMBEDDED, Preset
from helpers.runs import Run
from helpers.training.memory import config_of


@dataclass(frozen=True)
class Base:
    """The model that an adapter was trained on.

    name: a folder or a hub name, as `from_pretrained` takes it. quantised: "before" it was stored,
    "here" while it was loaded, or None for 16 bits. fingerprint: see `quantisation`; revision: the
    hub's commit. None where no training recorded one.
    """

    name: str
    quantised: str | None
    fingerprint: str | None = None
    revision: str | None = None

    @property
    def original(self) -> str | None:
        """The same model in 16 bits; None where it is not known.

        Unsloth's merge takes the same one.
        """
        return _sixteen_bits(self.name) if self.quantised == "before" else self.name

    def check(self, model) -> None:
        """ValueError where a model that was loaded as this base has other 4-bit weights than in the
        training.

        They are compared by their fingerprints. What was quantised while it was loaded may differ
        in a few of its 4-bit codes between a GPU and a CPU; there, and for a run of an earlier
        version, the layout is compared, and the revision.
        """
        if not self.fingerprint:
            return
        found, revision = (
            quantisation(model)["fingerprint"],
            getattr(model.config, "_commit_hash", None),
        )
        device, layout, weights = _parts(self.fingerprint)
        now_device, now_layout, now_weights = _parts(found or "")
        exact = weights and (self.quantised == "before" or device == now_device)
        same = (
            weights == now_weights
            if exact
            else not (revision and self.revision) or revision == self.revision
        )
        if layout != now_layout or not same:
            now, then = (
                f"{weights or 'of 16 bits'}, revision {commit or 'unknown'}"
                for weights, commit in ((found, revision), (self.fingerprint, self.revision))
            )
            raise ValueError(
                f"{self.name} is not as it was in the training (fingerprint {now}; then {then}): "
                "the repository or the folder "
                'has changed. Merge into the original base (merge="original"), or train again.'
            )


def base_of(run: Run, settings: Preset) -> Base:
    """The base of the run's adapter, by what PEFT wrote beside it; FileNotFoundError without an
    adapter.
    """
    config = json.loads(
        (run.require("adapter") / "adapter_config.json").read_text(encoding="utf-8")
    )
    recorded = run.manifest.get("training", {}).get("base", {})
    base = _base(config["base_model_name_or_path"], settings)
    return replace(base, fingerprint=recorded.get("fingerprint"), revision=recorded.get("revision"))


def describe(model, settings: Preset) -> dict:
    """What the manifest says of the base of a trained PEFT model; see `told`.

    Names are a folder's or the hub's.
    """
    base = _base(model.peft_config["default"].base_model_name_or_path, settings)
    names = {"name": base.name, "original": base.original}
    if settings.model in EMBEDDED:
        names = dict.fromkeys(names, settings.model)
    return (
        names
        | {"revision": getattr(model.config, "_commit_hash", None), "quantised": base.quantised}
        | quantisation(model)
    )


def told(base: dict) -> str:
    """The base that `describe` described, in a sentence without its full stop."""
    name = base["name"] + (f" (revision {base['revision'][:12]})" if base["revision"] else "")
    if not base["quantised"]:
        return f"{name}, in 16 bits"
    when = {"before": "stored in 4 bits", "here": "quantised to 4 bits (NF4) when it was loaded"}[
        base["quantised"]
    ]
    return (
        f"{name}, {when}: {base['layers_in_4_bits']} of {base['layers']} linear layers, "
        f"fingerprint {base['fingerprint']}"
    )


def quantisation(model) -> dict:
    """How many of a model's linear layers there are, but for the output's, and how many in 4 bits;
    and a fingerprint of these.

    The fingerprint is `2-<device>-<layout>-<weights>`, or None where all are in 16 bits. The layout
    is a hash of their names, types and block sizes, and was the whole of it in earlier versions.
    The weights are a hash of 4,096 bytes of each layer's 4-bit codes and as many of its blocks'
    scales, evenly spaced: 2.3 MB for a model of 280 layers. That tells another base, or the same
    one trained further; a few changed weights may lie between.
    """
    linear = {
        name.removeprefix("base_model.model.").removesuffix(".base_layer"): layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and "lora_" not in name and not name.endswith("lm_head")
    }
    states = {
        name: layer.weight.quant_state
        for name, layer in linear.items()
        if getattr(layer.weight, "quant_state", None)
    }
    how = [
        f"{name} {state.quant_type} {state.blocksize} {state.nested}"
        for name, state in sorted(states.items())
    ]
    layout, weights = hashlib.sha256("\n".join(how).encode()).hexdigest()[:16], hashlib.sha256()
    for name, state in sorted(states.items()):
        for stored in (linear[name].weight.data, state.absmax):
            weights.update(_sample(stored))
    devices = {linear[name].weight.device.type for name in states}
    fingerprint = (
        f"2-{'+'.join(sorted(devices))}-{layout}-{weights.hexdigest()[:16]}" if states else None
    )
    return {"layers": len(linear), "layers_in_4_bits": len(states), "fingerprint": fingerprint}


def _sample(stored: torch.Tensor, size: int = 4096) -> bytes:
    """The bytes of a tensor's entries; of more than `size` at most that many, evenly spaced and
    with the first.
    """
    whole = stored.detach().flatten()
    return whole[:: -(-len(whole) // size)].contiguous().view(torch.uint8).cpu().numpy().tobytes()


def _parts(fingerprint: str) -> tuple[str | None, str, str | None]:
    """The device, the layout and the weights of a fingerprint; one without a version is the layout
    alone.
    """
    parts = fingerprint.split("-")
    return tuple(parts[1:]) if parts[0] == "2" and len(parts) == 4 else (None, fingerprint, None)


def _base(name: str | None, settings: Preset) -> Base:
    # an embedded model's folder is elsewhere in another checkout
    if settings.model in EMBEDDED or not name:
        name = settings.model_path
    quantised = (
        "before"
        if config_of(name).get("quantization_config")
        else "here"
        if settings.load_in_4bit
        else None
    )
    return Base(name, quantised)


def _sixteen_bits(name: str) -> str | None:
    """As Unsloth's `get_model_name(name, load_in_4bit=False)` has it (models/loader_utils.py); its
    table needs no GPU.
    """
    package = importlib.util.find_spec("unsloth").submodule_search_locations[0]
    tables = runpy.run_path(str(Path(package) / "models" / "mapper.py"))
    known = tables["MAP_TO_UNSLOTH_16bit"] | tables["INT_TO_FLOAT_MAPPER"]
    return known.get(name.lower())
