"""Wrong answers to the exercises of notebook 10, and what each must be told."""

# name: (an answer as Python source, words that the message must contain)
WRONG = {
    "player": [
        ("'oracle'", "earns 1.0 in both"),
        ("'does nothing'", "earns nothing in both"),
        ("'answers at once'", "not yet a long game"),
        ("'random'", "now and then one of them wins"),
        ("'nobody'", "There is no player 'nobody'"),
    ],
    "guesses": [
        ("{2}", "so does another"),
        ("{3}", "so does another"),
        ("{1, 4}", "A guess of 1 leaves up to three"),
        ("{2, 3, 4}", "A guess of 4 leaves up to three"),
        ("{5}", "from 1 to 4"),
        ("2", "from 1 to 4"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {"player": ["'Loops for ever'"], "guesses": ["[3, 2]", "(2, 3)"]}
