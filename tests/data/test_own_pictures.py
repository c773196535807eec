"""Pictures of one's own beside the questions: how they are read, which are dropped, and how they
are split.
"""

import io
import json
import random

import datasets
import pandas as pd
import pytest
from PIL import Image

from helpers.data.pictures import opened
from helpers.data.tasks import load_task
from helpers.presets import PRESETS

COLUMNS = {"question": "asked", "image": "photo"}


def noise(seed: int, size=(6, 4)) -> Image.Image:
    return Image.frombytes("RGB", size, random.Random(seed).randbytes(3 * size[0] * size[1]))


def file_of(picture: Image.Image, format="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


@pytest.fixture
def load(tmp_path):
    """load_task on rows with these pictures: a question about each, its number the answer."""

    def load_rows(photos: list, asked=lambda n: f"What is in picture {n}?", **arguments):
        rows = [
            {"asked": asked(n), "answer": str(n), "photo": photo} for n, photo in enumerate(photos)
        ]
        path = tmp_path / "rows.parquet"
        datasets.Dataset.from_list(rows).to_parquet(path)
        return load_task(str(path), columns=COLUMNS, **{"holdout_size": 1} | arguments)

    return load_rows


def both(task) -> pd.DataFrame:
    return pd.concat([task.train, task.holdout])


def seen(table: pd.DataFrame) -> list[bytes]:
    return [opened(image).tobytes() for image in table["image"]]


# --- Read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", ["csv", "jsonl", "bytes", "Image feature", "folder", "image folder", "csv in a folder"]
)
def test_a_picture_is_read_as_people_have_it(tmp_path, monkeypatch, way):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    names, source, columns = [f"{n}.png" for n in range(5)], tmp_path / "data", COLUMNS
    for n, name in enumerate(names):
        noise(n).save(source / name)
    rows = pd.DataFrame({"asked": [f"What is in picture {n}?" for n in range(5)]})
    rows["answer"] = range(5)
    if way in ("csv", "csv in a folder"):
        rows.assign(photo=names).to_csv(source / "train.csv", index=False)
        source = source / "train.csv" if way == "csv" else source
    elif way == "jsonl":
        rows.assign(photo=names).to_json(source / "a.jsonl", orient="records", lines=True)
        source /= "a.jsonl"
    elif way == "bytes":
        stored = [(source / name).read_bytes() for name in names]
        rows.assign(photo=stored).to_parquet(source / "a.parquet")
        source /= "a.parquet"
    elif way == "image folder":
        rows.assign(file_name=names).to_csv(source / "metadata.csv", index=False)
        columns = COLUMNS | {"image": "image"}
    else:
        read = datasets.Dataset.from_pandas(rows.assign(photo=[str(source / n) for n in names]))
        read = read.cast_column("photo", datasets.Image())
        source = tmp_path / "stored"
        source.mkdir()
        read.to_parquet(source / "train.parquet")
        source = source / "train.parquet" if way == "Image feature" else source
    if way == "csv in a folder":  # datasets would take it for a folder of pictures
        (source / "README.md").write_text(
            "---\nconfigs:\n- config_name: a\n  data_files: train.csv\n---\n"
        )
    task = load_task(str(source), columns=columns, holdout_size=2)
    found = dict(zip(both(task)["answer"], seen(both(task)), strict=True))
    assert found == {str(n): noise(n).tobytes() for n in range(5)}
    assert task.report["pictures"] == {"distinct": 5, "repeated": 0, "made_smaller": 0}
    assert len(task.holdout) == 2 and "pixels" not in task.train


# --- What is dropped ------------------------------------------------------------------------------

GOOD = file_of(noise(1))


@pytest.mark.parametrize(
    ("bad", "reason", "named"),
    [
        (GOOD[:-30], "picture cannot be opened by Pillow", "row 3:"),
        (file_of(noise(1), "JPEG")[:300], "picture cannot be opened by Pillow", "row 3:"),
        (b"%PDF-1.7", "picture cannot be opened by Pillow", "row 3:"),
        (b"", "picture is blank", "row 3:"),
        (None, "picture is blank", "row 3:"),
        ("gone.png", "picture cannot be read from its path", "row 3 (gone.png):"),
        ("a\0b.png", "picture cannot be read from its path", "row 3 (a\0b.png):"),
        (".", "picture cannot be read from its path", "row 3 (.):"),
        (7, "picture is a int, not a path or bytes", "row 3:"),
        (["a.png"], "picture is a list, not a path or bytes", "row 3:"),
    ],
)
def test_a_broken_picture_is_dropped_and_named_with_its_row(tmp_path, bad, reason, named):
    photos = [{"bytes": file_of(noise(n)), "path": None} for n in range(4)]
    rows = [{"question": f"q{n}", "answer": "1", "image": one} for n, one in enumerate(photos)]
    if isinstance(bad, str | int | list):  # one type a column: paths for all
        for n, row in enumerate(rows):
            noise(n).save(tmp_path / f"{n}.png")
            row["image"] = f"{n}.png"
        path = tmp_path / "a.jsonl"
        rows[2]["image"] = bad
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        rows[2]["image"] = {"bytes": bad, "path": None}
        path = tmp_path / "a.parquet"
        pd.DataFrame(rows).to_parquet(path)
    task = load_task(str(path), columns={"image": "image"}, holdout_size=1)
    assert task.report["dropped"] == {reason: 1} and len(both(task)) == 3
    assert task.report["dropped_examples"][reason] == [f"{named} 'q2' -> '1'"]


