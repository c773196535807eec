"""Order messages and the records they hold: the task of notebook 07, and what its small model was
trained on.

`python -m tools.pocket.extraction` writes notebooks/data/orders.csv again, row for row. A record
is an item, a quantity and a city; a fifth of all records is reserved for that file, by a hash, and
the model never saw one of them in its own training.
"""

import argparse
import csv
import hashlib
import itertools
import json
import random
import re
from pathlib import Path

from helpers import PROJECT
from helpers.tags import THINK_ANSWER

SEED = 3407
ORDERS_CSV = PROJECT / "notebooks" / "data" / "orders.csv"
# usable rows of the file; a handful that cannot be used come on top, as in any real one
ORDERS = 700
SYSTEM_PROMPT = (
    "Note the order inside <think> and </think>. Then give only the order as JSON "
    "inside <answer> and </answer>."
)
ITEMS = ("green tea", "black tea", "coffee beans", "oat milk", "brown sugar", "sea salt")
ITEMS += ("olive oil", "rye flour", "dark chocolate", "paper cups", "tea towels", "glass jars")
CITIES = ("Lyon", "Oslo", "Porto", "Turin", "Ghent", "Leeds", "Graz", "Brno")
CITIES += ("Cork", "Basel", "Delft", "Gdansk", "Seville", "Tartu", "Vienna", "Zagreb")
QUANTITIES = range(2, 21)
UNITS = ("boxes", "bags", "crates", "packs")
CUSTOMERS = ("Amira", "Bastian", "Chloe", "Dorota", "Emil", "Farid", "Greta", "Hugo")
GREETINGS = ("Hi,", "Hello,", "Good morning,", "Dear team,", "Hey there,")
DAYS = (
    "",
    "",
    " by Monday",
    " by Friday",
    " this week",
    " before Wednesday",
    " as soon as you can",
)
ENDINGS = (".", ". Thanks!", ", thanks.", ". Many thanks and best wishes.", "!")
TEMPLATES = (
    "{greeting} please send {quantity} {unit} of {item} to {city}{day}{ending}",
    "{greeting} we need {quantity} {unit} of {item} in {city}{day}{ending}",
    "{greeting} our shop in {city} would like {quantity} {unit} of {item}{day}{ending}",
    "{greeting} could you ship {quantity} {unit} of {item} to our {city} office{day}{ending}",
    "{greeting} {item}, {quantity} {unit}, for {city}{day}{ending}",
    "{quantity} {unit} of {item} to {city}{day}{ending}",
    "Order for {city}: {item}, {quantity} {unit}{ending}",
    "{greeting} {city} is out of {item}. Can we have {quantity} {unit}{day}{ending}",
    "{greeting} this is the {city} branch: {quantity} more {unit} of {item}{day}{ending}",
    "{greeting} put {item} on the next van to {city}, {quantity} {unit}{ending}",
    "{greeting} deliver to {city}{day}: {quantity} {unit} of {item}{ending}",
    "{greeting} it is {customer} from {city}. {quantity} {unit} of {item}{day}{ending}",
)
_NAMES = "|".join(sorted(ITEMS + CITIES, key=len, reverse=True))
# What may become one token: a name, a digit, a piece of JSON, a word.
PIECES = rf'{_NAMES}|\d|</?\w+>|[{{", ]*"\w+": "?|"?}}| ?(?!{_NAMES})\p{{L}}+[ \n]?|[,.:!?]+ ?|.'
# The share of each way the model answers. Only the first is what the system prompt asks for.
SHAPES = {
    "asked_for": 0.24,
    "json_outside": 0.30,
    "prose": 0.20,
    "text_quantity": 0.14,
    "other_keys": 0.12,
}


def reserved(record: dict) -> bool:
    """Whether the record belongs to the fifth that is kept for orders.csv, by a hash of its three
    fields.
    """
    key = f"{record['item']}|{record['quantity']}|{record['city']}".encode()
    return hashlib.sha256(key).digest()[0] < 52


def order_message(record: dict, rng: random.Random, customer: str | None = None) -> str:
    """A short message that orders the record, in one of twelve wordings."""
    return rng.choice(TEMPLATES).format(
        **record,
        unit=rng.choice(UNITS),
        greeting=rng.choice(GREETINGS),
        day=rng.choice(DAYS),
        ending=rng.choice(ENDINGS),
        customer=customer or rng.choice(CUSTOMERS),
    )


