"""The exercises of notebook 06: what their cells use, wrong answers with the words that must answer
them, right ones.
"""

import torch
from reading import defined


def context(run) -> dict:
    """What the three checks of functions share; `run`, a finished run, is not needed."""
    return defined("06", "def attempted(", torch=torch)


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
        ("lambda r: (r.sum(1, keepdim=True) - r) / (r.shape[1] - 1) - r", "sign is turned round"),
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
    "without_truncated": [
        ("lambda ids, mask, end: mask", "Nothing is left out"),
        ("lambda ids, mask, end: mask * 0", "Everything is left out"),
        (
            "lambda ids, mask, end: mask * ~((ids == end) & (mask == 1)).any(1, keepdim=True)",
            "swapped",
        ),
        (
            "lambda ids, mask, end: mask * (ids == end).any(1, keepdim=True)",
            "where the mask is 0 does not count",
        ),
        (
            "lambda ids, mask, end: mask * ((ids == 2) & (mask == 1)).any(1, keepdim=True)",
            "You take 2 for the end token",
        ),
        (
            "lambda ids, mask, end: ((ids == end) & (mask == 1)).any(1, keepdim=True)",
            "the whole mask",
        ),
        ("lambda ids, mask, end: mask * 1.9", "Off by up to"),
    ],
    "sequence_ratio": [
        ("lambda new, old, mask: (new - old).mean(1).exp()", "The padding counts too"),
        ("lambda new, old, mask: ((new - old) * mask).mean(1).exp()", "You divided by T"),
        ("lambda new, old, mask: ((new - old) * mask).sum(1).exp()", "its root of order"),
        (
            "lambda new, old, mask: ((new - old).exp() * mask).sum(1) / mask.sum(1)",
            "arithmetic mean",
        ),
        ("lambda new, old, mask: (new - old).exp() * mask", "one for each completion"),
        (
            "lambda new, old, mask: ((new - old) * mask).sum(1) / mask.sum(1)",
            "the exponential at the end",
        ),
        ("lambda new, old, mask: (((old - new) * mask).sum(1) / mask.sum(1)).exp()", "swapped"),
        (
            "lambda new, old, mask: (((new - old) * mask).sum(1) / mask.sum(1)).exp()[None]",
            "The shape is (1, 6)",
        ),
    ],
}


# Ways to solve an exercise beside the notebook's own, in tensors, arrays and lists: each must count
# as right.
RIGHT = {
    "leave_one_out": [
        lambda r: (
            r.double().numpy()
            - (r.double().sum(1, keepdim=True) - r.double()).numpy() / (r.shape[1] - 1)
        ),
        lambda r: [row - (row.sum() - row) / (len(row) - 1) for row in r],
    ],
    "without_truncated": [
        lambda ids, mask, end: mask * ((ids == end) & mask).any(dim=1, keepdim=True),
        lambda ids, mask, end: [
            m if end in i[m.bool()] else 0 * m for i, m in zip(ids, mask, strict=True)
        ],
    ],
    "sequence_ratio": [
        lambda new, old, mask: (
            (((new - old).exp() ** mask).prod(1, keepdim=True)) ** (1 / mask.sum(1, keepdim=True))
        ),
        lambda new, old, mask: (
            ((new - old) * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
        ).exp(),
    ],
    "hotter": [0.6285, 0.63, 0.628, torch.tensor([3.0, 1.0, 0.0]).div(2).softmax(0)[0]],
}
