"""The checks of notebook 08's exercises."""


def check_worst(answer) -> str:
    if answer is None or answer is ...:
        return "Not answered yet: put one of the three names into `worst`."
    if not isinstance(answer, str) or answer.strip().lower() not in (
        "easy to hard",
        "hard to easy",
        "carries only",
    ):
        return f"{answer!r} is none of the three names: easy to hard, hard to easy, carries only."
    ### BEGIN HIDDEN TESTS
    mistakes = {
        "hard to easy": "Hard questions are a good start here: they tell the two workings apart, "
        "and they come while the learning rate is high. What the policy learns there stays when "
        "easy questions follow.",
        "carries only": "Easy questions are not needed here: careful working is correct on them too, "
        "so a policy that learned it elsewhere loses nothing there.",
    }
    if answer.strip().lower() in mistakes:
        return mistakes[answer.strip().lower()]
    return (
        "Right: without a carry the careless working is correct as well, so the first third of the "
        "steps rewards both. Pupils may need easy questions first; a policy needs questions on "
        "which the working it should learn earns more."
    )
    ### END HIDDEN TESTS
    return "Noted. This edition does not say whether it is right."


def check_interval(answer) -> str:
    import math

    if answer is None or answer is ...:
        return "Not answered yet: put the two bounds into `interval`."
    try:
        low, high = (float(bound) for bound in answer)
    except (TypeError, ValueError, OverflowError):
        return f"{answer!r} is not two numbers: give (low, high)."
    if not (math.isfinite(low) and math.isfinite(high)):
        return "Both bounds must be finite numbers."
    ### BEGIN HIDDEN TESTS

    def near(a, b):
        return abs(low - a) < 0.06 and abs(high - b) < 0.06

    if low < -10 and high > 20:
        return (
            "You compared two groups of three. Each group spreads by 20 points because the seeds "
            "differ, and that hides a difference which every seed shows. Subtract within each seed "
            "first."
        )
    if near(-6.48, -1.52):
        return "You subtracted the recipe from the plain training. A gain should be above 0."
    if near(6.48, 1.52):
        return "The bounds are right but in the wrong order: the lower one comes first."
    if near(4, 2.48):
        return "These are the mean and the half width. Give the bounds: mean minus half, mean plus half."
    if near(3.42, 4.58):
        return "You left out t: the half width is 4.303 times s / √n."
    if near(2.87, 5.13):
        return "You used 1.96, which is for many seeds. With three seeds, t is 4.303."
    if near(1.97, 6.03):
        return "You divided by n in the standard deviation. A sample of three takes n - 1."
    if near(-0.3, 8.3):
        return "You left out the root of n: that is the spread of one difference, not of their mean."
    if near(0.0152, 0.0648):
        return "You gave shares. The question asks for percentage points: multiply by 100."
    if not near(1.52, 6.48):
        return (
            "These are not the bounds. The differences are 3, 4 and 5, their mean is 4 and their s "
            "is 1: put both into the formula."
        )
    return (
        "Right: 1.5 to 6.5, clear of 0. Unpaired, the interval would be about -20 to 28, because "
        "the seeds differ by 20 points. Pairing removes what both trainings owe to the seed."
    )
    ### END HIDDEN TESTS
    return "Noted. This edition does not say whether it is right."
