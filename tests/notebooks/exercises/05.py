"""Wrong answers to the exercises of notebook 05, and what each must be told."""

# name: (an answer as Python source, words that the message must contain)
WRONG = {
    "p_value": [
        ("8 / 128", "one direction only"),
        ("14 / 128", "7 to 0"),
        ("7 / 128", "exactly one loss"),
        ("5 / 256", "difference of the two accuracies"),
        ("12.5", "between 0 and 1"),
        ("float('nan')", "between 0 and 1"),
        ("'one in eight'", "between 0 and 1"),
        ("0.3", "Divide the sequences"),
    ],
    "pass_at_8": [
        ("8 * evaluation['baseline']['pass_at_k']['1']['value']", "do not simply add up"),
        ("evaluation['baseline']['pass_at_k']['1']['value'] ** 8", "all eight samples are correct"),
        ("(1 - evaluation['baseline']['pass_at_k']['1']['value']) ** 8", "all eight are wrong"),
        ("1 - evaluation['baseline']['pass_at_k']['1']['value'] ** 8", "at least one wrong"),
        (
            "100 - 100 * (1 - evaluation['baseline']['pass_at_k']['1']['value']) ** 8",
            "divide by 100",
        ),
        ("10**400", "one number between 0 and 1"),
        ("[0.5]", "one number between 0 and 1"),
        ("0.5", "eight wrong ones in a row"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "p_value": [
        "0.125",
        "0.13",
        "__import__('fractions').Fraction(1, 8)",
        "__import__('decimal').Decimal('0.125')",
    ],
    "pass_at_8": [
        "round(1 - (1 - evaluation['baseline']['pass_at_k']['1']['value']) ** 8, 2)",
        # of the rounded p that the table shows
        "1 - (1 - round(evaluation['baseline']['pass_at_k']['1']['value'], 3)) ** 8",
    ],
}


def context(run) -> dict:
    """What the cells take from earlier ones. run: a finished one."""
    return {"evaluation": run.evaluation}
