"""A judge that ranks: a language model orders the completions of a group, and the reward of a
completion is the share of the other completions that it beats.

Use a ranking if a judge's scores are often equal, because equal rewards teach nothing. The mean of
a ranking is always 0.5. So it shows neither progress nor collapse, and cannot evaluate a holdout:
log another reward beside it, with weight 0. Judges prefer the texts they read first or last. A hash
of the texts decides the order here. A group of more than eight is too long for most judges.
"""

from dataclasses import dataclass
from hashlib import sha256

from helpers.rewards.judge import JudgeReward


@dataclass(eq=False, kw_only=True)
class RankingJudgeReward(JudgeReward):
    """The rank of a completion within its group, from 0.0 (last) to 1.0 (first).

    num_generations: the size of a group, as in GRPOConfig. Completions that differ only in
    whitespace share a rank. Empty completions are last.
    """

    num_generations: int
    name: str = "ranking_judge_reward"

    async def __call__(
        self, completions: list, prompts: list, log_metric=None, **columns
    ) -> list[float | None]:
        """Return a rank or None for each completion. Raise ValueError if a group is incomplete."""
        # Use the first of the texts that differ only in whitespace for all of them.
        first: dict[str, str] = {}
        texts = [first.setdefault(" ".join(text.split()), text) for text in self.texts(completions)]
        size = self.num_generations
        groups = [range(start, start + size) for start in range(0, len(texts), size)]
        # Make one request per group: its distinct texts, each under a mark that no text can know.
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

        # Score the share of the other completions that are behind. An equal one counts half.
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