def test_without_a_column_of_pictures_a_column_named_image_is_any_column(load, tmp_path):
    (tmp_path / "a.csv").write_text("question,answer,image\na,1,gone.png\nb,2,gone.png\n")
    task = load_task(str(tmp_path / "a.csv"), holdout_size=1)
    assert "image" not in task.train and list(task.train["source_image"]) == ["gone.png"]
    assert "pictures" not in task.report


def test_the_same_question_about_the_same_pixels_is_a_duplicate_in_any_file_format(load):
    same = [file_of(noise(1)), file_of(noise(1), "BMP"), file_of(noise(1).convert("RGBA"))]
    other = [file_of(noise(2)), file_of(noise(1, (4, 6)))]
    task = load([*same, *other], lambda n: "How many?", train_size=1)
    assert task.report["dropped"] == {"question with two answers": 3}
    task = load([*same, *other], train_size=1, holdout_size=1)
    assert task.report["dropped"].keys() <= {"picture is held out, too"}


# --- Size -----------------------------------------------------------------------------------------


def test_a_picture_over_the_limit_is_made_smaller_in_its_proportions_and_counted(load):
    large, turned = noise(1, (40, 20)), noise(2, (30, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # as a camera held upright stores it
    photos = [file_of(large), file_of(large, "JPEG"), file_of(noise(3, (20, 10)))]
    task = load([*photos, file_of(turned, "JPEG", exif=exif)], max_pixels=200)
    answers = dict(zip(both(task)["answer"], both(task)["image"], strict=True))
    sizes = {answer: Image.open(io.BytesIO(image)).size for answer, image in answers.items()}
    assert sizes == {"0": (20, 10), "1": (20, 10), "2": (20, 10), "3": (8, 24)}
    assert answers["2"] == photos[2], "kept as it is"
    assert Image.open(io.BytesIO(answers["1"])).format == "JPEG"
    assert task.report["pictures"]["made_smaller"] == 3
    assert task.line.endswith("; 3 pictures made smaller (max_pixels)")
    assert PRESETS["pocket"].max_pixels == 512 * 512


# --- The split ------------------------------------------------------------------------------------


def test_no_picture_is_on_both_sides_and_the_sizes_are_those_asked_for(load):
    """Three questions about each of 40 pictures, which is stored in another format each time."""
    formats = ("PNG", "BMP", "TIFF")
    photos = [file_of(noise(n // 3), formats[n % 3]) for n in range(120)]
    for held_out in (9, 10, 11):
        task = load(photos, train_size=100, holdout_size=held_out, seed=held_out)
        assert (len(task.train), len(task.holdout)) == (100, held_out)
        assert not set(seen(task.train)) & set(seen(task.holdout))
        shared = len(both(task)) - len(set(seen(both(task))))
        assert task.report["pictures"]["repeated"] == shared > 0
        dropped = task.report["dropped"].get("picture is held out, too", 0)
        assert dropped == -held_out % 3
    assert load(photos, seed=11, train_size=100, holdout_size=11).train.equals(task.train)


def test_a_picture_of_the_sources_own_test_split_is_not_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    for split, numbers in (("train", range(6)), ("test", range(4, 8))):
        rows = [
            {"asked": f"{split} {n}?", "answer": "1", "photo": file_of(noise(n))} for n in numbers
        ]
        datasets.Dataset.from_list(rows).to_parquet(tmp_path / "data" / f"{split}.parquet")
    task = load_task(str(tmp_path / "data"), columns=COLUMNS)
    assert sorted(task.train["question"]) == [f"train {n}?" for n in range(4)]
    assert sorted(task.holdout["question"]) == [f"test {n}?" for n in range(4, 8)]
    assert task.report["dropped"] == {"picture is held out, too": 2}
