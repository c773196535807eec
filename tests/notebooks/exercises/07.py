"""Wrong answers to the exercises of notebook 07, and what each must be told."""

# name: (an answer as Python source, words that the message must contain)
WRONG = {
    "accepted": [
        ("'a'", "True == 1"),
        ("'ac'", "json.loads keeps the last"),
        ("'acde'", "one key more"),
        ("'abcd'", "does not equal the number 1"),
        ("'cd'", "may differ in order"),
        ("''", "may differ in order"),
        ("['a', 'c', 'd']", "as one text"),
        ("'xyz'", "as one text"),
    ],
    "quantity_score": [
        (
            "lambda given, wanted: 1.0 if given == wanted else 0.5 if abs(given - wanted) == 1 "
            "else 0.0",
            "never raise",
        ),
        (
            "lambda given, wanted: {0: 1.0, 1: 0.5}.get(given - wanted, 0.0) if type(given) is "
            "int else 0.0",
            "One less must earn",
        ),
        (
            "lambda given, wanted: {0: 1.0, 1: 0.5}.get(abs(int(given) - wanted), 0.0)",
            "never raise",
        ),
        (
            "lambda given, wanted: {0: 1.0, 1: 0.5}.get(abs(given - wanted), 0.0) if "
            "isinstance(given, int) else 0.0",
            "True is an int",
        ),
        (
            "lambda given, wanted: max(0.0, 1 - abs(given - wanted) / 2) if type(given) in (int, "
            "float) else 0.0",
            "whole number",
        ),
        (
            "lambda given, wanted: max(0.5, 1 - abs(given - wanted) / 2) if type(given) is int "
            "else 0.0",
            "Three more",
        ),
        (
            "lambda given, wanted: {0: 1, 1: 0.5}.get(abs(given - wanted), 0) if type(given) is "
            "int else str(wanted) == given",
            "The text '17'",
        ),
        (
            "lambda given, wanted: {0: 1, 1: 0.5, 2: 0.5}.get(abs(given - wanted), 0) if "
            "type(given) is int else 0",
            "Two more must earn nothing",
        ),
        (
            "lambda given, wanted: {0: 1, 1: 0.5}.get(abs(given - wanted), 0) if "
            "isinstance(given, int) and given is not True "
            "else 0",
            "False earns",
        ),
        (
            "lambda given, wanted: {0: 1, 1: 0.5}.get(abs(given - wanted), 0) if given and "
            "type(given) is int else 0",
            "0 is a whole",
        ),
        (
            "lambda given, wanted: {0: 1, 1: 0.5}.get(abs(int(given) - wanted), 0) if type(given) "
            "in (int, float) else 0",
            "given=nan",
        ),
        (
            "lambda given, wanted: float(type(given) is int and given == wanted)",
            "One less must earn",
        ),
        ("lambda given, wanted: 1.0 if given == wanted else None", "TypeError on given=18"),
        ("1.0", "never raise"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "accepted": ["'ACD'", "'a, c, d'", "'dca'"],
    "quantity_score": [
        "lambda given, wanted: 0 if type(given) is not int else 1 if given == wanted else "
        "0.5 if given in (wanted - 1, wanted + 1) else 0",
    ],
}
