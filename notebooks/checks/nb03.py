"""The checks of notebook 03's exercises."""

import contextlib
import statistics
from numbers import Real


def check_advantages(answer):
    rewards, given = [1.25, 0.25, 0.25, 0.0], []
    if answer is None:
        return "Not answered yet: give a list of four numbers."
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        given = [float(value) for value in answer]
    if len(given) != 4:
        return "Give a list of four numbers, one for each completion."
    ### BEGIN HIDDEN TESTS
    mean, spread, other = statistics.fmean(rewards), statistics.stdev(rewards), statistics.pstdev(rewards)
    mistakes = [
        (
            lambda r: (r - mean) / spread,
            "Right: 1.47, -0.34, -0.34 and -0.79. One is pushed up and three down, the one without any reward the most.",
        ),
        (lambda r: r - mean, "You subtracted the mean and stopped there. Divide by the group's standard deviation as well."),
        (
            lambda r: (r - mean) / other,
            "You divided the squares by 4. TRL takes a sample's standard deviation: divide by 3.",
        ),
        (lambda r: (mean - r) / spread, "Your signs are the wrong way round: above the mean, an advantage is positive."),
        (lambda r: r / spread, "You divided the rewards themselves. Subtract the group's mean first."),
    ]
    for formula, message in mistakes:
        if all(abs(value - formula(reward)) < 0.02 for value, reward in zip(given, rewards, strict=True)):
            return message
    if all(abs(value - mistakes[0][0](reward)) < 0.02 for value, reward in zip(sorted(given), sorted(rewards), strict=True)):
        return "These are the right numbers in another order. Give them in the order of the rewards: 1.25, 0.25, 0.25, 0."
    if not any(given):
        return "Only a dead group has four zeros. Here one completion is better than the others."
    if abs(sum(given)) < 0.05:
        return "They sum to zero, but their scale is not that of this group. What did you divide by?"
    return f"The advantages of a group sum to zero; yours sum to {sum(given):.2f}. Which mean did you subtract?"
    ### END HIDDEN TESTS
    return "Noted: it is checked when handed in."


def check_betas(answer):
    values = {0.01, 1, 10}
    if answer is None:
        return "Not answered yet: give a beta for each of A, B and C."
    if not isinstance(answer, dict) or set(answer) != {"A", "B", "C"}:
        return 'Give a dictionary with the keys "A", "B" and "C".'
    if any(not isinstance(value, Real) for value in answer.values()) or set(answer.values()) != values:
        return "The three values are 0.01, 1 and 10, each of them once."
    ### BEGIN HIDDEN TESTS
    right = {"A": 1, "B": 10, "C": 0.01}
    if answer == right:
        return (
            "Right: from 0.01 to 1 to 10, the KL falls, and the policy learns less. With beta = 10 it learned nothing: B's KL "
            "stays below 0.002, and its reward changes with the questions drawn. C and D cannot be told apart: C has the "
            "higher median KL, but D has the higher KL in six of the last ten steps. So a beta of 0.01 did not hold this "
            "policy back."
        )
    if answer == {"A": 1, "B": 0.01, "C": 10}:
        return "You have it the wrong way round: a larger beta holds the policy back, so its KL is the lowest, not the highest."
    return "Order the three by the KL at their last steps; the lowest KL had the largest beta. Not all of yours fit."
    ### END HIDDEN TESTS
    return "Noted: it is checked when handed in."
