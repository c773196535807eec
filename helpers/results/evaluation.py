"""How good is a model, and how sure are we: accuracy, pass@k and majority vote on the holdout, each
with a 95 % interval, and two models compared on the same questions. `answering.py` makes the
completions that are scored here.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from helpers.results.intervals import mcnemar_test, paired_interval, wilson_interval
from helpers.rewards.answers.kinds import vote_of
from helpers.rewards.common import is_own
from helpers.rewards.correctness import answer_of, correctness_reward
from helpers.rewards.faults import checked_scores
from helpers.rewards.structure import format_reward
from helpers.tags import THINK_ANSWER, TagFormat

# --- Accuracy -------------------------------------------------------------------------------------


def right(
    completions: list[str],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    judge: Callable | None = None,
    rows: pd.DataFrame | None = None,
) -> list[bool]:
    """Return, for each completion, whether the judge gives it full success, 1.0. One answer per
    completion.

    judge: a reward function, called with `completions` and `answer` as TRL would; None takes
        `correctness_reward` with these tags. What it scores None is not right. ValueError if it
        raises or gives no number.
    rows: the data, a row per completion, whose other columns the judge gets too. A training judges
        with them: by `question`, a sum that is copied from it is no answer, and `kind` says how
        an answer is judged.
    """
    judge = judge or partial(correctness_reward, tags=tags)
    columns = {"answer": answers}
    if rows is not None:
        columns |= rows.drop(columns=["prompt", "answer"], errors="ignore").to_dict("list")
    messages = [[{"role": "assistant", "content": text}] for text in completions]
    scores, faults = checked_scores(judge, messages, columns, is_own(judge))
    if faults:
        raise ValueError(f"the judge {faults[0]}. {faults[0].advice}")
    # a full success: 0.1 + 0.2 + 0.7 is not quite 1.0
    return [score is not None and score >= 1 - 1e-9 for score in scores]


def score(
    completions: list[str],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    *,
    judge: Callable | None = None,
    rows: pd.DataFrame | None = None,
    difficulty: list | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> dict:
    """Return an entry of evaluation.json: accuracy, ci95 (two bounds), n, in_format (the share that
    is exactly the format).

    One completion a question; all lists have the same length.

    judge, rows: see `right`.
    difficulty: a level a question, number or text; adds `by_difficulty`, accuracy, ci95 and n by
        level, the lowest first. A question without a level (None, nan) counts in none.
    count_tokens: the tokens of one text; adds `mean_length`, that of the completions, in tokens.
    """
    correct = right(completions, answers, tags, judge, rows)
    entry = proportion(correct)
    entry["in_format"] = sum(format_reward(completions, tags)) / len(correct)
    if count_tokens is not None:
        entry["mean_length"] = sum(map(count_tokens, completions)) / len(correct)
    if difficulty is not None:
        entry["by_difficulty"] = {}
        # pandas leaves out what has no level, and sorts the others
        for level, of_level in pd.Series(correct).groupby(pd.Series(difficulty)):
            # a column of whole numbers with gaps is one of floats to pandas: 2.0 is level 2
            name = f"{level:g}" if isinstance(level, float) else str(level)
            entry["by_difficulty"][name] = proportion(of_level.tolist())
    return entry


def proportion(correct: list[bool]) -> dict:
    """Return the share that is right, with its interval: a part of every entry."""
    low, high = wilson_interval(sum(correct), len(correct))
    return {"accuracy": sum(correct) / len(correct), "ci95": [low, high], "n": len(correct)}


# --- Several samples a question -------------------------------------------------------------------


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k samples is right, estimated without bias from n
    samples of which c are right.

    1 - C(n-c, k) / C(n, k): Chen et al., arXiv 2107.03374, equation 1. In whole numbers until the
    one division, so nothing overflows or cancels. For 0 <= c <= n and 1 <= k <= n.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every


def majority_vote(completions: list[str], tags: TagFormat = THINK_ANSWER) -> str:
    """Return the completion that stands for the most frequent answer among the samples of one
    question; "" if none has an answer.

    Answers are one vote where they are equal as numbers or as text (`42` and `42.0`; mathematics is
    not worked out; `5%` is 0.05 and not 5, whatever came before). What has no answer block, or
    blocks that disagree, does not vote. Of several with the most votes, the one that reached that
    number first wins. Self-consistency: Wang et al., arXiv 2203.11171.

    >>> majority_vote(["<answer>7</answer>", "<answer>42</answer>", "no", "<answer>42.0</answer>"])
    '<answer>42</answer>'
    """
    voters: dict[str, list[str]] = {}  # the completions, by what their answers have in common
    winner = ""
    most = 0
    for completion in completions:
        answer = answer_of(completion, tags)
        if not answer:
            continue
        group = voters.setdefault(vote_of(answer), [])
        group.append(completion)
        if len(group) > most:
            winner = group[0]
            most = len(group)
    return winner


def sampled_scores(
    groups: list[list[str]],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    *,
    judge: Callable | None = None,
    rows: pd.DataFrame | None = None,
) -> dict:
    """Return pass@k and the majority vote of several completions per question, as evaluation.json
    holds them.

    groups: the completions of each question, equally many. A k above their number is left out.
    judge, rows: see `right`; a row per question.

    Returns samples, pass_at_k_questions, pass_at_k (by k, as text: value and ci95) and majority
    (accuracy, ci95, n). All intervals are `wilson_interval`'s for that many questions, so those of
    pass@k are rather too wide where a question's chance is neither 0 nor 1. A bootstrap over the
    questions would be narrower, but next to 0 and 1 it is sure of what no question of the sample
    happened to show. ValueError if there are no groups or groups of several sizes.
    """
    (samples,) = {len(group) for group in groups}
    # Judge all samples at once: each answer and each row as often as there are samples.
    texts = [text for group in groups for text in group]
    golds = [gold for gold in answers for _ in range(samples)]
    repeated = None if rows is None else rows.iloc[np.repeat(np.arange(len(rows)), samples)]
    flat = right(texts, golds, tags, judge, repeated)
    # How many questions have 0, 1, … right samples; nothing else matters to pass@k.
    counts = np.bincount(np.reshape(flat, (-1, samples)).sum(axis=1), minlength=samples + 1)
    chances = {}
    for k in ks:
        if k <= samples:
            total = float(counts @ np.array([pass_at_k(samples, c, k) for c in range(samples + 1)]))
            interval = list(wilson_interval(total, len(groups)))
            chances[str(k)] = {"value": total / len(groups), "ci95": interval}
    voted = [majority_vote(group, tags) for group in groups]
    majority = right(voted, answers, tags, judge, rows)
    return {
        "samples": samples,
        "pass_at_k_questions": len(groups),
        "pass_at_k": chances,
        "majority": proportion(majority),
    }


# --- Two models on the same questions -------------------------------------------------------------


def compare(
    before: list[str],
    after: list[str],
    questions: list[str],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    *,
    judge: Callable | None = None,
    rows: pd.DataFrame | None = None,
    names: tuple[str, str] = ("baseline", "trained"),
    examples: int = 3,
) -> dict:
    """Compare two models on the same questions, one completion each: an entry of comparison.json.

    judge, rows: see `right`.

    Returns before and after (the names), n, won (questions that only the second model answers),
    lost (only the first), both_right, both_wrong, p_value (`mcnemar_test`), difference of the
    accuracies (after - before) with difference_ci95 (`paired_interval`), and the first `examples`
    questions of either kind as won_examples and lost_examples.
    """
    table = pd.DataFrame(
        {"question": questions, "answer": answers, "before": before, "after": after}
    )
    right_before = np.array(right(before, answers, tags, judge, rows))
    right_after = np.array(right(after, answers, tags, judge, rows))
    won = table[right_after & ~right_before]
    lost = table[right_before & ~right_after]
    return compare_outcomes(right_before, right_after, names) | {
        "won_examples": won.head(examples).to_dict("records"),
        "lost_examples": lost.head(examples).to_dict("records"),
    }


def compare_outcomes(before, after, names: tuple[str, str]) -> dict:
    """Return what `compare` does, without the examples, for whatever each of two models was right
    on.

    before, after: True or False for each question, or for each game, in the same order.
    """
    before = np.array(before, dtype=bool)
    after = np.array(after, dtype=bool)
    won = int(sum(after & ~before))
    lost = int(sum(before & ~after))
    both = int(sum(before & after))
    neither = int(sum(~before & ~after))
    return {
        "before": names[0],
        "after": names[1],
        "n": len(before),
        "won": won,
        "lost": lost,
        "both_right": both,
        "both_wrong": neither,
        "p_value": mcnemar_test(won, lost),
        "difference": (won - lost) / len(before),
        "difference_ci95": list(paired_interval(both, won, lost, neither)),
    }


# --- As text --------------------------------------------------------------------------------------


def comparison_lines(comparison: dict) -> list[str]:
    """Return the result of `compare` as lines of text: questions won and lost with the test, and
    the difference with its interval.
    """
    p = comparison["p_value"]
    surprise = f"p = {p:.3g}" if p >= 1e-15 else "p < 1e-15"
    low, high = comparison["difference_ci95"]
    return [
        f"{comparison['after']} against {comparison['before']}: won {comparison['won']}, lost "
        f"{comparison['lost']} of {comparison['n']}; exact McNemar {surprise}",
        f"accuracy {100 * comparison['difference']:+.1f} points "
        f"({100 * low:.1f} to {100 * high:.1f})",
    ]
