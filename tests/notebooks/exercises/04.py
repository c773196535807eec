"""Wrong answers to the exercises of notebook 04, and what their cells take from earlier ones."""

from helpers import PROJECT
from helpers.figures import shown
from helpers.metrics import plots
from helpers.metrics.history import first_and_last, read_metrics

WRONG = {
    "diagnosis": [
        ('"collapsed spread"', "correctness has risen"),
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
    "wasted": [
        ('1 - history["frac_reward_zero_std"].tail(10).mean()', "the share that did teach"),
        ('history["reward_std"].tail(10).mean()', "the spread over the whole batch"),
        ("10**400", "Give one number"),
        ("7", "between 0 and 1"),
    ],
}

# The right answer in other forms: each must pass.
RIGHT = {
    "diagnosis": ["'Healthy'", "' healthy '"],
    "loss_of_step": ["-0.18", "-0.17", "__import__('fractions').Fraction(-7, 40)"],
    "wasted": ["round(history['frac_reward_zero_std'].tail(10).mean(), 2)"],
}


def context(run) -> dict:
    """The history of the run, and the names that the notebook has imported by then."""
    history = read_metrics(run.require("metrics.csv"))
    names = {"PROJECT": PROJECT, "shown": shown, "plots": plots}
    return names | {
        "history": history,
        "first_and_last": first_and_last,
        "read_metrics": read_metrics,
    }
