"""The checks of notebook 06's exercises."""

import torch


def check_hotter(answer):
    """A sentence on a predicted probability: right, or what probably went wrong."""
    if answer is None:
        return "Not answered yet: set `hotter` to a probability."
    must = f"{answer!r} is not a number between 0 and 1, as a probability is."
    try:
        # a tensor may hold the number, too
        answer = float("nan") if isinstance(answer, bool | str) else float(answer)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return must
    if answer != answer:
        return must
    ### BEGIN HIDDEN TESTS
    likely = {
        0.844: "That is the probability at temperature 1. Divide the logits by 2 first.",
        0.980: "You multiplied by the temperature. Dividing by 2 brings the logits closer together.",
        0.750: "That is the logit's share of the sum of the logits. The softmax first takes e to the power of each.",
        0.231: "That is the second token's probability. The first has the logit 3.",
        62.85: "The number is right, but in per cent. A probability is between 0 and 1.",
    }
    if abs(answer - 0.6285) < 0.004:
        return (
            "Right: 0.63. At temperature 1 it is 0.84: a higher one brings probabilities closer together, so samples differ "
            "more."
        )
    for value, mistake in likely.items():
        if abs(answer - value) < 0.0051 * max(1, value):
            return mistake
    return f"{answer:g} is not it. Divide 3, 1 and 0 by 2, take e to the power of each, and divide the first by their sum."
    ### END HIDDEN TESTS
    if not 0 <= answer <= 1:
        return must
    return "Noted. This edition does not tell you whether it is right."


def check_leave_one_out(solution):
    """A sentence on a `leave_one_out`: right, or what probably went wrong."""

    def attempted(rewards):
        """What the solution returns for a copy of the rewards, as a tensor of floats; or a sentence that says why not."""
        try:
            given = solution(rewards.clone())
        except Exception as error:
            return f"Your function raised {type(error).__name__}: {error}"
        if given is None:
            return "Not answered yet: the function returns None."
        try:
            if isinstance(given, list | tuple):
                given = torch.stack([torch.as_tensor(row) for row in given])
            return torch.as_tensor(given).float()
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return f"Your function returns a {type(given).__name__}. It should return a tensor."

    given = attempted(torch.rand(5, 8))
    if isinstance(given, str):
        return given
    ### BEGIN HIDDEN TESTS
    for size in (8, 3):
        rewards = torch.rand(5, size)
        mean, total = rewards.mean(dim=1, keepdim=True), rewards.sum(dim=1, keepdim=True)
        spread, others = rewards.std(dim=1, keepdim=True), (total - rewards) / (size - 1)
        right = rewards - others
        likely = {
            "The mean still contains the completion it judges.": rewards - mean,
            "That is the mean of the whole batch. Take that of the group: dim=1.": rewards - rewards.mean(),
            "There are G - 1 others; you divided their sum by G.": rewards - (total - rewards) / size,
            "These are GRPO's advantages. Leave yourself out of the mean, and do not divide.": (rewards - mean) / spread,
            "Do not divide by the spread.": (rewards - others) / spread,
            "That is the baseline. Subtract it from the reward.": others,
            "The sign is wrong: it is the reward minus the baseline.": others - rewards,
        }
        given, tried = attempted(rewards), f"(Tried in groups of {size}.)"
        if isinstance(given, str):
            return f"{given} {tried}"
        if given.shape != right.shape:
            return f"The shape is {tuple(given.shape)}, and should be {tuple(right.shape)}. {tried}"
        if torch.allclose(given, right, atol=1e-4):
            continue
        for mistake, wrong in likely.items():
            if torch.allclose(given, wrong, atol=5e-3):
                return f"{mistake} {tried}"
        return f"Off by up to {(given - right).abs().nan_to_num(9e9).max():.3f}. {tried}"
    return "Right. A completion no longer pulls its own baseline up, so the estimate of the gradient has no bias."
    ### END HIDDEN TESTS
    return "Noted. This edition does not tell you whether it is right."
