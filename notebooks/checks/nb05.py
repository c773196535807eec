"""Checks of the exercises of notebook 05."""

import math


def check_p_value(answer):
    """Judge the p-value of 6 questions won and 1 lost."""
    if answer is None:
        return "Not answered yet: set p_value."
    must = f"A probability is one number between 0 and 1, not {answer!r}."
    try:
        answer = float("nan") if isinstance(answer, bool | str) else float(answer)  # a fraction is a number, too
    except (TypeError, ValueError, OverflowError):
        return must
    if not 0 <= answer <= 1:
        return must
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    counted = {
        16 / 128: "Right: 16 of 128 sequences. Seven such questions are too few to call the second model better.",
        8 / 128: "You counted one direction only. If training does nothing, 1 to 6 is as likely as 6 to 1, and as uneven.",
        14 / 128: "You left out 7 to 0 and 0 to 7: they are more uneven, and 'at least' counts them.",
        7 / 128: "These are the sequences with exactly one loss. 7 to 0 counts too, and so does the other direction.",
        5 / 256: "That is the difference of the two accuracies, (6 - 1) / 256. The p-value counts tosses of a coin.",
    }
    nearest = min(counted, key=lambda value: abs(answer - value))
    message = counted[nearest]
    if abs(answer - nearest) > 0.0051:  # two decimals will do
        message = "Divide the sequences with 0, 1, 6 and 7 heads by 128. The 249 others do not matter."
    ### END HIDDEN TESTS
    return message


def check_pass_at_8(answer, evaluation):
    """Judge pass@8 as it would be if all samples of all questions were alike."""
    if answer is None:
        return "Not answered yet: set pass_at_8."
    must = f"pass@8 is one number between 0 and 1, not {answer!r}."
    try:
        answer = float("nan") if isinstance(answer, bool | str) else float(answer)  # a fraction is a number, too
    except (TypeError, ValueError, OverflowError):
        return must
    if not math.isfinite(answer):
        return must
    if "pass_at_k" not in evaluation["baseline"]:
        return "pass@k was not measured in this run: raise sampling_seconds."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    curve = {k: point["value"] for k, point in evaluation["baseline"]["pass_at_k"].items()}
    p, measured = curve["1"], curve.get("8", math.nan)
    expected = 1 - (1 - p) ** 8
    alike = "Questions differ: easy ones cannot pass 100%, and hard ones stay lower, so their mean is lower."
    compared = f"Measured: {measured:.1%}. {alike}" if "8" in curve else "To measure it, set `samples` to 8 or more."
    right = f"Right: {expected:.1%}. {compared}"
    known = [
        (expected, right),
        (8 * p, "Chances do not simply add up: 8 p can exceed 1. Begin with the chance that all eight are wrong."),
        (p**8, "p to the power of 8 is the chance that all eight samples are correct. One correct sample is enough."),
        (1 - expected, "That is the chance that all eight are wrong. pass@8 is the opposite."),
        (1 - p**8, "You took the opposite of 'all correct', which is 'at least one wrong'. Take the opposite of 'all wrong'."),
        (measured, "That is what was measured. Compute what p alone predicts."),
        (100 * expected, "That is in per cent: divide by 100."),
    ]
    found = [said for value, said in known if math.isclose(answer, value, rel_tol=1e-4, abs_tol=1e-9)]
    if not found and abs(answer - expected) < 0.0051:  # p and the answer may be rounded
        found = [right]
    found = found or [said for value, said in known if math.isclose(answer, value, rel_tol=5e-3)]
    message = found[0] if found else "One sample is wrong with the chance 1 - p. How likely are eight wrong ones in a row?"
    ### END HIDDEN TESTS
    return message
