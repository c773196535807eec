"""Pictures: small ones with questions about them, drawn by a seeded generator, and people's own.

The generator draws coloured shapes on a grid of two by two.

Three kinds of question. `left` (which shape is left of the blue one?) and `color` (which color is
the circle?) have four equally frequent answers. `count` (how many red ones are there?) is
unbalanced on purpose: seven answers in ten are 1, so a policy that never looks is right that often.
"""

import hashlib
import io
import math
import random
from pathlib import Path

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
GREY = (128, 128, 128)  # what a blind policy sees


def picture_problem(rng: random.Random, kind: str) -> dict:
    """Return a picture, a question of this kind and its answer.

    Returned: `question`, `answer`, `kind`, `scene`, which is a color and a shape by row and column
    from 0, `named`, the color or shape in the question, and `asked`, the cells where it is.
    """
    color = rng.choice(list(COLORS))
    shape = rng.choice(SHAPES)
    colors = [c for c in COLORS if c != color]
    shapes = [s for s in SHAPES if s != shape]
    cells = [(row, column) for row in range(GRID) for column in range(GRID)]
    rng.shuffle(cells)
    if kind == "left":
        question = f"Which shape is left of the {color} one?"
        answer = shape
        row, column = next(cell for cell in cells if cell[1])
        scene = {(row, column): (color, rng.choice(SHAPES))}
        scene[row, column - 1] = (rng.choice(colors), shape)
        asked = [(row, column)]
        others = (colors, SHAPES)
    elif kind == "color":
        question = f"Which color is the {shape}?"
        answer = color
        scene = {cells[0]: (color, shape)}
        asked = cells[:1]
        others = (list(COLORS), shapes)
    else:
        answer = rng.choices(list(COUNTS), COUNTS.values())[0]
        question = f"How many {color} ones are there?"
        asked = cells[: int(answer)]
        others = (colors, SHAPES)
        scene = {cell: (color, rng.choice(SHAPES)) for cell in asked}
    free = [cell for cell in cells if cell not in scene]
    for cell in free[: rng.randint(1, 2)]:
        scene[cell] = (rng.choice(others[0]), rng.choice(others[1]))
    return {
        "question": question,
        "answer": answer,
        "kind": kind,
        "named": shape if kind == "color" else color,
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
    """Return a random picture with a question: `question`, `answer`, `family` (the kind of
    question), `image` (a PNG file's bytes) and `split`.

    A tenth of all pictures is reserved for the holdout, as in `arithmetic`.
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
    """Return whether a picture belongs to the tenth that no training sees."""
    return hashlib.sha256(picture.tobytes()).digest()[0] < 26


def open_picture(image: bytes | str) -> Image.Image:
    """Return a picture: the bytes of its file, as in a row's column `image`, or its path."""
    return as_rgb(Image.open(io.BytesIO(image) if isinstance(image, bytes) else image))


def as_rgb(picture: Image.Image) -> Image.Image:
    """Return a picture as a person sees it, in RGB: upright, and what is transparent on white.

    ValueError for more than 8 bits per colour, which Pillow would cut off.
    """
    if picture.mode.startswith(("I", "F")):  # Pillow's modes with more than 8 bits per colour
        raise ValueError(f"it has more than 8 bits per colour, mode {picture.mode}")
    picture = ImageOps.exif_transpose(picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def prepare_picture(image: object, folder: Path, max_pixels: int) -> tuple[bytes, bytes, bool]:
    """Return the file of a row's picture, upright and of at most max_pixels; a digest of what is
    seen in it; and whether it was made smaller.

    image: a path relative to the folder, the bytes of a file, or both as datasets.Image has them.
        Dropped if it is no picture.
    """
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if not image or image != image:  # or is NaN
        raise Dropped(
            "picture is blank", 'Is this its column? Name another: columns={"image": "…"}.'
        )
    try:
        file = image if isinstance(image, bytes) else (folder / image).read_bytes()
        with Image.open(io.BytesIO(file)) as stored:
            changed = stored.mode != "RGB" or stored.getexif().get(Exif.Orientation, 1) != 1
            file_format = "JPEG" if stored.format in ("JPEG", "MPO") else "PNG"
            picture = as_rgb(stored)
    except Exception as error:  # whatever the bytes provoke in one of Pillow's decoders
        raise Dropped(
            f"picture cannot be opened ({type(error).__name__})",
            "Paths of pictures are relative to the folder of the file.",
        ) from None
    ratio = math.sqrt(max_pixels / (picture.width * picture.height))
    if ratio < 1:
        picture = picture.resize([max(1, int(side * ratio)) for side in picture.size])
    if ratio < 1 or changed:
        buffer = io.BytesIO()
        picture.save(buffer, file_format, quality=95)
        file = buffer.getvalue()
    pixels = hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).digest()
    return file, pixels, ratio < 1
