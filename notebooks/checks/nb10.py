"""The checks of notebook 10's exercises."""


def check_player(answer):
    """Judge the name of a player."""
    if answer is None:
        return "Not answered yet: set player."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    name = str(answer).strip().strip("'").casefold()
    verdicts = {
        "loops for ever": "Right: the same guess for ever is now worth half a point, and GRPO would teach it.",
        "oracle": "The oracle wins in both tables, and earns 1.0 in both.",
        "does nothing": "Doing nothing earns nothing in both tables.",
        "answers nan": "The guard refuses its guess, so it earns nothing in both tables.",
        "lists all candidates": "Two guesses are not yet a long game.",
        "tries all candidates": "It does earn more. But now and then it finds a number; another player never does.",
        "random": "Random guesses do earn more. But now and then one of them wins; another player never does.",
    }
    hasty = ["says please", "assures"]
    hasty += ["answers " + how for how in ("at once", "blank", "at length", "a wildcard", "nonsense")]
    verdicts |= dict.fromkeys(hasty, "One guess is not yet a long game: it earns 0.1 in both tables.")
    message = verdicts.get(name, f"There is no player {answer!r}. There are: {', '.join(verdicts)}.")
    ### END HIDDEN TESTS
    return message


def check_guesses(answer):
    """Judge a set of guesses from 1 to 4."""
    if answer is None:
        return "Not answered yet: set guesses."
    if not isinstance(answer, (set, list, tuple)) or not answer or not all(guess in (1, 2, 3, 4) for guess in answer):
        return "Give a set of numbers from 1 to 4, such as {1, 4}."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    best = {2, 3}
    worse = sorted(set(answer) - best)
    if worse:
        message = f"A guess of {worse[0]} leaves up to three numbers, and wastes 0.25 guesses on average."
    elif set(answer) != best:
        message = "That one wastes nothing, and so does another."
    else:
        message = "Right: either way the game takes (1 + 2 + 2 + 3) / 4 = 2 guesses on average: an even count has two middles."
    ### END HIDDEN TESTS
    return message
