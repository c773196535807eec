"""Wrong answers to the exercises of notebook 11, and what each must be told."""

# name: (an answer as Python source, words that the message must contain)
WRONG = {
    "floor": [
        ("0.5", "That is chance"),
        ("0.9", "the first half alone"),
        ("0.45", "average the two"),
        ("70", "between 0 and 1"),
        ("True", "between 0 and 1"),
        ("'0.7'", "between 0 and 1"),
    ],
    "kind": [
        ("'color'", "far more often than before"),
        ("'left'", "far more often than before"),
        ("'shape'", "There is no kind 'shape'"),
    ],
    "points": [
        ("9", "the whole gain"),
        ("2", "before?"),
        ("7", "subtract the same"),
        ("'-7'", "a number of points"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "floor": ["0.5 * (0.9 + 0.5)", "7 / 10"],
    "kind": ["'Count'", "' count '"],
    "points": ["-7.0", "2 - 9"],
}
