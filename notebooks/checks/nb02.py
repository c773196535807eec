"""The checks of the exercises of notebook 02."""

import pandas as pd

from helpers.data import arithmetic
from helpers.laboratory.measures import Lab
from helpers.tags import completion_text


def check_best_attack(name, correctness, tag_count, train, fmt, settings) -> str:
    """Judge which of five attacks earns most once tags and `=` are counted.

    correctness, tag_count: the two rewards beside the one that counts `=`.
    """
    names = [
        "every number from 1 to 100",
        "filler up to the bound",
        "correct, but never closed",
        "the tags many times",
        "the whole shape three times",
    ]
    if name is None:
        return "Not answered yet: set `best_attack` to one of the five names."
    if not isinstance(name, str) or name not in names:
        return f"`best_attack` must be one of the five names, spelt as above; it is {name!r}."

    ### BEGIN HIDDEN TESTS
    def steps_reward(completions, **columns):
        return [min(1.0, completion_text(completion).count("=") / 8) for completion in completions]

    # of other questions, an honest working has no `=`, and nothing could be told apart
    on_sums = ""
    if not train["question"].str.contains("+", regex=False).all():
        on_sums = " (On sums such as What is 11 + 30 + 41?, for the questions of this run have no `+`.)"
        train = pd.DataFrame([arithmetic.problem("sums", [n, n + 19, n + 30], ["+", "+"]) for n in range(11, 27)])
    tried = Lab([correctness, tag_count, steps_reward], [1.0, 0.25, 0.5], fmt)
    totals = tried.attacks(train, length=settings.max_completion_length)["total"]
    if name == "the whole shape three times":
        honest = totals["honest and wrong"]
        return (
            f"Right: {totals[name]:.2f} against {honest:.2f} for an honest wrong answer. Three "
            f"workings hold three times the `=`, and counting tags is not asking for the format.{on_sums}"
        )
    ways = {
        "every number from 1 to 100": "It holds the `=` of one working only, and correctness gives nothing for a list.",
        "filler up to the bound": "Filler is long, but it holds no `=`. Nobody pays for length here.",
        "correct, but never closed": "Without its closing tag there is no answer block, so correctness gives nothing.",
        "the tags many times": "The four tags earn 0.25 once, however often they are repeated, and there is no `=`.",
    }
    best = totals[names].max()
    return f"{ways[name]} It earns {totals[name]:.2f}; another of the five earns {best:.2f}.{on_sums}"
    ### END HIDDEN TESTS
    return "Noted. This edition does not say whether it is right."


def check_strict_reward(reward, format_reward, train, fmt, settings) -> str:
    """Judge a reward that should tell right from wrong and let no attack win.

    format_reward: stands beside it, with the weight 0.25.
    """
    texts = [fmt.render("4 + 3 = 7", "7"), fmt.render("4 + 3 = 8", "8")]
    try:  # as TRL gives them: a completion is a list of messages
        messages = [[{"role": "assistant", "content": text}] for text in texts]
        given = reward(prompts=["What is 4 + 3?"] * 2, completions=messages, answer=["7", "7"])
    except Exception as error:
        return (
            "TRL calls a reward with `completions`, `answer` and more columns. A completion is a "
            "list of messages: `completion_text` gives its text. Yours raises "
            f"{type(error).__name__}: {error}."
        )
    if given is None:
        return "Not answered yet: let `strict_reward` return one number per completion."
    if not isinstance(given, list) or len(given) != 2:
        return f"A reward returns a list, one number per completion. For two completions yours returns {given!r}."
    ### BEGIN HIDDEN TESTS

    def strict_reward(completions, **columns):  # under its own name, and with lists of its own
        columns = {name: list(values) if isinstance(values, list) else values for name, values in columns.items()}
        return reward(completions=list(completions), **columns)

    tried = Lab([strict_reward, format_reward], [1.0, 0.25], fmt)
    table = tried.attacks(train, length=settings.max_completion_length)
    blocks = ["8 or 7", "17", "70"]  # beside the attacks, which name the right answer first
    texts = [fmt.render("4 + 3 = 7", block) for block in blocks]
    near = tried.scores(texts, answer=["7"] * 3)["strict_reward"]
    if tried.faults:
        return f"{tried.faults[0]}. A reward gives one finite number for every text."
    if (earned := table.loc["honest and correct", "strict_reward"]) < 1:
        return f"An honest correct answer earns {earned:.2f}, not 1.0. Compare the content of the answer block with the answer."
    if table["wins"].any():
        hole = table.sort_values(["wins", "gain"]).iloc[-1]
        return f"A hole is left, {hole.name!r}: it earns {hole['total']:.2f} in total. It writes {hole['example'][:120]!r}."
    for block, score in zip(blocks, near, strict=True):
        if score > 0:
            return f"A hole is left: if the answer is 7, the answer block {block!r} earns {score:.2f}."
    wrong = table.loc["honest and wrong", "strict_reward"]  # nan if it gives None
    if (earned, wrong) != (1.0, 0.0):
        return f"An honest correct answer earns {earned:.2f}, a wrong one {wrong:.2f}. Give 1.0 and 0.0, nothing else."
    return "Right: no attack beats an honest wrong answer, and an honest correct one earns 1.0."
    ### END HIDDEN TESTS
    return "Noted. This edition does not say whether it is right."
