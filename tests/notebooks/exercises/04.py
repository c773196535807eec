"""Wrong answers to the exercises of notebook 04, and what their cells take from earlier ones."""

from helpers import PROJECT
from helpers.diagrams import shown
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
        ("0", "Zero is the mean over completions"),
        ("-14", "the sum over the tokens"),
        ("-7.0", "divided by the two completions"),
        ("-0.5", "30 contribute"),
    ],
    "wasted": [
        ('1 - history["frac_reward_zero_std"].tail(10).mean()', "the share that did teach"),
        ('history["reward_std"].tail(10).mean()', "the spread over the whole batch"),
        ("7", "between 0 and 1"),
    ],
}


def context(run) -> dict:
    """The history of the run, and the names that the notebook has imported by then."""
    history = read_metrics(run.require("metrics.csv"))
    names = {"PROJECT": PROJECT, "shown": shown, "plots": plots}
    return names | {"history": history, "first_and_last": first_and_last, "read_metrics": read_metrics}
