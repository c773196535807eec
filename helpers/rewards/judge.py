"""Judges: a language model scores completions by a rubric, by a rubric of each row, or ranks them.

Attack a judge (`attacks.JUDGE_BATTERY`) before it trains anything: a model can still be talked into
a better verdict by what it reads.
"""

import json
import math
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, groupby

from helpers.rewards.judge_client import Judge


@dataclass(eq=False, kw_only=True)
class JudgeReward(Judge):
    """The score of a language model by a rubric, from 0.0 to 1.0, as an asynchronous reward.

    points: the judge gives a whole number from 0 to this, and the reward is its share. An empty
    text earns 0.0 unasked.

    rubric_column: a column with a list of `{"criterion": text, "weight": number}` for each row, or
    that list as JSON. One call asks which criteria are met, and the reward is their weight, as a
    share of all positive weights: HealthBench (arXiv 2505.08775), "Rubrics as Rewards" (arXiv
    2507.17746). `rubric` then holds what applies to all rows, or "".
    """

    points: int = 10
    rubric_column: str | None = None

    async def __call__(
        self, completions: list, prompts: list, log_metric=None, **columns
    ) -> list[float | None]:
        """A score per completion, or None. ValueError for a row without a rubric."""
        top = self.points if self.rubric_column is None else 1
        asked = []  # the request about each completion, and the weights of what it asks for
        for at, text in enumerate(self.texts(completions)):
            criteria, weights = self._criteria(at, columns) if self.rubric_column else ([], [1.0])
            fields = [str(number) for number in range(1, len(criteria) + 1)] or ["score"]
            listed = [f"{number}. {said}" for number, said in enumerate(criteria, 1)]
            request = self.request(
                "\n".join([self.rubric, *listed]).strip(),
                self.shown(at, prompts, columns) | {"completion": text},
                f'{{"{fields[0]}": …}} with a whole number from 0 (not met) to {top} (fully met) '
                f"for each of {', '.join(fields)}.",
                fields,
                list(range(top + 1)),
            )
            asked.append((request if text else None, weights))
        found = await self.verdicts([request for request, _ in asked if request])
        verdicts = [found.get(request, []) for request, _ in asked]
        self.told(verdicts, log_metric)
        scores = []
        for verdict, (_, weights) in zip(verdicts, asked, strict=True):
            if isinstance(verdict, str):
                scores.append(None)
                continue
            earned = sum(points * weight for points, weight in zip(verdict, weights, strict=False))
            possible = top * sum(weight for weight in weights if weight > 0)
            scores.append(min(1.0, max(0.0, earned / possible)))
        return scores

    def _criteria(self, at: int, columns: dict) -> tuple[list[str], list[float]]:
        """The criteria of a row and their weights."""
        listed = columns[self.rubric_column][at] if self.rubric_column in columns else None
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            read = json.loads(listed) if isinstance(listed, str) else listed
            weights = [float(one["weight"]) for one in read]
            if max(weights) > 0 and math.isfinite(sum(weights)):
                return [one["criterion"].strip() for one in read], weights
        raise ValueError(
            f"{self.name}: the {self.rubric_column!r} of row {at} in the batch must be a list of "
            f'{{"criterion": text, "weight": number}}, one weight above 0; it is {listed!r:.200}.'
        )


