"""Plausible wrong answers to the exercises of notebook 08, each with words that its message must
contain.
"""

WRONG = {
    "worst": [
        ('"hard to easy"', "while the learning rate is high"),
        ('"carries only"', "Easy questions are not needed"),
        ('"plain"', "none of the three names"),
        ("3", "none of the three names"),
    ],
    "interval": [
        ("(4 - 36.9, 4 + 36.9)", "compared two groups of three"),
        ("(-19.8, 27.8)", "compared two groups of three"),
        ("(-6.484, -1.516)", "subtracted the recipe"),
        ("(2.868, 5.132)", "used 1.96"),
        ("(1.972, 6.028)", "divided by n"),
        ("(-0.303, 8.303)", "left out the root"),
        ("(0.01516, 0.06484)", "gave shares"),
        ("(6.48, 1.52)", "in the wrong order"),
        ("(4, 2.48)", "the half width"),
        ("(3.42, 4.58)", "left out t"),
        ("(10**400, 1)", "not two numbers"),
        ("(3, 5)", "not the bounds"),
        ("(4,)", "not two numbers"),
        ('(float("nan"), 6.484)', "must be finite"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "worst": ["'Easy to hard '"],
    "interval": ["[1.5, 6.5]", "__import__('numpy').array([1.516, 6.484])"],
}
