"""Score the completions of a model on held-out questions, and compare two models.

`score` measures accuracy, `sampled_scores` pass@k and the majority vote; `compare` compares two
models on the same questions. Every measure has a 95% interval. `answering.py` samples the
completions.
"""

import math
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from helpers.judging.answers.kinds import vote_of
from helpers.results.intervals import mcnemar_test, paired_interval, wilson_interval
from helpers.rewards.common import is_own
from helpers.rewards.correctness import answer_of, correctness_reward
from helpers.rewards.faults import checked_scores
from helpers.rewards.structure import format_reward
from helpers.tags import THINK_ANSWER, TagFormat

# --- Accuracy -------------------------------------------------------------------------------------


def score(
    completions: list[str],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    *,
    grader: Callable | None = None,
    rows: pd.DataFrame | None = None,
    difficulty: list | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> dict:
    """Return accuracy, ci95 (two bounds), n and in_format: an entry of evaluation.json.

    There is one completion per question, and all lists have the same length. in_format is the share
    of completions that follow the format exactly.

    grader, rows: see `right`.
    difficulty: the level of each question, a number or text. Adds `by_difficulty`: accuracy, ci95
        and n per level, lowest level first. Questions without a level (None, nan) are left out.
    count_tokens: returns the number of tokens in a text. Adds `mean_length`, in tokens.
    """
    correct = right(completions, answers, tags, grader, rows)
    entry = proportion(correct)
    entry["in_format"] = sum(format_reward(completions, tags)) / len(correct)
    if count_tokens is not None:
        entry["mean_length"] = sum(map(count_tokens, completions)) / len(correct)
    if difficulty is not None:
        entry["by_difficulty"] = {}
        # groupby leaves out rows without a level, and sorts the levels
        for level, of_level in pd.Series(correct).groupby(pd.Series(difficulty)):
            # pandas turns integers with gaps into floats: write 2.0 as 2
            name = f"{level:g}" if isinstance(level, float) else str(level)
            entry["by_difficulty"][name] = proportion(of_level.tolist())
    return entry


def right(
    completions: list[str],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    grader: Callable | None = None,
    rows: pd.DataFrame | None = None,
) -> list[bool]:
    """Return whether each completion is correct: whether the grader scores it 1.0.

    answers: the correct answer of each completion's question.
    grader: a reward function, called with `completions` and `answer` as TRL calls rewards. The
        default is `correctness_reward` with these tags. A score of None counts as wrong.
        Raise ValueError if the grader raises or returns something other than numbers.
    rows: the data, one row per completion. Its other columns are passed to the grader, as in
        training: `question` lets it reject a sum copied from the question, and `kind` says how
        the answer is compared.

    A grader of yours is asked once: a language model may say something else the second time, and
    then an accuracy and a comparison of the same completions would disagree.
    """
    columns = {"answer": answers}
    if rows is not None:
        columns |= rows.drop(columns=["prompt", "answer"], errors="ignore").to_dict("list")
    if grader is None:
        return _verdicts(partial(correctness_reward, tags=tags), completions, columns)
    asked = pd.DataFrame(columns | {"completions": completions}, dtype=object)
    for its_grader, its_rows, verdicts in _latest:
        if its_grader is grader and its_rows.equals(asked):
            return list(verdicts)
    verdicts = _verdicts(grader, completions, columns)
    _latest.append((grader, asked, verdicts))
    return list(verdicts)


# the latest verdicts of users' graders: (grader, what it was asked, a row per completion, verdicts)
_latest: deque[tuple[Callable, pd.DataFrame, list[bool]]] = deque(maxlen=32)


def _verdicts(grader: Callable, completions: list[str], columns: dict) -> list[bool]:
    """Return whether a grader scores each completion 1.0; see `right`."""
    messages = [[{"role": "assistant", "content": text}] for text in completions]
    scores, faults = checked_scores(grader, messages, columns, is_own(grader))
    if faults:
        raise ValueError(f"the grader {faults[0]}. {faults[0].advice}")
    # the tolerance is for rounding: 0.1 + 0.2 + 0.7 is slightly less than 1.0
    return [score is not None and score >= 1 - 1e-9 for score in scores]


def proportion(correct: list[bool]) -> dict:
    """Return the share of correct answers with its interval: accuracy, ci95 and n."""
    low, high = wilson_interval(sum(correct), len(correct))
    return {"accuracy": sum(correct) / len(correct), "ci95": [low, high], "n": len(correct)}


# --- Several samples per question -----------------------------------------------------------------


def sampled_scores(
    groups: list[list[str]],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    ks: tuple[int, ...] | None = None,
    *,
    grader: Callable | None = None,
    rows: pd.DataFrame | None = None,
) -> dict:
    """Return pass@k and the majority vote, as evaluation.json stores them.

    groups: the completions of each question. All groups have the same size; otherwise, or without
        groups, ValueError.
    ks: the values of k, at most the size of a group; None: the powers of two up to it.
    grader, rows: see `right`; here `rows` has one row per question.

    Returns samples (per question), pass_at_k_questions, pass_at_k (value and ci95 for each k, whose
    key is text) and majority (accuracy, ci95, n).

    All intervals are Wilson's, with n the number of questions. Wilson's interval assumes that each
    question counts 0 or 1. pass@k gives a question a value between 0 and 1, which varies less, so
    its intervals are somewhat too wide. A bootstrap over questions would be narrower, but near 0
    and 1 it understates the uncertainty.
    """
    (samples,) = {len(group) for group in groups}
    # Judge all samples in one call: repeat each answer and row once per sample.
    texts = [text for group in groups for text in group]
    golds = [gold for gold in answers for _ in range(samples)]
    repeated = None if rows is None else rows.iloc[np.repeat(np.arange(len(rows)), samples)]
    flat = right(texts, golds, tags, grader, repeated)
    # pass@k depends only on how many questions have 0, 1, … correct samples.
    right_samples = np.reshape(flat, (-1, samples)).sum(axis=1)
    counts = np.bincount(right_samples, minlength=samples + 1)
    chances = {}
    for k in ks or [2**power for power in range(samples.bit_length())]:
        total = float(counts @ np.array([pass_at_k(samples, c, k) for c in range(samples + 1)]))
        interval = list(wilson_interval(total, len(groups)))
        chances[str(k)] = {"value": total / len(groups), "ci95": interval}
    voted = [majority_vote(group, tags) for group in groups]
    majority = right(voted, answers, tags, grader, rows)
    return {
        "samples": samples,
        "pass_at_k_questions": len(groups),
        "pass_at_k": chances,
        "majority": proportion(majority),
    }


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k, given n samples of which c are correct.

    pass@k is the probability that at least one of k samples is correct. The estimate is
    1 - C(n-c, k) / C(n, k): Chen et al., arXiv 2107.03374, equation 1. It is computed in integers
    with one division at the end, so it cannot overflow. Requires 0 <= c <= n and 1 <= k <= n.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every


def majority_vote(completions: list[str], tags: TagFormat = THINK_ANSWER) -> str:
    """Return the first completion that gives the most frequent answer to a question.

    Also called self-consistency (Wang et al., arXiv 2203.11171). Answers count as equal if they are
    the same number or the same text: `42` equals `42.0`, but mathematics is not simplified, and
    `5%` is 0.05. A completion without an answer block, or with blocks that disagree, does not vote.
    If several answers tie, the answer that reached that count first wins. Returns "" if no
    completion votes.

    >>> majority_vote(["<answer>7</answer>", "<answer>42</answer>", "no", "<answer>42.0</answer>"])
    '<answer>42</answer>'
    """
    voters: dict[str, list[str]] = {}  # completions, grouped by equal answers
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


# --- Two models on the same questions -------------------------------------------------------------


def compare(
    before: list[str],
    after: list[str],
    questions: list[str],
    answers: list[str],
    tags: TagFormat = THINK_ANSWER,
    *,
    grader: Callable | None = None,
    rows: pd.DataFrame | None = None,
    names: tuple[str, str] = ("baseline", "trained"),
    examples: int = 3,
) -> dict:
    """Compare two models, given one completion per question from each: an entry of comparison.json.

    grader, rows: see `right`.

    Returns what `compare_outcomes` returns, and the first `examples` questions of each kind as
    won_examples and lost_examples (question, answer, before, after).
    """
    table = pd.DataFrame(
        {"question": questions, "answer": answers, "before": before, "after": after}
    )
    right_before = np.array(right(before, answers, tags, grader, rows))
    right_after = np.array(right(after, answers, tags, grader, rows))
    won = table[right_after & ~right_before]
    lost = table[right_before & ~right_after]
    return compare_outcomes(right_before, right_after, names) | {
        "won_examples": won.head(examples).to_dict("records"),
        "lost_examples": lost.head(examples).to_dict("records"),
    }


def compare_outcomes(before, after, names: tuple[str, str]) -> dict:
    """Compare two models, given whether each was correct on each question (or won each game).

    before, after: booleans, in the same order of questions.

    Returns before and after (the names), n, won (questions only the second model answered
    correctly), lost (only the first), both_right, both_wrong, p_value (`mcnemar_test`), difference
    (accuracy after minus accuracy before) and difference_ci95 (`paired_interval`).
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


def comparison_lines(comparison: dict) -> list[str]:
    """Return the result of `compare` as two lines of text: questions won and lost with the test,
    and the difference in accuracy with its interval.
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
