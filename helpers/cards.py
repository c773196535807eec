"""The NVIDIA cards that CUDA would see, read off nvidia-smi, without torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

_QUERY = [
    "nvidia-smi",
    "--query-gpu=uuid,name,memory.total,compute_cap",
    "--format=csv,noheader,nounits",
]
# in the list that `nvidia-smi -L` prints
_SLICE = re.compile(r"\bMIG \d+g\.(\d+)gb\S*\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Card:
    """A card, or a slice of one: memory in GB (1e9 bytes), CUDA's compute capability such
    as 8.9.
    """

    name: str | None
    memory_gb: float
    capability: float


def visible() -> list[Card]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order.

    It is said where they differ in size, or cannot be read.

    As CUDA has it, an entry is a number, the beginning of a card's UUID, or a MIG slice; from the
    first that is none of these, no card is visible (CUDA C++ Programming Guide, environment
    variables).
    """
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not shutil.which("nvidia-smi") or (asked is not None and asked.strip() in ("", "-1")):
        return []
    try:
        lines = [
            [field.strip() for field in line.split(",")] for line in _said(_QUERY).splitlines()
        ]
        everything = {uuid: (name, mib, capability) for uuid, name, mib, capability in lines}
        slices = _said(["nvidia-smi", "-L"]) if asked and "MIG-" in asked else ""
        found = _chosen(everything, asked, slices)
        chosen = [
            _card(*fields)
            for number, fields in enumerate(found)
            if number == 0 or fields[1].isdigit()
        ]
        if asked is None and not chosen:
            raise ValueError("it lists no card")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(
            f"nvidia-smi is there but could not be read ({error}); going on without a GPU.",
            file=sys.stderr,
        )
        return []
    _tell_of_sizes(chosen)
    return chosen


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def _chosen(everything: dict[str, tuple], asked: str | None, slices: str) -> list[tuple]:
    cards, chosen = list(everything.values()), []
    for entry in (
        [str(number) for number in range(len(cards))] if asked is None else asked.split(",")
    ):
        found = None
        if entry.strip().isdigit():
            found = cards[int(entry)] if int(entry) < len(cards) else None
        elif entry.strip().startswith("MIG-"):
            found = _slice(entry.strip(), slices, everything)
        elif entry.strip().startswith("GPU-"):
            found = next(
                (card for uuid, card in everything.items() if uuid.startswith(entry.strip())), None
            )
        if found is None:
            break
        chosen.append(found)
    return chosen


def _slice(uuid: str, listed: str, everything: dict[str, tuple]) -> tuple | None:
    """A MIG slice, with the memory that its profile's name says, on the card above it in
    the list.
    """
    card = None
    for line in listed.splitlines():
        card = next((fields for whole, fields in everything.items() if whole in line), card)
        if card and (match := _SLICE.search(line)) and match[2].startswith(uuid):
            return f"{card[0]} (a MIG slice)", str(int(match[1]) * 1024), card[2]
    return None


def _card(name: str, mib: str, capability: str) -> Card:
    return Card(name, float(mib) * 2**20 / 1e9, float(capability))


def _tell_of_sizes(cards: list[Card]) -> None:
    """Say which card is looked at, where several of different size are visible."""
    told = [f"{card.name}, {card.memory_gb:.0f} GB" for card in cards]
    if len(set(told)) > 1:
        print(
            f"{len(told)} cards of different size are visible ({'; '.join(told)}): the settings "
            "are chosen for the first, "
            "and CUDA may count them in another order. Name one: CUDA_DEVICE_ORDER=PCI_BUS_ID "
            "CUDA_VISIBLE_DEVICES=0",
            file=sys.stderr,
        )
