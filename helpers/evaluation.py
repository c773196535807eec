"""How good is a model, and how sure are we: accuracy on the holdout with a 95 % interval."""

from __future__ import annotations

import math

from helpers.formats import THINK_ANSWER, TagFormat
from helpers.rewards import correctness_reward, format_reward

_Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


def wilson_interval(successes: int, n: int, z: float = _Z95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (E. B. Wilson, JASA 22, 1927); honest at 0 and at 1, unlike mean ± z·se.

    >>> [round(bound, 3) for bound in wilson_interval(90, 100)]
    [0.826, 0.945]
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} is not a proportion.")
    p, z2 = successes / n, z * z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # Rounding may push the bounds of 0/n and n/n past the point itself by 1e-17.
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def score(completions: list[str], answers: list[str], tags: TagFormat = THINK_ANSWER) -> dict:
    """One entry of evaluation.json: accuracy, ci95 (two bounds), n, in_format (the share that is exactly the format).

    One completion a question; both lists have the same length.
    """
    correct = int(sum(correctness_reward(completions, answers, tags)))
    low, high = wilson_interval(correct, len(answers))
    return {
        "accuracy": correct / len(answers),
        "ci95": [low, high],
        "n": len(answers),
        "in_format": sum(format_reward(completions, tags)) / len(answers),
    }


def summary(evaluation: dict[str, dict]) -> list[str]:
    """evaluation.json as lines of text: a model a line, accuracy with its interval, greedy accuracy, in-format share."""
    lines = [f"{'':<12}{'sampled':>9}   {'95 % interval':<19}{'greedy':>7}{'in format':>12}{'questions':>11}"]
    for name, entry in evaluation.items():
        low, high = entry["ci95"]
        greedy = entry.get("greedy", {}).get("accuracy", float("nan"))
        lines.append(
            f"{name:<12}{entry['accuracy']:>9.1%}   {f'{low:.1%} to {high:.1%}':<19}{greedy:>7.1%}"
            f"{entry['in_format']:>12.1%}{entry['n']:>11}"
        )
    return lines
