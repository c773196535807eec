"""Wrong answers to the exercises of notebook 09, and what each must be told."""

# name: (an answer as Python source, words that the message must contain)
WRONG = {
    "inputs": [
        ("[[5, 9]]", "uses >= for > passes"),
        ("[[4]]", "forgets to subtract passes"),
        ("[[4, 9], [5]]", "uses >= for > passes"),
        ("[[4, 2], []]", "forgets to subtract passes"),
        ("[[2], [5, 9]]", "uses >= for > passes"),
        ("[[4, 5], [2, 3]]", "uses >= for > passes"),
        ("[[1, 4, 4], [2]]", "forgets to subtract passes"),
        ("[[4], [5], [6]]", "one or two lists"),
        ("[4, 5]", "one or two lists"),
        ("[[True], [5]]", "one or two lists"),
        ("[['4'], [5]]", "one or two lists"),
        ("'[[4], [5]]'", "one or two lists"),
        ("[]", "one or two lists"),
    ],
    "means": [
        ("(0.5, 0.3)", "forgot the luck"),
        ("(0.35, 0.3)", "forgot the tables"),
        ("(0.3, 0.3)", "so does one in seven"),
        ("(0.3, 0.55)", "comes first"),
        ("(0.85, 0.3)", "has not passed"),
        ("(0.55, 0.35)", "only correct ones pass"),
        ("(0.9, 0.3)", "add the correct ones"),
        ("(float('nan'), 0.3)", "add the correct ones"),
        ("(0.55, float('nan'))", "only correct ones pass"),
        ("(10**400, 0)", "two numbers"),
        ("0.55", "two numbers"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "inputs": ["[[4], [9]]", "([4, -3], [7, 5, 1])", "[[100], [4]]"],
    "means": ["[0.55, 0.3]", "__import__('numpy').array([0.55, 0.3])"],
}
