"""The checks of notebook 04's exercises."""

import math


def check_diagnosis(answer):
    names = ("truncated answers", "hacked reward", "dead groups", "exploding KL", "healthy")
    if answer is None:
        return "Not answered yet: choose one of the five names."
    answer = {name.lower(): name for name in names}.get(str(answer).strip().lower())
    if answer is None:
        return f"Choose one of: {', '.join(names)}."
    ### BEGIN HIDDEN TESTS
    messages = {
        "healthy": (
            "Right: correctness rises with the reward, nothing is cut off, "
            "and more groups are dead because more answers are correct."
        ),
        "dead groups": "More groups are dead at the end, but correctness has risen. In C they were dead from the start.",
        "truncated answers": "The length grows, but nothing is cut off: see the dotted line among the shares.",
        "hacked reward": "Correctness rises with the reward. If a reward is hacked, it does not.",
        "exploding KL": "Look at its axis: the running median stays below a tenth of a nat. In D it soon passed 1.",
    }
    return messages[answer]
    ### END HIDDEN TESTS
    return "Noted: it is checked when handed in."


def check_loss_of_step(answer):
    if answer is None:
        return "Not answered yet: give one number."
    try:
        given = float(answer)
    except (TypeError, ValueError, OverflowError):
        return "Give one number."
    ### BEGIN HIDDEN TESTS
    right = -(50 * 0.7 - 30 * 0.7) / 80
    if abs(given - right) < 0.006:  # rounded to two decimals, up or down
        return (
            "Right: -0.175. It is below zero only because the better completion is the longer one. It does not measure "
            "progress."
        )
    if abs(given + right) < 0.006:
        return "The sign is the other way round: the loss is minus what is to become likely."
    if abs(given) < 0.005:
        return "Zero is the mean over completions. `dapo` averages over tokens, and the better completion has more of them."
    if abs(abs(given) - 80 * -right) < 0.5:
        return "That is the sum over the tokens. Divide it by their number, 80."
    if abs(abs(given) - 40 * -right) < 0.5:
        return "You divided by the two completions. `dapo` divides by the 80 tokens."
    return "Not yet: 50 tokens contribute -0.7 each and 30 contribute +0.7 each. What is their mean?"
    ### END HIDDEN TESTS
    return "Noted: it is checked when handed in."


def check_predicted(answer):
    if answer is None:
        return "Not answered yet: give two numbers, (mean reward, accuracy)."
    try:
        reward, accuracy = map(float, answer)
    except (TypeError, ValueError, OverflowError):
        return "Give two numbers, (mean reward, accuracy)."
    ### BEGIN HIDDEN TESTS

    def near(value, wanted):
        return math.isclose(value, wanted, abs_tol=0.005)

    if near(reward, 0.52) and near(accuracy, 0.77):
        return "The mean reward comes first, then the accuracy."
    if near(reward, 0.52):
        return "0.52 is what correctness earns. Add what the format earns, with its weight."
    if near(reward, 0.65):
        return "You paid for the format only where the answer is correct. B always writes it."
    if near(reward, 1.52):
        return "The format has a weight of 0.25."
    if not near(reward, 0.77):
        return "Not yet: multiply each reward's mean by its weight, 1 and 0.25, and add the two."
    if near(accuracy, 52):
        return "The mean reward is right. Give the accuracy as a share, from 0 to 1."
    if not near(accuracy, 0.52):
        return "The mean reward is right. The accuracy is the share of correct answers, whatever the format earns."
    return "Right: B earns more than A, 0.77 against 0.75, but is correct less often. Choose by accuracy, as in notebook 5."
    ### END HIDDEN TESTS
    return "Noted: it is checked when handed in."
