"""The checks of notebook 11's exercises."""


def check_floor(answer):
    """Judge a blind floor."""
    if answer is None:
        return "Not answered yet: set floor."
    if isinstance(answer, bool) or not isinstance(answer, (int, float)) or not 0 <= answer <= 1:
        return "Give a number between 0 and 1, such as 0.5."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    if abs(answer - 0.7) < 1e-6:
        message = "Right: half of 0.9 and half of 0.5. A model that scores 0.7 may never have looked."
    elif abs(answer - 0.5) < 1e-6:
        message = "That is chance: a guess that does not know how frequent the answers are."
    elif abs(answer - 0.9) < 1e-6:
        message = "That is the floor of the first half alone."
    else:
        message = "Take the share of each half for which its most frequent answer is correct, and average the two."
    ### END HIDDEN TESTS
    return message


def check_kind(answer):
    """Judge the name of a kind of question."""
    if answer is None:
        return "Not answered yet: set kind."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    name = str(answer).strip().casefold()
    if name == "count":
        message = (
            "Right: it looks there, too, but counting, it looks at the upper row alone. Such a look is correct in 38%, "
            "a guess in 54%. Most questions pay for a look, and so it looks at all of them."
        )
    elif name in ("color", "left"):
        message = "There it is correct far more often than before."
    else:
        message = f"There is no kind {answer!r}. There are: color, count, left."
    ### END HIDDEN TESTS
    return message


def check_points(answer):
    """Judge the points of a gain that came from the images."""
    if answer is None:
        return "Not answered yet: set points."
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return "Give a number of points, such as 5."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    if abs(answer + 7) < 1e-6:
        message = "Right: sighted minus blind fell from 9 to 2. It gained 9 points, and looks less than before."
    elif abs(answer - 9) < 1e-6:
        message = "9 points is the whole gain. How much of it does the blind accuracy gain, too?"
    elif abs(answer - 2) < 1e-6:
        message = "2 points is what the images bring now. What did they bring before?"
    else:
        message = "Take sighted minus blind after the training, and subtract the same before it."
    ### END HIDDEN TESTS
    return message
