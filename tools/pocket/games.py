"""Games of number guessing, well and badly played: what the model of notebook 10 was trained on.

Each game is played for real, against `agents.Guessing`, by a player that is drawn with it. So
what the environment says stands in the text word for word as it will in a training, and only what
the player says is learnt.
"""

import json
import random
from collections.abc import Callable

from helpers.agents.guessing import Guessing
from helpers.agents.protocol import argument_check

SEED = 3407
SYSTEM_PROMPT = "Call a tool in each turn until you are done."
SPAN = 63  # six guesses are always enough, and there is one middle each time
# The share of each way to play a game. Only the first keeps in mind what is left, and writes it
# down.
WAYS = {"keeps track": 0.3, "forgets": 0.35, "walks": 0.35}
# Where in what is left the first of them guesses: halving is the best there is, the edge nearly the
# worst.
PLACES = {"middle": 0.35, "anywhere": 0.35, "edge": 0.3}
EDGE = 4  # numbers
# The share of the calls that come out wrong. The first two are no calls at all, and end the game.
SLIPS = {"in words": 0.025, "cut short": 0.025, "in quotes": 0.02, "another tool": 0.01}
FOUND, LOST = "Found.", "Not found."
CALL, END_OF_CALL = '<tool_call>{"name": "guess", "arguments": {"number": ', "}}</tool_call>"
BETWEEN = "Between {} and {}. "
# What may become one token: a number, a tag, or what stands between them. So the whole description
# of the tool is one token: the games are short, and a step on two cores quick.
PIECES = r"<tool_call>[^\d<>\n]* |\}\}</tool_call>|</tool_call>|\d+|[^\d<>\n]+\n?|."
TOOL = Guessing().guess
# From the two numbers that the secret is known to lie between, the last guess and the last reply,
# to the next guess and the words before it.
Player = Callable[[int, int, int | None, str], tuple[int, str]]


def good_episode(rng: random.Random) -> tuple[str, list[str]]:
    """A game of a player that keeps track and never slips: with these the model learns first how
    that is done.
    """
    return _played(rng, player(rng, "keeps track"), {})


def training_episode(rng: random.Random) -> tuple[str, list[str]]:
    """A question, and what was said in turn from then on: the player, the tool, the player, ...,
    the player.

    >>> question, said = training_episode(random.Random(4))
    >>> question
    'Game 6490. I am thinking of a number from 1 to 63. Find it with as few guesses as you can.'
    >>> said[0]
    'Between 0 and 64. <tool_call>{"name": "guess", "arguments": {"number": 2}}</tool_call>'
    >>> said[1]
    'Higher than 2.'
    """
    way = rng.choices(list(WAYS), WAYS.values())[0]
    return _played(rng, player(rng, way), SLIPS)


def _played(
    rng: random.Random, next_guess: Player, slips: dict[str, float]
) -> tuple[str, list[str]]:
    game, seed = Guessing(SPAN), rng.randrange(1, 10_000)
    question, said = asked(seed) + game.reset(seed=seed), []
    low, high, last, reply = 0, SPAN + 1, None, ""
    while True:
        number, before = next_guess(low, high, last, reply)
        slip = rng.choices([None, *slips], [1 - sum(slips.values()), *slips.values()])[0]
        said.append(before + call(number, slip))
        if slip in ("in words", "cut short"):
            return question, said
        answer = answered(game, number, slip)
        said.append(answer)
        if slip:
            continue
        reply, last = answer, number
        if answer.startswith("Higher"):
            low = max(low, number)
        elif answer.startswith("Lower"):
            high = min(high, number)
        if answer.startswith("Yes") or "No guesses" in answer:
            said.append(FOUND if answer.startswith("Yes") else LOST)
            return question, said


def asked(seed: int) -> str:
    """What stands before the environment's own words: it names the game, and says nothing of the
    number.
    """
    return f"Game {seed}. "


def player(rng: random.Random, way: str) -> Player:
    """A player that plays in one of the ways of `WAYS`."""
    step = rng.choice((1, 2, 3))

    def keeps_track(low, high, last, reply):
        place = rng.choices(list(PLACES), PLACES.values())[0]
        edges = [
            rng.randint(low + 1, min(high - 1, low + EDGE)),
            rng.randint(max(low + 1, high - EDGE), high - 1),
        ]
        number = {
            "middle": (low + high) // 2,
            "anywhere": rng.randint(low + 1, high - 1),
            "edge": rng.choice(edges),
        }[place]
        return number, BETWEEN.format(low, high)

    def forgets(low, high, last, reply):
        return rng.randint(1, SPAN), ""

    def walks(low, high, last, reply):
        number = (
            rng.randint(1, SPAN) if last is None else last + (step if "Higher" in reply else -step)
        )
        return min(max(number, 1), SPAN), ""

    return {"keeps track": keeps_track, "forgets": forgets, "walks": walks}[way]


def call(number: int, slip: str | None = None) -> str:
    """A call of the tool as the template asks for it, or gone wrong in one of the ways of `SLIPS`.

    >>> call(50)
    '<tool_call>{"name": "guess", "arguments": {"number": 50}}</tool_call>'
    >>> call(50, "in words")
    'I guess 50.'
    """
    if slip == "in words":
        return f"I guess {number}."
    written = f'"{number}"' if slip == "in quotes" else str(number)
    opening = CALL.replace("guess", "check") if slip == "another tool" else CALL
    return opening + written + ("</tool_call>" if slip == "cut short" else END_OF_CALL)


def answered(game: Guessing, number: int, slip: str | None) -> str:
    """What comes back, as TRL puts it into the conversation: the tool's words, or the error."""
    if slip == "another tool":
        return str({"error": "Tool check not found."})
    if slip == "in quotes":
        wrong = argument_check(game.guess)({"number": str(number)})
        return str({"error": wrong})
    return game.guess(number)


def tokenizer_corpus() -> list[str]:
    """Texts with every word, number and piece of a call that a game is made of."""
    from transformers.utils import get_json_schema

    rng, numbers = random.Random(SEED), " ".join(map(str, range(SPAN + 2)))
    texts = [SYSTEM_PROMPT, numbers, json.dumps(get_json_schema(TOOL))]
    texts += ["tools\n", "system\n", "user\n", "assistant\n", "tool\n"]
    for _ in range(300):
        question, said = training_episode(rng)
        texts += [question, *said]
    return texts
