"""Wrong answers to the exercises of notebook 03, and what their cells take from earlier ones."""

WRONG = {
    "advantages": [
        ("[0.825, -0.175, -0.175, -0.475]", "Divide by the group's standard deviation"),
        ("[1.68, -0.36, -0.36, -0.97]", "divided the squares by 4"),
        ("[-1.45, 0.31, 0.31, 0.84]", "signs are the wrong way round"),
        ("[2.29, 0.53, 0.53, 0]", "Subtract the group's mean first"),
        ("[1.0, -0.1, -0.1, -0.4]", "sum to zero; yours sum to 0.40"),
        ("[3.0, -0.64, -0.64, -1.73]", "By what did you divide?"),
        ("[1.45, -0.31]", "There are four completions"),
    ],
    "push": [
        ("3.17", "left out the third careful completion"),
        ("0.71", "the mean of the three"),
        ("-2.14", "the push on the other token"),
        ("1.58", "the advantage of one careful completion"),
        ("2.6", "check the mean (0.5125)"),
    ],
    "betas": [
        ('{"A": 0.3, "B": 0.001, "C": 3}', "the wrong way round"),
        ('{"A": 3, "B": 0.3, "C": 0.001}', "the lowest KL had the largest beta"),
        ('{"A": 1, "B": 2, "C": 3}', "each of them once"),
    ],
}


def context(run) -> dict:
    """Nothing: the cells bring what they need."""
    return {}
