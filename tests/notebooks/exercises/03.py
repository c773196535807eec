"""Wrong answers to the exercises of notebook 03, and what their cells take from earlier ones."""

WRONG = {
    "advantages": [
        ("[0.8125, -0.1875, -0.1875, -0.4375]", "Divide by the group's standard deviation"),
        ("[1.69, -0.39, -0.39, -0.91]", "divided the squares by 4"),
        ("[-1.47, 0.34, 0.34, 0.79]", "signs are the wrong way round"),
        ("[2.25, 0.45, 0.45, 0]", "Subtract the group's mean first"),
        ("[1.0, -0.1, -0.1, -0.4]", "sum to zero; yours sum to 0.40"),
        ("[3.0, -0.64, -0.64, -1.73]", "What did you divide by?"),
        ("[-0.79, -0.34, -0.34, 1.47]", "in another order"),
        ("[0, 0, 0, 0]", "Only a dead group"),
        ("[10**400] * 4", "a list of four numbers"),
        ("[1.47, -0.34]", "a list of four numbers"),
    ],
    "betas": [
        ('{"A": 1, "B": 0.01, "C": 10}', "the wrong way round"),
        ('{"A": 0.01, "B": 10, "C": 1}', "Not all of yours fit"),
        ('{"A": 10, "B": 1, "C": 0.01}', "the lowest KL had the largest beta"),
        ('{"A": 0.1, "B": 2, "C": 3}', "each of them once"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "advantages": [
        "(1.47, -0.34, -0.34, -0.79)",
        "__import__('numpy').array([1.471, -0.34, -0.34, -0.792])",
    ],
    "betas": [
        "{'C': 0.01, 'B': 10.0, 'A': 1.0}",
        "{'A': __import__('numpy').int64(1), 'B': 10, 'C': 0.01}",
    ],
}
