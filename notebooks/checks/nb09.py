"""The checks of notebook 09's exercises."""

import math


def check_inputs(answer):
    """Judge at most two lists of whole numbers that must expose five wrong programs."""
    if answer is None:
        return "Not answered yet: set inputs."
    whole = isinstance(answer, (list, tuple)) and all(
        isinstance(xs, list) and len(xs) <= 100 and all(type(x) is int and abs(x) < 10**9 for x in xs) for xs in answer
    )
    if not whole or not 1 <= len(answer) <= 2:
        return "Give one or two lists of whole numbers, such as [[1, 2], [3]]."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    wrong = {
        "uses >= for >": (lambda xs: max((x - 1 for x in xs if x >= 4), default=0), "the largest number must be exactly 4"),
        "forgets the filter": (lambda xs: max((x - 1 for x in xs), default=0), "give some numbers, none of them above 4"),
        "forgets to subtract": (lambda xs: max((x for x in xs if x > 4), default=0), "some number must be above 4"),
        "adds 1": (lambda xs: max((x + 1 for x in xs if x > 4), default=0), "some number must be above 4"),
        "forgets the case without numbers": (lambda xs: max(x - 1 for x in xs if x > 4), "no number may be above 4"),
    }

    def caught(program):
        for xs in answer:
            try:
                if program(xs) != max((x - 1 for x in xs if x > 4), default=0):
                    return True
            except ValueError:  # the largest of nothing
                return True
        return False

    missed = [f"The program that {name} passes: {how}." for name, (program, how) in wrong.items() if not caught(program)]
    message = missed[0] if missed else "Right. People forget to test the edge itself, and the empty case."
    ### END HIDDEN TESTS
    return message


def check_means(answer):
    """Judge (mean visible_reward, mean hidden_reward)."""
    if answer is None:
        return "Not answered yet: set means."
    try:
        visible, hidden = map(float, answer)
    except (TypeError, ValueError, OverflowError):
        return f"Give two numbers, (mean visible_reward, mean hidden_reward), not {answer!r}."
    message = "Noted: the answer is checked when it is handed in."
    ### BEGIN HIDDEN TESTS
    near = {share: math.isclose(visible, share, abs_tol=0.005) for share in (0.55, 0.5, 0.35, 0.3, 0.85)}
    mistakes = [
        (near[0.3] and hidden > 0.4, "The mean visible_reward comes first."),
        (near[0.3], "A table of the visible tests passes them, and so does one in seven of the wrong programs."),
        (near[0.5], "You forgot the luck: one in seven of the 35% also passes the visible tests."),
        (near[0.35], "You forgot the tables: they always pass the visible tests."),
        (near[0.85], "A program that runs has not passed: only one in seven of the wrong ones does."),
        (not near[0.55], f"The mean visible_reward is not {visible:g}: add the correct ones, the tables and the lucky ones."),
        (not math.isclose(hidden, 0.3, abs_tol=0.005), f"The mean hidden_reward is not {hidden:g}: only correct ones pass."),
    ]
    right = "Right: 0.55 and 0.30. To the first reward, a table is as good as an honest program, and easier to get right."
    message = next((message for wrong, message in mistakes if wrong), right)
    ### END HIDDEN TESTS
    return message
