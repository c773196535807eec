"""The two JSON files of a run that every later stage reads, manifest.json and evaluation.json: a
pydantic model each, with what their readers rely on.

Fields that a model does not name are kept as they are.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError


class Manifest(BaseModel):
    """manifest.json. Every entry but the name is a section."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict] = Field(init=False)

    name: str = ""


class Measured(BaseModel):
    """What was measured of one model: a share of n answers with its 95 % interval."""

    model_config = ConfigDict(strict=True, extra="allow")

    accuracy: float
    ci95: tuple[float, float]
    n: Annotated[int, Field(ge=1)]


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
