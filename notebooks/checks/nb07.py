"""The checks of notebook 07's exercises."""


def check_accepted(answer):
    """Judge the letters of the answers that json.loads(block) == json.loads(expert) accepts."""
    if answer is None:
        return "Not answered yet: set accepted."
    given = answer.lower().replace(",", "").replace(" ", "") if isinstance(answer, str) else "?"
    if not set(given) <= set("abcde"):
        return f"Give the letters as one text, such as 'be', not {answer!r}."
    ### BEGIN HIDDEN TESTS
    mistakes = [
        ("a" not in given, "a is accepted, and should be: equal dictionaries may differ in order."),
        ("b" in given, "b is refused: in Python the text '1' does not equal the number 1."),
        ("e" in given, "e is refused: it has one key more, so the dictionaries differ."),
        (
            "c" not in given,
            "c is accepted: True == 1 in Python. The schema helps here: for it, true is no integer.",
        ),
        (
            "d" not in given,
            "d is accepted: json.loads keeps the last of two equal keys, so a policy may name two cities.",
        ),
    ]
    for wrong, message in mistakes:
        if wrong:
            return message
    return "Right. a deserves it; c and d do not: extraction_reward gives them 0.1 and 0."
    ### END HIDDEN TESTS
    return "Noted: the answer is checked when it is handed in."


def check_quantity_score(answer):
    """Judge a function from (given, wanted) to 1.0, 0.5 or 0.0."""
    tries = [(17, 17), (18, 17), (16, 17), (19, 17), (20, 17), ("17", 17), ("117", 17), (None, 17)]
    tries += [([17], 17), (17.5, 17), (True, 1), (False, 1), (0, 1), ({"n": 17}, 17)]
    tries += [(float("nan"), 17), (float("inf"), 17)]
    try:
        if answer(given := 17, 17) is None:
            return "Not answered yet: return a score."
        scores = {repr(given := value): float(answer(value, wanted)) for value, wanted in tries}
    except Exception as error:
        return f"{type(error).__name__} on given={given!r}: whatever a policy writes, return a number and never raise."
    ### BEGIN HIDDEN TESTS
    expected = [
        ("17", 1.0, "The right quantity must earn 1.0."),
        ("16", 0.5, "One less must earn 0.5. Do you look in one direction only?"),
        ("18", 0.5, "One more must earn 0.5."),
        ("20", 0.0, "Three more must earn nothing: 0.5 is for exactly one more or one less."),
        ("19", 0.0, "Two more must earn nothing: 0.5 is for exactly one more or one less."),
        ("0", 0.5, "0 is a whole number too: it is one less than 1, and must earn 0.5."),
        ("'17'", 0.0, "The text '17' earns something: the policy would never learn to write a number."),
        ("'117'", 0.0, "'117' earns something because it contains 17: a policy can exploit that."),
        ("17.5", 0.0, "17.5 is not a whole number."),
        ("True", 0.0, "True earns what 1 earns: in Python True is an int that equals 1."),
        ("False", 0.0, "False earns what 0 earns: in Python False is an int that equals 0."),
    ]
    others = ("None", "[17]", "{'n': 17}", "nan", "inf")
    expected += [(value, 0.0, f"{value} is not a whole number, yet it earns something.") for value in others]
    for value, score, message in expected:
        if scores[value] != score:
            return message
    return "Right. The score now climbs in steps, and only a whole number can climb them."
    ### END HIDDEN TESTS
    return "Noted: the answer is checked when it is handed in."
