"""Does a policy look? The same questions with their pictures, with a grey one in place of each, and
with the pictures swapped among the rows.
"""

from collections import Counter

import pandas as pd
from PIL import Image

from helpers.data.pictures import GREY, open_picture
from helpers.presets import Preset
from helpers.results.evaluation import proportion, right, score
from helpers.tags import THINK_ANSWER, TagFormat

CONDITIONS = ("sighted", "blind", "swapped")


def swapped_places(rows: pd.DataFrame) -> list[int]:
    """Return, for each row, the place of another row, whose picture it gets: one that asks the same
    question, or, if none does, the next row that no other asks the same.

    Each picture is given to one row. The picture of one that asks the same has an answer to the
    question of its own.
    """
    # Group the rows that ask the same; those that no other asks the same make one more group.
    places = {}
    for place, question in enumerate(rows["question"]):
        places.setdefault(question, []).append(place)
    groups = [group for group in places.values() if len(group) > 1]
    alone = [group[0] for group in places.values() if len(group) == 1]
    if len(alone) == 1 and groups:
        groups[0] += alone
    else:
        groups.append(alone)
    # In each group, a row gets the picture of the next one, and the last that of the first.
    source = {}
    for group in groups:
        source |= dict(zip(group, group[1:] + group[:1], strict=True))
    return [source[place] for place in range(len(rows))]


def blind_floor(train: pd.DataFrame, holdout: pd.DataFrame) -> float:
    """Return the share of the holdout that is right with the most frequent answer to each question:
    what can be had without a picture.

    A question that the training rows do not ask gets the most frequent answer of all.
    """
    overall = Counter(train["answer"]).most_common(1)[0][0]
    best = {
        question: Counter(answers).most_common(1)[0][0]
        for question, answers in train.groupby("question")["answer"]
    }
    guesses = holdout["question"].map(best).fillna(overall)
    return float((guesses == holdout["answer"]).mean())


def completions(
    model, processor, rows: pd.DataFrame, settings: Preset, seed: int, conditions=CONDITIONS
) -> dict[str, list[str]]:
    """Return one completion per row and condition, all with the same seed."""
    from helpers.training.vision import sample

    pictures = [open_picture(image) for image in rows["image"]]
    pictures_by_condition = {
        "sighted": pictures,
        "blind": [Image.new("RGB", picture.size, GREY) for picture in pictures],
        "swapped": [pictures[place] for place in swapped_places(rows)],
    }
    prompts = [list(prompt) for prompt in rows["prompt"]]
    return {
        condition: sample(
            model,
            processor,
            prompts,
            pictures_by_condition[condition],
            max_new_tokens=settings.max_completion_length,
            seed=seed,
            temperature=settings.temperature,
        )
        for condition in conditions
    }


def score_conditions(
    texts: dict[str, list[str]], rows: pd.DataFrame, tags: TagFormat = THINK_ANSWER
) -> dict:
    """Return an entry of evaluation.json: the score of the sighted policy, in it `blind` and
    `swapped`, and `same_answer`.

    same_answer: the share of rows whose picture after the swap has the same answer, which is what a
    policy that always reads its picture right has left.
    """
    rows = rows.drop(columns=["image"])
    answers = rows["answer"].tolist()
    entry = score(texts["sighted"], answers, tags, rows=rows)
    for condition in ("blind", "swapped"):
        if condition in texts:
            entry[condition] = proportion(right(texts[condition], answers, tags, rows=rows))
    same = [answers[place] == answers[row] for row, place in enumerate(swapped_places(rows))]
    entry["same_answer"] = sum(same) / len(same)
    return entry


def summary(name: str, entry: dict) -> list[str]:
    """Return an entry of `score_conditions` as lines of text: the three accuracies with their
    intervals, and what swapping leaves a policy that reads its pictures.
    """
    lines = []
    for condition in CONDITIONS:
        measured = entry.get(condition, entry)
        low, high = measured["ci95"]
        lines.append(f"{name}, {condition:<8} {measured['accuracy']:.1%} ({low:.1%} to {high:.1%})")
    lines.append(
        f"the swapped picture has the same answer in {entry['same_answer']:.1%} of the rows"
    )
    return lines