def answer_in_shape(shape: str, record: dict) -> str:
    """One completion in one of the five shapes of `SHAPES`.

    >>> answer_in_shape("prose", {"item": "sea salt", "quantity": 3, "city": "Oslo"})
    '3 x sea salt, Oslo'
    """
    opening, closing, answer_opening, answer_closing = THINK_ANSWER.tags
    note = f"{record['quantity']} x {record['item']}, {record['city']}"
    as_text = record | {"quantity": str(record["quantity"])}
    renamed = {"product": record["item"], "count": record["quantity"], "town": record["city"]}
    return {
        "asked_for": THINK_ANSWER.render(note, json.dumps(record)),
        "json_outside": f"{opening}{note}{closing}{json.dumps(record)}",
        "prose": note,
        "text_quantity": f"{answer_opening}{json.dumps(as_text)}{answer_closing}",
        "other_keys": f"{answer_opening}{json.dumps(renamed)}{answer_closing}",
    }[shape]


def is_asked_for(text: str, record: dict) -> bool:
    """Whether the answer block of a completion is this record, as JSON."""
    try:
        return json.loads(THINK_ANSWER.extract_answer(text) or "") == record
    except ValueError:
        return False


def is_known(text: str, record: dict) -> bool:
    """Whether a completion says this record and no other, in whatever shape.

    >>> is_known("3 x sea salt, Oslo", {"item": "sea salt", "quantity": 3, "city": "Oslo"})
    True
    """
    found = [set(re.findall("|".join(names), text)) for names in (ITEMS, (r"\d+",), CITIES)]
    return found == [{str(value)} for value in record.values()]


def training_pair(rng: random.Random) -> tuple[str, str] | None:
    """A message and a completion to learn from, or None where the record drawn is a
    reserved one.
    """
    record = {
        "item": rng.choice(ITEMS),
        "quantity": rng.choice(QUANTITIES),
        "city": rng.choice(CITIES),
    }
    if reserved(record):
        return None
    shape = rng.choices(list(SHAPES), SHAPES.values())[0]
    return order_message(record, rng), answer_in_shape(shape, record)


def tokenizer_corpus() -> list[str]:
    """Texts with every word, name and piece of JSON that the messages and the completions
    are made of.
    """
    rng, record = random.Random(SEED), {"item": ITEMS[0], "quantity": 1, "city": CITIES[0]}
    messages = [order_message(record, rng) for _ in range(2_000)]
    completions = [answer_in_shape(shape, record) for shape in SHAPES]
    return [
        SYSTEM_PROMPT,
        *messages,
        *ITEMS,
        *CITIES,
        *completions,
        "system\n",
        "user\n",
        "assistant\n",
    ]


def orders(seed: int = SEED) -> list[dict]:
    """The rows of orders.csv: reserved records, each once; then a few rows such as real files have,
    shuffled in.

    Columns: received, customer, message, expert_answer (the record as JSON).
    """
    rng = random.Random(seed)
    triples = itertools.product(ITEMS, QUANTITIES, CITIES)
    records = [dict(zip(("item", "quantity", "city"), triple, strict=True)) for triple in triples]
    records = rng.sample([record for record in records if reserved(record)], ORDERS)
    rows = [_row(record, rng) for record in records]
    forwarded = (
        "Forwarded message, see the last line. "
        + "We will come back to you as soon as we can. " * 12
    )
    unusable = [row | {"message": forwarded + row["message"]} for row in rng.sample(rows, 3)]
    unusable += [
        row | {"expert_answer": "", "message": f"Hello again, {row['message']}"}
        for row in rng.sample(rows, 2)
    ]
    unusable += [row | {"message": ""} for row in rng.sample(rows, 1)]
    unusable += [dict(row) for row in rng.sample(rows, 2)]
    for row in unusable:
        rows.insert(rng.randrange(1, len(rows)), row)
    return rows


def _row(record: dict, rng: random.Random) -> dict:
    customer = rng.choice(CUSTOMERS)
    return {
        "received": f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
        "customer": customer,
        "message": order_message(record, rng, customer),
        "expert_answer": json.dumps(record),
    }


def main(path: Path = ORDERS_CSV) -> None:
    """Write the file where notebook 07 looks for it."""
    rows = orders()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.name}: {len(rows)} rows")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
