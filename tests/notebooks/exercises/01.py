"""Exercises of notebook 01: wrong answers, each with words that the check must say to it, and what
the cells use.
"""

from reading import defined

from helpers.data.tasks import load_task

_HEADER = "question,answer\n"
_WHOLE = (
    'What is 12 + 30?,42\nWhat is 9 + 9?,18\nHow many metres are 1.234 km?,"#### '
    '1,234"\nWhat is 7 + 8?,15\nWhat is 20 + 3?,23\n'
)

WRONG = {
    "leak": [
        ("0.1", "That is the chance that the twin is held out too"),
        ("0.5", "a row leaks only if its twin is trained on"),
        ("2 * 0.1 * 0.9", "asks about the 100 rows held out"),
        ("0.9 * 0.1", "Ask about the twin alone"),
        ("1", "Not quite all"),
        ("90", "divide by 100"),
        ("0.7", "ask where its twin can be"),
        ("-0.9", "must be a number between 0 and 1"),
        ("float('nan')", "must be a number between 0 and 1"),
        ("'90 %'", "must be a number between 0 and 1"),
        ("10**400", "must be a number between 0 and 1"),
        ("True", "must be a number between 0 and 1"),
    ],
    "repaired": [
        (repr(_HEADER + _WHOLE.replace('"', "")), "Put a field that contains a comma in quotes"),
        (repr(_HEADER + _WHOLE.replace("15", "")), "answer is blank"),
        (repr(_HEADER + _WHOLE + ",50\n"), "Nobody can repair that row"),
        (
            repr(_HEADER + _WHOLE + "What is 9 + 9?,19\n"),
            "Each question needs one row, with one answer",
        ),
        (repr(_HEADER + _WHOLE.replace("18", "19")), "'what is 9 + 9?' now has the answer '19'"),
        (repr(_HEADER + _WHOLE.replace("What is 7 + 8?,15\n", "")), "its row can be repaired"),
        (repr(_HEADER + _WHOLE + "What is 2 + 2?,4\n"), "no such new questions"),
        (repr(_WHOLE), "load_task refuses the file: no column 'question', 'answer'"),
        ("''", "load_task refuses the file: the file is empty"),
        ("['a row']", "must be the text of the file, a string; it is a list"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "leak": [
        "0.9",
        "0.9009",
        "__import__('fractions').Fraction(900, 999)",
        "__import__('numpy').float32(900 / 999)",
    ],
    "repaired": [
        repr("\n" + _HEADER + _WHOLE),
        repr(_HEADER + _WHOLE.replace('"#### 1,234"', "1234").replace("What is 12", "what is 12")),
    ],
}


def context(run) -> dict:
    """`loaded`, as the notebook defines it."""
    return defined("01", "\ndef loaded(", load_task=load_task)
