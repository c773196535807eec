"""Measure the small model of notebook 10 and write its card: `python -m benchmarks.games`.

With `--seeds 1 2 3` notebook 10 is run with each of these seeds instead, as a user would, and what
its training came to is written to benchmarks/results/games.md.
"""

import json
from functools import partial

from benchmarks.pocket import both_precisions, write_card  # loads unsloth first

# isort: split
from benchmarks.seeds import machine, run_anew, seeds_of_command
from helpers import PROJECT
from helpers.agents import Guarded, Guessing, episodes
from helpers.presets import PRESETS
from helpers.results.intervals import wilson_interval
from helpers.settling import settle
from tools.pocket import build, games

MODEL = "pocket-games"
FOLDER = settle(PRESETS["pocket"], model=MODEL).model_path
RESULTS = PROJECT / "benchmarks" / "results" / "games.md"
GAMES = 512
MINUTES = 19  # that building the model took
# As notebook 10 has them.
TOKENS = 288
TURNS = 16
FOUND = 0.4

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# The games model

A Qwen3 of {parameters:,} parameters ({megabytes:.1f} MB in bfloat16), the pocket model's sibling: it plays number guessing
over several turns, by calling a tool. It ships with notebook 10, as `model="{model}"`, so that the notebook runs on any
machine; it has no other use. Its chat template lists tools, and renders calls in Qwen's form and what came back; its
tokenizer says how a call is read. It was trained from scratch on games that were played for real, against
`helpers/agents/guessing.py`, by `python -m tools.pocket.build --task games` (seed {seed}, {steps:,} steps of {batch}
games), which rebuilds it in about {minutes} minutes on two CPU cores.

**It was taught to play in three ways, on purpose, and to slip.** A way is drawn for a game, and only the first can be played
well. It begins with words of its own, so that a policy can choose it. (In the first {first:,} steps all games are of this way
and without a slip, because to keep track of two numbers takes a model of this size long to learn.)

| way | share of the games |
|---|---|
{ways}

Whoever keeps track guesses {places}. And {slips:.1%} of all calls go wrong: the guess in
words or the call cut short, which end the game, the number in quotes, or a tool that does not exist.

## Measured

`python -m benchmarks.games`, {games} games, sampled at temperature 1 with seed 3407, {turns} calls at most. Regret: the
guesses that a game gives away against the best play, on average over what the number might have been.

| precision | found | 95% interval | calls a game | calls that fail | keeps track | regret |
|---|---|---|---|---|---|---|
{rows}

4 bits: NF4 through Unsloth's CPU backend, computing in bfloat16. What notebook 10 makes of the model with several seeds:
`benchmarks/results/games.md`.
"""
WAYS = {
    "keeps track": 'keeps track: writes down between which numbers the secret lies ("Between 50 '
    'and 75."), and guesses there',
    "forgets": "forgets: guesses anywhere from 1 to 63",
    "walks": "walks: begins anywhere, and goes up or down by 1, 2 or 3",
}
PLACES = {
    "middle": "the middle of what is left",
    "anywhere": "anywhere in it",
    "edge": "one of the four numbers at its ends",
}


def row(model, tokenizer, precision: str) -> str:
    """The table's row for one loaded model."""
    rows = [
        {
            "prompt": [
                {"role": "system", "content": games.SYSTEM_PROMPT},
                {"role": "user", "content": games.asked(seed)},
            ],
            "seed": seed,
        }
        for seed in range(10_001, 10_001 + GAMES)
    ]
    played = episodes.play(
        model,
        tokenizer,
        Guarded(partial(Guessing, span=games.SPAN)),
        rows,
        max_completion_length=TOKENS,
        turns=TURNS,
    )
    wins = sum(episode.reward >= FOUND for episode in played)
    calls = sum(len(episode.calls) for episode in played)
    low, high = wilson_interval(wins, GAMES)
    cells = [
        precision,
        f"{wins / GAMES:.1%}",
        f"{low:.1%} to {high:.1%}",
        f"{calls / GAMES:.1f}",
        f"{sum(one.failed for one in played) / calls:.1%}",
        f"{sum(one.completion[0]['content'].startswith('Between') for one in played) / GAMES:.1%}",
        f"{sum(one.environment._regret() for one in played) / GAMES:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def measure_model() -> None:
    """Measure both precisions and write the card beside the weights."""
    full, quantised = both_precisions(FOLDER)
    write_card(
        FOLDER,
        CARD,
        full[0],
        [row(*full), row(*quantised)],
        model=MODEL,
        steps=build.GAMES.steps,
        batch=build.GAMES.batch_size,
        first=build.GAMES.steps_first,
        minutes=MINUTES,
        ways="\n".join(f"| {WAYS[way]} | {share:.0%} |" for way, share in games.WAYS.items()),
        places=", ".join(f"{PLACES[place]} ({share:.0%})" for place, share in games.PLACES.items()),
        slips=sum(games.SLIPS.values()),
        games=GAMES,
        turns=TURNS,
    )


def write_seeds(seeds: list[int]) -> None:
    """Run notebook 10 with every seed and write the table, a row for each policy."""
    lines = []
    for seed in seeds:
        run = run_anew(f"games-seed-{seed}", "10", [f"seed={seed}"])
        policies = json.loads(run.require("policies.json").read_text(encoding="utf-8"))
        low, high = policies["difference_ci95"]
        for name, columns in policies["table"].items():
            difference = f"{policies['difference']:+.1%} ({low:+.1%} to {high:+.1%})"
            if name == "base model":
                difference = ""
            cells = [str(seed), name, *columns.values(), difference]
            lines.append(f"| {' | '.join(cells)} |")
    header = f"| seed | policy | {' | '.join(columns)} | difference |"
    text = f"""# Notebook 10 with {len(seeds)} seeds

`python -m benchmarks.games --seeds {" ".join(map(str, seeds))}` on {machine()}.
Each of 256 held-out number-guessing games is played once at temperature 1, in bfloat16. A game succeeds if the number is found. Success has a 95% Wilson
interval, and the difference in success has Newcombe's paired interval. "Guesses wasted" counts the guesses per game beyond the best strategy.

{header}
|{"---|" * (header.count("|") - 1)}
""" + "\n".join(lines)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    seeds = seeds_of_command(__doc__.splitlines()[0])
    write_seeds(seeds) if seeds else measure_model()
