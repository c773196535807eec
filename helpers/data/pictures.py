"""Pictures: a seeded generator of small ones with questions, and the files of a user's own.

`picture_row` draws colored shapes on a grid of two by two, with one of three kinds of question:

    left    Which shape is left of the blue one?   four equally frequent answers
    color   Which color is the circle?             four equally frequent answers
    count   How many red ones are there?           1 in seven of ten pictures

The counts are unbalanced on purpose: a policy that never looks is correct seven times in ten.
`prepare_picture` reads a user's own picture.
"""

import hashlib
import io
import math
import random
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageOps
from PIL.ExifTags import Base as Exif

from helpers.data.files import Dropped

GRID = 2  # cells per side
CELL = 16  # pixels per side of a cell
COLORS = {
    "red": (214, 39, 40),
    "green": (34, 139, 34),
    "blue": (31, 80, 200),
    "yellow": (240, 190, 0),
}
SHAPES = ("circle", "square", "triangle", "cross")
KINDS = {"left": 4, "color": 4, "count": 1}  # how often each kind of question is asked
COUNTS = {"1": 0.7, "2": 0.2, "3": 0.1}  # how often each count is the answer
GREY = (128, 128, 128)  # replaces a picture, to see what a policy answers without looking


def picture_problem(rng: random.Random, kind: str) -> dict:
    """Return a random scene and a question of this kind about it.

    The keys are `question`, `answer`, `kind`, and

    scene: the color and shape of each cell that is not empty, by (row, column) from 0.
    named: the color or shape that the question names.
    asked: the cells with this color or shape.

    For example, with a red circle left of a blue square in the top row, the question is "Which
    shape is left of the blue one?", the answer "circle", `named` "blue" and `asked` [(0, 1)].
    """
    color = rng.choice(list(COLORS))
    shape = rng.choice(SHAPES)
    cells = [(row, column) for row in range(GRID) for column in range(GRID)]
    rng.shuffle(cells)
    named = shape if kind == "color" else color
    other_colors = [other for other in COLORS if other != named]
    other_shapes = [other for other in SHAPES if other != named]

    # 1. the question, its answer, and the cells that decide it
    if kind == "left":
        question = f"Which shape is left of the {color} one?"
        answer = shape
        row, column = next(cell for cell in cells if cell[1] > 0)
        asked = [(row, column)]
        scene = {(row, column): (color, rng.choice(SHAPES))}
        scene[row, column - 1] = (rng.choice(other_colors), shape)
    elif kind == "color":
        question = f"Which color is the {shape}?"
        answer = color
        asked = cells[:1]
        scene = {cells[0]: (color, shape)}
    else:
        question = f"How many {color} ones are there?"
        answer = rng.choices(list(COUNTS), COUNTS.values())[0]
        asked = cells[: int(answer)]
        scene = {cell: (color, rng.choice(SHAPES)) for cell in asked}

    # 2. one or two more cells, if there is room; they do not have the color or shape that is named
    free = [cell for cell in cells if cell not in scene]
    for cell in free[: rng.randint(1, 2)]:
        scene[cell] = (rng.choice(other_colors), rng.choice(other_shapes))
    return {
        "question": question,
        "answer": answer,
        "kind": kind,
        "named": named,
        "scene": scene,
        "asked": asked,
    }


def draw_scene(scene: dict[tuple[int, int], tuple[str, str]]) -> Image.Image:
    """Return the picture of a scene, 32 pixels wide and high."""
    picture = Image.new("RGB", (GRID * CELL, GRID * CELL), "white")
    pen = ImageDraw.Draw(picture)
    for (row, column), (color, shape) in scene.items():
        left = CELL * column + 1
        top = CELL * row + 1
        right = left + CELL - 3
        bottom = top + CELL - 3
        third = CELL // 3
        fill = COLORS[color]
        if shape == "circle":
            pen.ellipse((left, top, right, bottom), fill=fill)
        elif shape == "square":
            pen.rectangle((left, top, right, bottom), fill=fill)
        elif shape == "triangle":
            pen.polygon([(left, bottom), ((left + right) / 2, top), (right, bottom)], fill=fill)
        else:
            pen.rectangle((left + third, top, right - third, bottom), fill=fill)
            pen.rectangle((left, top + third, right, bottom - third), fill=fill)
    return picture


