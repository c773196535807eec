"""Measure whether a vision policy looks at its pictures.

Each question is asked with its picture (sighted), with a grey picture (blind) and with the picture
of another row (swapped). A policy that looks answers well only with the right picture.
"""

from collections import Counter

import pandas as pd
from PIL import Image

from helpers.data.pictures import GREY, open_picture
from helpers.results.evaluation import proportion, right, score
from helpers.settings import Preset

CONDITIONS = ("sighted", "blind", "swapped")


def completions(
    model, processor, rows: pd.DataFrame, settings: Preset, seed: int, conditions=CONDITIONS
) -> dict[str, list[str]]:
    """Return one completion per row, for each condition. The seed is the same for all."""
    from helpers.training.vision import sample

    pictures = [open_picture(image) for image in rows["image"]]
    pictures_by_condition = {
        "sighted": pictures,
        "blind": [Image.new("RGB", picture.size, GREY) for picture in pictures],
        "swapped": [pictures[place] for place in swapped_places(rows)],
    }
    return {
        condition: sample(
            model,
            processor,
            [list(prompt) for prompt in rows["prompt"]],
            pictures_by_condition[condition],
            max_new_tokens=settings.max_completion_length,
            seed=seed,
            temperature=settings.temperature,
        )
        for condition in conditions
    }


def score_conditions(texts: dict[str, list[str]], rows: pd.DataFrame) -> dict:
    """Return an entry of evaluation.json: the `score` with pictures, and in it `blind`, `swapped`
    (accuracy, ci95, n) and `same_answer`.

    same_answer: the share of rows for which the swapped image has the same answer. This is the
    swapped accuracy of a policy that always reads its picture correctly.
    """
    rows = rows.drop(columns=["image"])
    answers = rows["answer"].tolist()
    entry = score(texts["sighted"], answers, rows=rows)
    for condition in ("blind", "swapped"):
        if condition in texts:
            entry[condition] = proportion(right(texts[condition], answers, rows=rows))
    same = [answers[place] == answers[row] for row, place in enumerate(swapped_places(rows))]
    entry["same_answer"] = sum(same) / len(same)
    return entry


def summary(name: str, entry: dict) -> list[str]:
    """Return an entry of `score_conditions` as lines of text: the accuracy in each condition with
    its interval, and `same_answer`.
    """
    lines = []
    for condition in CONDITIONS:
        measured = entry.get(condition, entry)
        low, high = measured["ci95"]
        lines.append(f"{name}, {condition:<8} {measured['accuracy']:.1%} ({low:.1%} to {high:.1%})")
    lines.append(f"the swapped image has the same answer in {entry['same_answer']:.1%} of the rows")
    return lines


def swapped_places(rows: pd.DataFrame) -> list[int]:
    """Return, for each row, the number of the row whose picture it gets in the condition `swapped`.

    Rows with the same question exchange their pictures, so that each picture still fits its
    question. The rows whose question is unique exchange theirs. Each picture is used once.
    """
    # Group the rows by question, and put rows with a unique question into one group. If there is
    # only one such row, it joins another group.
    places = {}
    for place, question in enumerate(rows["question"]):
        places.setdefault(question, []).append(place)
    groups = [group for group in places.values() if len(group) > 1]
    alone = [group[0] for group in places.values() if len(group) == 1]
    if len(alone) == 1 and groups:
        groups[0] += alone
    else:
        groups.append(alone)
    # In each group, a row gets the picture of the next row, and the last row that of the first.
    source = {}
    for group in groups:
        source |= dict(zip(group, group[1:] + group[:1], strict=True))
    return [source[place] for place in range(len(rows))]


def blind_floor(train: pd.DataFrame, holdout: pd.DataFrame) -> float:
    """Return the holdout accuracy possible without pictures: always give the most frequent training
    answer to the question.

    A question without a training row gets the most frequent answer overall.
    """
    overall = Counter(train["answer"]).most_common(1)[0][0]
    best = {
        question: Counter(answers).most_common(1)[0][0]
        for question, answers in train.groupby("question")["answer"]
    }
    guesses = holdout["question"].map(best).fillna(overall)
    return float((guesses == holdout["answer"]).mean())
