"""The two JSON files of a run that every later stage reads, manifest.json and evaluation.json: a
pydantic model each, with what their readers rely on.

Fields that a file may lack have a default; fields that a model does not name are kept as they are.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, RootModel, ValidationError


class _Record(BaseModel):
    # strict: "3" is no number. A default stands for a missing field, so it may be None where null
    # in the file is refused.
    model_config = ConfigDict(strict=True, extra="allow")


class Settings(_Record):
    """A preset as it was recorded; `presets.from_manifest` checks the other fields."""

    name: str
    model: str


class Section(_Record):
    """A section of the manifest, with when it was written; that of the training names its rewards
    and their weights.
    """

    written: AwareDatetime = None
    settings: Settings = None
    rewards: list[str] = []
    weights: list[float] = []


class Manifest(_Record):
    """manifest.json. Every entry but the name is a section."""

    __pydantic_extra__: dict[str, Section] = Field(init=False)

    name: str = ""


class Proportion(_Record):
    """A share of n answers with its 95 % interval."""

    accuracy: float
    ci95: tuple[float, float]
    n: Annotated[int, Field(ge=1)]


class Measured(Proportion):
    """What was measured of one model."""

    greedy: Proportion | None = None
    by_difficulty: dict[str, Proportion] = {}
    pass_at_k: dict[str, dict] = {}
    majority: Proportion = None
    other: Proportion = None
    blind: Proportion = None
    swapped: Proportion = None


MODELS: dict[str, type[BaseModel]] = {
    "manifest.json": Manifest,
    "evaluation.json": RootModel[dict[str, Measured]],
}


def read(path: Path) -> dict:
    """The content of one of these files, or of any other that holds a JSON object.

    ValueError names the first field that does not fit, and why.
    """
    text = path.read_bytes()
    try:
        MODELS.get(path.name, RootModel[dict]).model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    return json.loads(text)
