"""The checks of the exercises of notebook 01."""


def check_leak(share) -> str:
    """Judge the share of held-out rows whose question is also among the training rows."""
    if share is None:
        return "Not answered yet: set `leak` to a share between 0 and 1."
    must = f"`leak` must be a number between 0 and 1; it is {share!r}."
    try:
        share = float("nan") if isinstance(share, bool | str) else float(share)
    except (TypeError, ValueError, OverflowError):
        return must
    if not 0 <= share <= 100:
        return must
    ### BEGIN HIDDEN TESTS
    if abs(share - 900 / 999) < 0.006:
        return "Right: the twin is trained on in 900 of its 999 places. 90% of this holdout would test memory, not skill."
    if share > 1:
        return "That is more than all of them. If you mean per cent, divide by 100."
    likely = {
        0.1: "That is the chance that the twin is held out too. These rows do not leak; the others do.",
        0.5: "Half of the rows repeat a question, but a row leaks only if its twin is trained on.",
        0.18: "That is the share of all 500 questions that the split separates. The exercise asks about the 100 rows held out.",
        0.09: "That is the chance that one row is held out and its twin is not. Ask about the twin alone.",
        1.0: "Not quite all: now and then both rows of a question are held out.",
    }
    for wrong, message in likely.items():
        if abs(share - wrong) < 0.006:
            return message
    return "No. Take one row that is held out, and ask where its twin can be: 999 places are left."
    ### END HIDDEN TESTS
    if share > 1:
        return must
    return "Noted. This edition does not say whether it is right."


def check_repaired(text, loaded) -> str:
    """Judge a CSV file that should keep the five questions of the dirty one.

    loaded: makes a task of the text of such a file.
    """
    if text is None:
        return "Not answered yet: set `repaired` to the text of the file."
    if not isinstance(text, str):
        return "`repaired` must be the text of the file, a string; it is a " + type(text).__name__ + "."
    try:
        task = loaded(text)
    except ValueError as error:
        return f"load_task refuses the file: {str(error).rpartition('mine.csv: ')[2]}"
    ### BEGIN HIDDEN TESTS
    kept = {row.question.casefold(): row.answer for side in (task.train, task.holdout) for row in side.itertuples()}
    ways = {
        "not 2 fields": "Put a field that contains a comma in quotes.",
        "question is blank": "Nobody can repair that row.",
    }
    for reason in task.report["dropped"]:  # the first one is enough
        way = ways.get(reason, "Each question needs one row, with one answer.")
        return f"load_task still drops a row: {reason}. {way}"
    right = {
        "what is 12 + 30?": 42,
        "what is 9 + 9?": 18,
        "how many metres are 1.234 km?": 1234,
        "what is 7 + 8?": 15,
        "what is 20 + 3?": 23,
    }
    for question, answer in right.items():
        if question not in kept:
            return f"The question {question!r} is gone, but its row can be repaired."
        if kept[question].replace(",", "") != str(answer):
            return f"{question!r} now has the answer {kept[question]!r}, which is wrong. The model would be trained towards it."
    if len(kept) > 5:
        return "The dirty file had no such new questions."
    return "Right: five rows, none dropped, no answer wrong."
    ### END HIDDEN TESTS
    return "Noted. This edition does not say whether it is right."
