"""Does a policy look? The same questions with their pictures, with a grey one in place of each, and
with the pictures swapped among the rows.
"""

from collections import Counter

import pandas as pd
from PIL import Image

from helpers.data.pictures import GREY, opened
from helpers.presets import Preset
from helpers.results.evaluation import proportion, right, score
from helpers.tags import THINK_ANSWER, TagFormat

WAYS = ("sighted", "blind", "swapped")


def swaps(rows: pd.DataFrame) -> list[int]:
    """For each row, the place of another one, whose picture it gets: one that asks the same
    question, or, if none does, the next row that no other asks the same.

    Each picture is given to one row. The picture of one that asks the same has an answer to the
    question of its own.
    """
    places = {}
    for place, question in enumerate(rows["question"]):
        places.setdefault(question, []).append(place)
    alone = [group[0] for group in places.values() if len(group) == 1]
    groups = [group for group in places.values() if len(group) > 1]
    if len(alone) == 1 and groups:
        groups[0] += alone
    else:
        groups.append(alone)
    given = {a: b for group in groups for a, b in zip(group, group[1:] + group[:1], strict=True)}
    return [given[place] for place in range(len(rows))]


def blind_floor(train: pd.DataFrame, holdout: pd.DataFrame) -> float:
    """The share of the holdout that is right with the most frequent answer to each question: what
    can be had without a picture. A question that the training rows do not ask gets the most
    frequent answer of all.
    """
    overall = Counter(train["answer"]).most_common(1)[0][0]
    best = {
        question: Counter(answers).most_common(1)[0][0]
        for question, answers in train.groupby("question")["answer"]
    }
    guessed = holdout["question"].map(best).fillna(overall)
    return float((guessed == holdout["answer"]).mean())


def completions(
    model, processor, rows: pd.DataFrame, settings: Preset, seed: int, ways: tuple = WAYS
) -> dict[str, list[str]]:
    """What a policy writes about each row, by way, once each, with the same random numbers."""
    from helpers.training.vision import sample

    pictures = [opened(image) for image in rows["image"]]
    shown = {
        "sighted": pictures,
        "blind": [Image.new("RGB", picture.size, GREY) for picture in pictures],
        "swapped": [pictures[place] for place in swaps(rows)],
    }
    limits = {"max_new_tokens": settings.max_completion_length, "seed": seed}
    limits["temperature"] = settings.temperature
    prompts = [list(prompt) for prompt in rows["prompt"]]
    return {way: sample(model, processor, prompts, shown[way], **limits) for way in ways}


def looked(texts: dict[str, list[str]], rows: pd.DataFrame, tags: TagFormat = THINK_ANSWER) -> dict:
    """An entry of evaluation.json, of the sighted policy; in it `blind` and `swapped`, and
    `same_answer`: the share of rows whose picture after the swap has the same answer, which is what
    a policy that always reads its picture right has left.
    """
    rows, answers = rows.drop(columns=["image"]), rows["answer"].tolist()
    entry = score(texts["sighted"], answers, tags, rows=rows)
    for way in WAYS[1:]:
        if way in texts:
            entry[way] = proportion(right(texts[way], answers, tags, rows=rows))
    same = [answers[place] == answer for place, answer in zip(swaps(rows), answers, strict=True)]
    return entry | {"same_answer": sum(same) / len(same)}


def lines(name: str, entry: dict) -> list[str]:
    """An entry of `looked` as lines of text: the three accuracies with their intervals, and what
    swapping leaves a policy that reads its pictures.
    """
    said = []
    for way in WAYS:
        found = entry.get(way, entry)
        low, high = found["ci95"]
        said.append(f"{name}, {way:<8} {found['accuracy']:.1%} ({low:.1%} to {high:.1%})")
    return [
        *said,
        f"the swapped picture has the same answer in {entry['same_answer']:.1%} of the rows",
    ]