@dataclass(eq=False, kw_only=True)
class RankingJudgeReward(Judge):
    """The place of a completion within its group, by a language model: the share of the group's
    other completions that it beats, from 0.0 to 1.0.

    The mean is 0.5 whatever the policy writes: the reward shows neither progress nor collapse, and
    cannot judge a holdout. Measure progress by another reward of weight 0, and by an evaluation.

    num_generations: the size of a group, as in GRPOConfig: what follows one another in the batch
    with the same prompt. Each of several processes must hold whole groups; a part of one is
    refused. A group of one is None. Identical completions share a place; an empty one is last.

    most: completions in a request, an even number. A larger group is cut into blocks of half of it,
    and each two blocks are judged together: b blocks cost b(b-1)/2 calls. orders: 2 shows every
    part a second time in reverse, because judges prefer what they read first, or last; the metric
    `<name>/disagreement` is the share of pairs that change places. seed: of the order shown.
    """

    num_generations: int
    most: int = 8
    orders: int = 1
    seed: int = 3407
    name: str = "ranking_judge_reward"

    async def __call__(
        self, completions: list, prompts: list, log_metric=None, **columns
    ) -> list[float | None]:
        """The share of wins per completion, or None. ValueError for a part of a group."""
        texts, groups = self.texts(completions), self._groups(prompts)
        asked = []  # for each group: which completions each request shows
        for group in groups:
            shown = self.shown(group[0], prompts, columns)
            parts = self._parts({texts[at] for at in group} - {""})
            asked.append({self._request(shown, part): part for part in parts if len(part) > 1})
        found = await self.verdicts([request for parts in asked for request in parts])
        scores, causes, disagree = [], [], []
        for group, parts in zip(groups, asked, strict=True):
            members = [texts[at] for at in group]
            cause = None if len(group) > 1 else "a group of one"
            won = Counter()  # how often one was placed before another
            for request, part in parts.items():
                verdict = found[request]
                if isinstance(verdict, str):
                    cause = verdict
                elif len(set(verdict)) < len(part):
                    cause = "an order without each completion"
                else:
                    won.update(combinations([part[at] for at in verdict], 2))
            causes += [cause] * len(group)
            if cause:
                scores += [None] * len(group)
                continue
            there = sorted({*members} - {""})
            disagree += [won[pair] and won[pair[::-1]] for pair in combinations(there, 2)]
            # an empty one loses, equal ones win half: of themselves too, which is taken off
            won.update([(text, "") for text in there] + [(text, text) for text in members])
            for text in members:
                wins = sum(won[text, o] / (won[text, o] + won[o, text]) for o in members)
                scores.append((wins - 0.5) / (len(members) - 1))
        if log_metric and self.orders > 1 and disagree:
            log_metric(f"{self.name}/disagreement", sum(map(bool, disagree)) / len(disagree))
        self.told(causes, log_metric)
        return scores

    def _groups(self, prompts: list) -> list[list[int]]:
        """The positions of each group in the batch."""
        groups, size = [], self.num_generations
        for _, run in groupby(range(len(prompts)), key=lambda at: str(prompts[at])):
            places = list(run)
            if len(places) > 1 and len(places) % size:
                raise ValueError(
                    f"{self.name}: {len(places)} completions of a prompt are no whole groups. Let "
                    f"per_device_train_batch_size * steps_per_generation be a multiple of {size}."
                )
            groups += [places[at : at + size] for at in range(0, len(places), size)]
        return groups

    def _parts(self, texts: set[str]) -> list[list[str]]:
        """What is shown in each request: every two texts come together in one of them."""
        shuffled = sorted(texts)
        random.Random("\n".join([str(self.seed), *shuffled])).shuffle(shuffled)
        half = max(1, self.most // 2)
        blocks = [shuffled[at : at + half] for at in range(0, len(shuffled), half)]
        parts = [one + other for one, other in combinations(blocks, 2)] or blocks
        return parts + [part[::-1] for part in parts] if self.orders > 1 else parts

    def _request(self, shown: dict[str, str], part: list[str]) -> tuple:
        marks = [sha256(f"{at} {part}".encode()).hexdigest()[:8] for at in range(len(part))]
        named = {f"completion {mark}": text for mark, text in zip(marks, part, strict=True)}
        return self.request(
            self.rubric,
            shown | named,
            f'{{"1": …, "2": …}} with the marks of the completions ({", ".join(marks)}), each '
            f'once: "1" is the best completion, "{len(part)}" the worst.',
            [str(place) for place in range(1, len(part) + 1)],
            marks,
        )