def picture_row(rng: random.Random) -> dict:
    """Return a random picture with a question about it, as a row of a source.

    `family` is the kind of question, `image` the bytes of a PNG file. `split` is "holdout" for a
    tenth of all pictures, as in `arithmetic`.
    """
    problem = picture_problem(rng, rng.choices(list(KINDS), KINDS.values())[0])
    picture = draw_scene(problem["scene"])
    file = io.BytesIO()
    picture.save(file, "PNG")
    return {
        "question": problem["question"],
        "answer": problem["answer"],
        "family": problem["kind"],
        "image": file.getvalue(),
        "split": "holdout" if is_reserved(picture) else "train",
    }


def is_reserved(picture: Image.Image) -> bool:
    """Return whether a picture belongs to the tenth that is never trained on.

    The hash of its pixels decides, so that a picture is on the same side in every run.
    """
    # 26 of the 256 values of a byte, about a tenth
    return hashlib.sha256(picture.tobytes()).digest()[0] < 26


def open_picture(image: bytes | str) -> Image.Image:
    """Return the picture of a file, in RGB. image: the bytes of the file, or its path."""
    return as_rgb(Image.open(io.BytesIO(image) if isinstance(image, bytes) else image))


def as_rgb(picture: Image.Image) -> Image.Image:
    """Return a picture in RGB, upright, with a white background where it is transparent.

    Raise ValueError if it has more than 8 bits per color, because Pillow would clip the values.
    """
    if picture.mode.startswith(("I", "F")):  # Pillow's modes with more than 8 bits per color
        raise ValueError(f"it has more than 8 bits per color, mode {picture.mode}")
    picture = ImageOps.exif_transpose(picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


class Prepared(NamedTuple):
    """The file of a picture, the SHA-256 of its pixels, and whether it was scaled down."""

    file: bytes
    pixel_hash: bytes
    was_scaled_down: bool


def prepare_picture(image: object, folder: Path, max_pixels: int) -> Prepared:
    """Return a user's picture as it is trained with: upright, in RGB, and with at most max_pixels.
    If the user's file needs no change, it is kept as it is.

    image: the bytes of a file, a path relative to the folder, or {"bytes": …, "path": …} as in
        datasets.Image. Raise Dropped if it is not a picture.
    """
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if not image or image != image:  # NaN differs from itself
        raise Dropped("image is blank", 'Is this its column? Name another: columns={"image": "…"}.')
    try:
        file = image if isinstance(image, bytes) else (folder / image).read_bytes()
        with Image.open(io.BytesIO(file)) as stored:
            changed = stored.mode != "RGB" or stored.getexif().get(Exif.Orientation, 1) != 1
            file_format = "JPEG" if stored.format in ("JPEG", "MPO") else "PNG"
            picture = as_rgb(stored)
    except Exception as error:  # Pillow's decoders raise many kinds of errors
        raise Dropped(
            f"image cannot be opened ({type(error).__name__})",
            "Paths of images are relative to the folder of the file.",
        ) from None
    scale = math.sqrt(max_pixels / (picture.width * picture.height))
    if scale < 1:
        picture = picture.resize([max(1, int(side * scale)) for side in picture.size])
    if scale < 1 or changed:
        buffer = io.BytesIO()
        picture.save(buffer, file_format, quality=95)
        file = buffer.getvalue()
    pixel_hash = hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).digest()
    return Prepared(file, pixel_hash, was_scaled_down=scale < 1)
