"""Check what notebook 05 is to export: how the adapter is merged, the GGUF file, and the name on
the hub. No model is loaded for it.

    check_merge(settings.backend, machine, base, merge=merge, gguf=gguf, push_to_hub=push_to_hub)

The commands check the same parameters before the first notebook starts.
"""

import re

import huggingface_hub

from helpers.environment import Machine
from helpers.results import llama_cpp
from helpers.training.base import Base

# The model notebook 05 makes of an adapter: merged into the original weights, merged into the
# unpacked 4-bit weights, or not merged.
MERGES = ("original", "dequantised", "adapter")


def check_merge(
    backend: str,
    machine: Machine,
    base: Base | None = None,
    *,
    merge: str = "original",
    gguf: str | None = None,
    push_to_hub: str | None = None,
) -> None:
    """Raise ValueError if notebook 05 cannot work with these parameters on this machine.

    backend: the library that trained. base: the model the adapter was trained on; None if there is
        no training run yet.
    merge: one of MERGES. gguf: the type of the weights in a GGUF file. push_to_hub: the name of the
        model on the hub.
    """
    # 1. Are the weights known that the adapter is merged into?
    if merge not in MERGES:
        raise ValueError(f"merge={merge!r} is not known. Known: {', '.join(MERGES)}.")
    if base is not None and base.original is None and merge != "dequantised":
        raise ValueError(
            f"merge={merge!r} needs the original weights, but the 16-bit model that {base.name} "
            'was made from is not known: use merge="dequantised".'
        )

    # 2. Who writes the GGUF file? llama.cpp's converter writes some types anywhere, and Unsloth the
    # others on a GPU.
    if gguf in llama_cpp.CONVERTED:
        if merge == "adapter":
            raise ValueError(
                f"gguf={gguf!r} is made from the merged model, but merge='adapter' makes none. "
                "Omit one of them."
            )
        llama_cpp.check_installed()
    elif gguf is not None:
        if base is not None and base.text_only:
            raise ValueError(
                f"gguf={gguf!r}: Unsloth would write the whole of {base.name}, which reads "
                "images; only its language part was trained. Use gguf='f16' or 'q8_0'."
            )
        if machine.gpu is None or backend != "unsloth":
            raise ValueError(
                f"gguf={gguf!r} cannot be written here: only Unsloth quantises in this way, with "
                f"backend='unsloth' (this run: {backend!r}) on a machine with an NVIDIA GPU. "
                "gguf='f16' and 'q8_0' can be written anywhere."
            )

    # 3. Can the model be published?
    if push_to_hub is not None:
        is_hub_name = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(push_to_hub))  # owner/model
        if not is_hub_name or not huggingface_hub.get_token():
            raise ValueError(
                f"push_to_hub={push_to_hub!r}: name it owner/model, and set HF_TOKEN, a token that "
                "may write, in the environment (or log in with `hf auth login`)."
            )
