"""A judge that ranks: a language model orders the completions of a group, and the reward is the
share of the others that a completion beats.

Use it if scores tie, because ties teach nothing. The mean is 0.5 whatever the policy writes: the
reward shows neither progress nor collapse, and cannot judge a holdout. Log another reward with
weight 0 beside it. Judges prefer what they read first or last; here the order shown is fixed by a
hash of the texts. A group of more than eight is too long for most judges.
"""

from dataclasses import dataclass
from hashlib import sha256

from helpers.rewards.judge import JudgeReward


@dataclass(eq=False, kw_only=True)
class RankingJudgeReward(JudgeReward):
    """The place of a completion within its group, from 0.0 (last) to 1.0 (first).

    num_generations: the size of a group, as in GRPOConfig. Completions that read the same, whatever
    their spaces, share a place; an empty one is last.
    """

    num_generations: int
    name: str = "ranking_judge_reward"

    async def __call__(
        self, completions: list, prompts: list, log_metric=None, **columns
    ) -> list[float | None]:
        """Return the place of each completion, or None. Raise ValueError for a part of a group."""
        first: dict[str, str] = {}  # of the texts that read the same
        texts = [first.setdefault(" ".join(text.split()), text) for text in self.texts(completions)]
        size = self.num_generations
        groups = [range(start, start + size) for start in range(0, len(texts), size)]
        # One request per group: its different texts, each under a mark that none of them can know.
        distinct = []
        requests = []
        for group in groups:
            if group[-1] >= len(texts) or any(prompts[at] != prompts[group[0]] for at in group):
                raise ValueError(f"{self.name}: the batch must consist of whole groups of {size}.")
            different = sorted({texts[at] for at in group} - {""})
            marked = {}
            for text in different:
                marked[sha256(f"{text} {different}".encode()).hexdigest()[:8]] = text
            marks = sorted(marked)
            request = self.request(
                self.rubric,
                self.context(group[0], prompts, columns)
                | {f"completion {mark}": marked[mark] for mark in marks},
                f'{{"1": …, "2": …}} with the marks of the completions ({", ".join(marks)}), each '
                f'once: "1" is the best completion, "{len(marks)}" the worst.',
                [str(place) for place in range(1, len(marks) + 1)],
                marks,
            )
            distinct.append(marked)
            requests.append(request if len(marks) > 1 else None)
        orders = await self.verdicts(requests, log_metric)

        # The share of the others that are placed behind; of an equal one, half.
        scores: list[float | None] = []
        for group, marked, request, order in zip(groups, distinct, requests, orders, strict=True):
            if request is None:  # nothing to order
                order = list(marked)
            if order is None or len(set(order)) < len(marked):
                scores += [None] * size
                continue
            place = {marked[mark]: at for at, mark in enumerate(order)} | {"": size}
            places = [place[texts[at]] for at in group]
            for mine in places:
                behind = sum(other > mine for other in places)
                equal = places.count(mine) - 1
                scores.append((behind + equal / 2) / (size - 1))
        return scores
