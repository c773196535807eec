"""Wrong answers to the exercises of notebook 04."""

WRONG = {
    "diagnosis": [
        ('"dead groups"', "correctness has risen"),
        ('"truncated answers"', "nothing is cut off"),
        ('"hacked reward"', "rises with the reward"),
        ('"exploding KL"', "Look at its axis"),
        ('"overfitting"', "Choose one of"),
    ],
    "loss_of_step": [
        ("0.175", "The sign is the other way round"),
        ("0.18", "The sign is the other way round"),
        ("14", "the sum over the tokens"),
        ("10**400", "Give one number"),
        ("0", "Zero is the mean over completions"),
        ("-14", "the sum over the tokens"),
        ("-7.0", "divided by the two completions"),
        ("-0.5", "30 contribute"),
    ],
    "predicted": [
        ("(0.52, 0.77)", "The mean reward comes first"),
        ("(0.52, 0.52)", "Add what the format earns"),
        ("(0.65, 0.52)", "B always writes it"),
        ("(1.52, 0.52)", "a weight of 0.25"),
        ("(0.8, 0.52)", "multiply each reward's mean"),
        ("(0.77, 52)", "as a share"),
        ("(0.77, 0.77)", "The accuracy is the share of correct answers"),
        ("(10**400, 0.5)", "Give two numbers"),
        ("0.77", "Give two numbers"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "diagnosis": ["'Healthy'", "' healthy '"],
    "loss_of_step": ["-0.18", "-0.17", "__import__('fractions').Fraction(-7, 40)"],
    "predicted": ["[0.77, 0.52]", "__import__('numpy').array([0.77, 0.52])"],
}
