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
    "pass_at_16": [
        ("16 * evaluation['baseline']['pass_at_k']['1']['value']", "do not simply add up"),
        ("evaluation['baseline']['pass_at_k']['1']['value'] ** 16", "all sixteen samples are right"),
        ("(1 - evaluation['baseline']['pass_at_k']['1']['value']) ** 16", "all sixteen are wrong"),
        ("1 - evaluation['baseline']['pass_at_k']['1']['value'] ** 16", "at least one wrong"),
        ("[0.5]", "one number between 0 and 1"),
        ("0.5", "sixteen wrong ones in a row"),
    ],
    "wilson": [
        (
            "lambda right, n: [right / n + side * 1.96 * (right / n * (1 - right / n) / n) ** 0.5 for side in (-1, 1)]",
            "no width",
        ),
        ("lambda right, n: right / n", "must return two numbers"),
        ("lambda right, n: (100 * right / n - 7, 100 * right / n + 5)", "per cent"),
        ("lambda right, n: (0.945, 0.826) if n == 100 else (1.0, 0.839)", "lower bound comes first"),
        ("lambda right, n: (right / n - 0.06, right / n + 0.06)", "Your middle is p"),
        ("lambda right, n: (0.84, 0.99)", "divided by 1 + z²/n"),
        ("lambda right, n: 1 / 0", "ZeroDivisionError"),
        ("0.9", "must return two numbers"),
    ],
}


def context(run) -> dict:
    """What the cells take from earlier ones. run: a finished one."""
    return {"evaluation": run.evaluation}
