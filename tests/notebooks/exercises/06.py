"""Exercises of notebook 06: wrong answers with the words that must answer them; correct ones."""

import torch

WRONG = {
    "hotter": [
        ("0.844", "at temperature 1"),
        ("0.9796", "You multiplied by the temperature"),
        ("0.75", "share of the sum of the logits"),
        ("0.231", "the second token's"),
        ("62.85", "per cent"),
        ("0.84", "at temperature 1"),
        ("10**400", "not a number"),
        ("0.5", "0.5 is not it"),
        ("float('nan')", "not a number"),
        ("'0.63'", "not a number"),
        ("[0.63]", "not a number"),
        ("True", "not a number"),
    ],
    "leave_one_out": [
        ("lambda r: r - r.mean(1, keepdim=True)", "still contains the completion"),
        ("lambda r: r - r.mean()", "mean of the whole batch"),
        ("lambda r: r - (r.sum(1, keepdim=True) - r) / r.shape[1]", "you divided their sum by G"),
        ("lambda r: r - (r.sum(1, keepdim=True) - r) / 7", "Tried in groups of 3"),
        ("lambda r: (r.sum(1, keepdim=True) - r) / (r.shape[1] - 1)", "That is the baseline"),
        ("lambda r: (r.sum(1, keepdim=True) - r) / (r.shape[1] - 1) - r", "sign is wrong"),
        (
            "lambda r: (r - r.mean(1, keepdim=True)) * r.shape[1] / (r.shape[1] - 1) / r.std(1, "
            "keepdim=True)",
            "Do not divide by the spread",
        ),
        (
            "lambda r: (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)",
            "GRPO's advantages",
        ),
        ("lambda r: r.mean(1)", "The shape is (5,), and should be (5, 8)"),
        ("lambda r: r * float('nan')", "Off by"),
        ("lambda r: r.no_such_thing()", "raised AttributeError"),
        ("lambda r: 'right'", "returns a str"),
        ("lambda r: {'right': r}", "returns a dict"),
        ("0.5", "raised TypeError"),
    ],
}


# Ways to solve an exercise beside the notebook's own, in tensors, arrays and lists: each must count
# as correct.
RIGHT = {
    "leave_one_out": [
        lambda r: (
            r.double().numpy()
            - (r.double().sum(1, keepdim=True) - r.double()).numpy() / (r.shape[1] - 1)
        ),
        lambda r: [row - (row.sum() - row) / (len(row) - 1) for row in r],
    ],
    "hotter": [0.6285, 0.63, 0.628, torch.tensor([3.0, 1.0, 0.0]).div(2).softmax(0)[0]],
}
