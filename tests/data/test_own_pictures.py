"""A user's own pictures: how they are read, which are dropped, and how they are split."""

import io
import json
import random
from functools import partial
from pathlib import Path

import datasets
import pandas as pd
import pytest
from PIL import Image

from helpers.data.pictures import open_picture
from helpers.data.tasks import load_task

COLUMNS = {"question": "asked", "image": "photo"}


def noise(seed: int, size=(6, 4)) -> Image.Image:
    return Image.frombytes("RGB", size, random.Random(seed).randbytes(3 * size[0] * size[1]))


def file_of(picture: Image.Image, format="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def rows_of(photos: list, asked="What is in picture {}?") -> pd.DataFrame:
    """Return a table with a question about each picture, whose answer is the picture's number."""
    questions = [asked.format(n) for n in range(len(photos))]
    return pd.DataFrame({"asked": questions, "answer": range(len(photos)), "photo": photos})


@pytest.fixture
def load(tmp_path):
    """Return a function that calls load_task on a Parquet file of these pictures."""

    def load_rows(photos: list, asked="What is in picture {}?", **arguments):
        rows_of(photos, asked).to_parquet(tmp_path / "rows.parquet")
        arguments = {"holdout_size": 1} | arguments
        return load_task(str(tmp_path / "rows.parquet"), columns=COLUMNS, **arguments)

    return load_rows


def both(task) -> pd.DataFrame:
    return pd.concat([task.train, task.holdout])


def seen(table: pd.DataFrame) -> list[bytes]:
    return [open_picture(image).tobytes() for image in table["image"]]


def write_csv(rows: pd.DataFrame, folder: Path) -> Path:
    rows.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def write_folder(rows: pd.DataFrame, folder: Path) -> Path:
    """Write metadata.csv beside the pictures: a folder that `datasets` reads as an ImageFolder."""
    rows.rename(columns={"photo": "file_name"}).to_csv(folder / "metadata.csv", index=False)
    return folder


def write_parquet(rows: pd.DataFrame, folder: Path, is_feature=False) -> Path:
    stored = datasets.Dataset.from_pandas(
        rows.assign(photo=[(folder / name).read_bytes() for name in rows["photo"]])
    )
    if is_feature:
        stored = stored.cast_column("photo", datasets.Image())
    stored.to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize(
    ("write", "column"),
    [
        (write_csv, "photo"),
        (write_folder, "image"),
        (write_parquet, "photo"),
        (partial(write_parquet, is_feature=True), "photo"),
    ],
    ids=["paths", "folder of pictures", "bytes", "Image feature"],
)
def test_pictures_are_read_from_paths_folders_and_bytes(tmp_path, monkeypatch, write, column):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for n in range(5):
        noise(n).save(tmp_path / f"{n}.png")
    source = write(rows_of([f"{n}.png" for n in range(5)]), tmp_path)
    task = load_task(str(source), columns=COLUMNS | {"image": column}, holdout_size=2)
    assert len(task.holdout) == 2
    found = dict(zip(both(task)["answer"], seen(both(task)), strict=True))
    assert found == {str(n): noise(n).tobytes() for n in range(5)}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (file_of(noise(1))[:-30], "cannot be opened (OSError)"),
        (file_of(noise(1), "JPEG")[:300], "cannot be opened (OSError)"),
        (b"%PDF-1.7", "cannot be opened (UnidentifiedImageError)"),
        (b"", "cannot be opened (UnidentifiedImageError)"),
        ("gone.png", "cannot be opened (FileNotFoundError)"),
        ("a\0b.png", "cannot be opened (ValueError)"),
        (".", "cannot be opened (IsADirectoryError)"),
        (None, "is blank"),
        (float("nan"), "is blank"),
        (7, "cannot be opened (TypeError)"),
        (file_of(Image.new("I;16", (4, 4))), "cannot be opened (ValueError)"),
    ],
)
def test_a_broken_picture_is_dropped_and_named_with_its_row(tmp_path, bad, reason):
    for n in range(4):
        noise(n).save(tmp_path / f"{n}.png")
    rows = [{"question": f"q{n}", "answer": "1", "image": f"{n}.png"} for n in range(4)]
    if isinstance(bad, bytes):
        (tmp_path / "2.png").write_bytes(bad)
    else:
        rows[2]["image"] = bad
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = load_task(str(tmp_path / "a.jsonl"), columns={"image": "image"}, holdout_size=1)
    name = f" ({rows[2]['image']})" if isinstance(rows[2]["image"], str) else ""
    examples = {f"picture {reason}": [f"row 3{name}: 'q2' -> '1'"]}
    assert task.report["dropped_examples"] == examples and len(both(task)) == 3


def test_a_transparent_background_becomes_white():
    logo = Image.new("RGBA", (2, 1))
    logo.putpixel((1, 0), (255, 0, 0, 255))
    assert list(open_picture(file_of(logo)).getdata()) == [(255, 255, 255), (255, 0, 0)]


def test_the_same_question_about_the_same_pixels_is_a_duplicate_in_any_file_format(load):
    same = [file_of(noise(1)), file_of(noise(1), "BMP"), file_of(noise(1).convert("RGBA"))]
    task = load([*same, file_of(noise(2)), file_of(noise(1, (4, 6)))], "How many?")
    assert task.report["dropped"] == {"question with two answers": 3}


def test_a_picture_over_the_limit_is_made_smaller_in_its_proportions_and_counted(load):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: the photo is stored on its side
    photos = [file_of(noise(1, (40, 20))), file_of(noise(2, (40, 20)), "JPEG")]
    photos += [file_of(noise(3, (20, 10))), file_of(noise(4, (12, 4)), "JPEG", exif=exif)]
    task = load(photos, max_pixels=200)
    found = dict(zip(both(task)["answer"], both(task)["image"], strict=True))
    files = {answer: Image.open(io.BytesIO(image)) for answer, image in found.items()}
    sizes = {"0": (20, 10), "1": (20, 10), "2": (20, 10), "3": (4, 12)}
    assert {answer: file.size for answer, file in files.items()} == sizes
    assert found["2"] == photos[2] and [files[n].format for n in "01"] == ["PNG", "JPEG"]
    assert task.line.endswith("2 × a picture made smaller (max_pixels)")


@pytest.mark.parametrize("held_out", [9, 10, 11])
def test_no_picture_is_on_both_sides_and_the_sizes_are_those_asked_for(load, held_out):
    """Three questions about each of 40 pictures, each with the picture in another file format."""
    photos = [file_of(noise(n // 3), ("PNG", "BMP", "TIFF")[n % 3]) for n in range(120)]
    task = load(photos, train_size=100, holdout_size=held_out)
    assert (len(task.train), len(task.holdout)) == (100, held_out)
    assert not set(seen(task.train)) & set(seen(task.holdout))
    assert task.report["dropped"].get("picture is also held out", 0) == -held_out % 3


def test_a_picture_in_a_sources_test_split_is_not_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    for split, numbers in (("train", range(6)), ("test", range(4, 8))):
        rows = rows_of([file_of(noise(n)) for n in numbers], split + " {}?")
        rows.to_parquet(tmp_path / "data" / f"{split}.parquet")
    task = load_task(str(tmp_path / "data"), columns=COLUMNS)
    assert sorted(task.train["question"]) == [f"train {n}?" for n in range(4)]
    assert len(task.holdout) == 4
    assert task.report["dropped"] == {"picture is also held out": 2}
