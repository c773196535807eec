"""A practitioner's own task: 300 short tickets in a CSV, worked examples, and a reward in TRL's style."""

import csv
import json
import random
from pathlib import Path

REWARD = '''
import json


def fields_reward(completions, answer, **columns):
    """The share of the answer's fields that the last object of a completion has right."""
    scores = []
    for completion, gold in zip(completions, answer):
        text, wanted = completion[0]["content"], json.loads(gold)
        try:
            given = json.loads(text[text.rindex("{") : text.rindex("}") + 1])
            scores.append(sum(given.get(name) == wanted[name] for name in wanted) / len(wanted))
        except (ValueError, AttributeError):
            scores.append(0.0)
    return scores
'''
_TOPICS = {"billing": "invoice", "delivery": "parcel", "account": "password"}
_MOODS = {True: "I need this today, please hurry", False: "There is no hurry"}


def write_tickets(folder: Path, count: int = 300, seed: int = 1) -> dict[str, str]:
    """Write the files, and return the parameters of `run` that name them, as texts of `-p`."""
    draw = random.Random(seed)
    rows, shown = [], []
    for number in range(count + 2):
        topic, urgent, days = draw.choice([*_TOPICS]), draw.random() < 0.5, draw.randrange(2, 30)
        ticket = (
            f"Ticket {number}: my {_TOPICS[topic]} is wrong since {days} days. {_MOODS[urgent]}."
        )
        gold = json.dumps({"topic": topic, "urgent": urgent})
        rows.append({"message": ticket, "expected": gold})
        reasoning = f"The {_TOPICS[topic]} is about {topic}, and: {_MOODS[urgent].lower()}."
        told = f"<think>{reasoning}</think><answer>{gold}</answer>"
        shown.append({"question": ticket, "completion": told})
    with (folder / "tickets.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows[:count])
    examples = "".join(json.dumps(row) + "\n" for row in shown[count:])
    (folder / "examples.jsonl").write_text(examples, encoding="utf-8")
    (folder / "mine.py").write_text(REWARD, encoding="utf-8")
    return {
        "source": str(folder / "tickets.csv"),
        "columns": '{"question": "message", "answer": "expected"}',
        "few_shot": str(folder / "examples.jsonl"),
        "max_prompt_length": "400",
    }
