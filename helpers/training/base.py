"""The base of an adapter: which model it was trained on, and which quantisation of that model.

For a hub name in 4 bits Unsloth loads a repository of its own, such as
`unsloth/Qwen3-4B-unsloth-bnb-4bit`, whose quantisation is *dynamic*: it keeps in 16 bits the layers
that suffer most. Quantising the 16-bit repository gives other weights.
"""

import hashlib
import importlib.util
import json
import runpy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from helpers.presets import EMBEDDED, Preset
from helpers.runs import Run
from helpers.training.memory import config_of

_SAMPLED = 4096  # entries of a layer's codes, and of its scales, in the fingerprint


@dataclass(frozen=True)
class Base:
    """The model that an adapter was trained on.

    name: a folder or a hub name, as `from_pretrained` takes it. quantised: "before" it was stored,
    "here" while it was loaded, or None for 16 bits. fingerprint: see `quantisation`; revision: the
    hub's commit. None if no training recorded one. text_only: only the language part of a model
    that sees was loaded.
    """

    name: str
    quantised: str | None
    fingerprint: str | None = None
    revision: str | None = None
    text_only: bool = False

    @property
    def original(self) -> str | None:
        """Return the name of the same model in 16 bits, into which Unsloth merges; None if it is
        not known.

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
        """ValueError if a model that was loaded as this base has other 4-bit weights than in the
        training.

        They are compared by their fingerprints. What was quantised while it was loaded may differ
        in a few of its 4-bit codes between a GPU and a CPU; there, and for a run of an earlier
        version, whose fingerprint is the layout alone, the layout and the revision are compared.
        """
        if not self.fingerprint:
            return
        found = quantisation(model)["fingerprint"] or ""
        revision = getattr(model.config, "_commit_hash", None)
        device, layout, weights = _parts(self.fingerprint)
        now_device, now_layout, now_weights = _parts(found)
        if weights and (self.quantised == "before" or device == now_device):
            unchanged = weights == now_weights
        else:
            unchanged = None in (revision, self.revision) or revision == self.revision
        if layout != now_layout or not unchanged:
            raise ValueError(
                f"{self.name} is not as it was in the training (fingerprint {found or 'none'}, "
                f"revision {revision}; then {self.fingerprint}, revision {self.revision}): the "
                "repository or the folder has changed, or this engine loads another quantisation. "
                "Take the engine of the training (`engine`), merge into the original base "
                '(merge="original"), or train again.'
            )


def _parts(fingerprint: str) -> list[str]:
    """Return the device, the layout and the weights of a fingerprint; empty where it has none."""
    return fingerprint.split("-")[1:] if "-" in fingerprint else ["", fingerprint, ""]


def base_of(run: Run, settings: Preset) -> Base:
    """Return the base of the run's adapter, by what PEFT wrote beside it; FileNotFoundError without
    an adapter.
    """
    adapter = run.require("adapter")
    written = (adapter / "adapter_config.json").read_text(encoding="utf-8")
    recorded = run.manifest.get("training", {}).get("base", {})
    base = _base(json.loads(written)["base_model_name_or_path"], settings)
    text_only = False
    if "vision_config" in config_of(base.name):
        with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
            text_only = not any("language_model." in name for name in file.keys())  # noqa: SIM118
    return replace(
        base,
        fingerprint=recorded.get("fingerprint"),
        revision=recorded.get("revision"),
        text_only=text_only,
    )


def describe(model, settings: Preset) -> dict:
    """Return what the manifest says of the base of a trained PEFT model; see `told`.

    Names are a folder's or the hub's.
    """
    base = _base(model.peft_config["default"].base_model_name_or_path, settings)
    embedded = settings.model in EMBEDDED
    return {
        "name": settings.model if embedded else base.name,
        "original": settings.model if embedded else base.original,
        "revision": getattr(model.config, "_commit_hash", None),
        "quantised": base.quantised,
    } | quantisation(model)


def _base(name: str | None, settings: Preset) -> Base:
    # an embedded model's folder is elsewhere in another checkout
    if settings.model in EMBEDDED or not name:
        name = settings.model_path
    if config_of(name).get("quantization_config"):
        return Base(name, "before")
    return Base(name, "here" if settings.load_in_4bit else None)


def told(base: dict) -> str:
    """Return the base that `describe` described as a sentence without its full stop."""
    name = base["name"] + (f" (revision {base['revision'][:12]})" if base["revision"] else "")
    if not base["quantised"]:
        return f"{name}, in 16 bits"
    when = {"before": "stored in 4 bits", "here": "quantised to 4 bits (NF4) when it was loaded"}
    return (
        f"{name}, {when[base['quantised']]}: {base['layers_in_4_bits']} of {base['layers']} linear "
        f"layers, fingerprint {base['fingerprint']}"
    )


def quantisation(model) -> dict:
    """Return how many linear layers a model has, without the output's, how many of them are in
    4 bits, and a fingerprint of these.

    The fingerprint is `2-<device>-<layout>-<weights>`, or None if all are in 16 bits. The layout
    is a hash of their names, types and block sizes; in earlier versions it was the whole
    fingerprint. The weights are a hash of 4,096 bytes of each layer's 4-bit codes and as many of
    its blocks' scales, evenly spaced: 2.3 MB for a model of 280 layers. That tells another base, or
    the same one trained further; a few changed weights may lie between.
    """
    linear = {
        name.removeprefix("base_model.model.").removesuffix(".base_layer"): layer.weight
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and "lora_" not in name and not name.endswith("lm_head")
    }
    in_4_bits = {
        name: linear[name] for name in sorted(linear) if getattr(linear[name], "quant_state", None)
    }
    layout = hashlib.sha256()
    weights = hashlib.sha256()
    for number, (name, weight) in enumerate(in_4_bits.items()):
        state = weight.quant_state
        line = f"{name} {state.quant_type} {state.blocksize} {state.nested}"
        layout.update(f"\n{line}".encode() if number else line.encode())
        for stored in (weight.data, state.absmax):
            whole = stored.detach().flatten()
            some = whole[:: -(-len(whole) // _SAMPLED)].contiguous()
            weights.update(some.view(torch.uint8).cpu().numpy().tobytes())
    devices = "+".join(sorted({weight.device.type for weight in in_4_bits.values()}))
    fingerprint = f"2-{devices}-{layout.hexdigest()[:16]}-{weights.hexdigest()[:16]}"
    return {
        "layers": len(linear),
        "layers_in_4_bits": len(in_4_bits),
        "fingerprint": fingerprint if in_4_bits else None,
    }
