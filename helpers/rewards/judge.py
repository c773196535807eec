"""Judges: a language model scores completions by a rubric, by a rubric of each row, or ranks them.

    judge = JudgeReward("http://127.0.0.1:8000", "my-judge", "Is the answer polite?",
    cache="runs/judge", budget_calls=10_000)

Attack a judge (`attacks.JUDGE_BATTERY`) before it trains anything: a model can still be talked into
a better verdict by what it reads.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations, groupby

from helpers.rewards.judge_client import Judge
from helpers.rewards.shaping import printable


class JudgeReward(Judge):
    """The score of a language model by a rubric, from 0.0 to 1.0, as an asynchronous reward.

    points: the judge gives whole numbers from 0 to this, and the reward is their share. An empty
    text earns 0.0 unasked.

    rubric_column: a column with a rubric of its own for each row: a list of
    `{"criterion": text, "weight": number}`, or that list as JSON. The judge says of each criterion
    whether the completion meets it, in one call, and the reward is the weight of those met, as a
    share of all positive weights, between 0.0 and 1.0: HealthBench (arXiv 2505.08775), "Rubrics as
    Rewards" (arXiv 2507.17746). `rubric` may then hold what applies to all rows.

    >>> JudgeReward("http://127.0.0.1:8000", "my-judge", "Is it polite?", name="polite").__name__
    'polite'
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        rubric: str = "",
        *,
        points: int = 10,
        rubric_column: str | None = None,
        name: str = "judge_reward",
        **asking,
    ):
        if not points >= 1:
            raise ValueError(f"points={points} must be 1 or more.")
        if not rubric and rubric_column is None:
            raise ValueError("give a rubric, or the rubric_column that has one for each row.")
        super().__init__(base_url, model, rubric, name=name, **asking)
        self.points, self.rubric_column = points, rubric_column

    async def __call__(
        self, completions: list, prompts=None, log_extra=None, log_metric=None, **columns
    ) -> list[float | None]:
        """A score from 0.0 to 1.0 per completion, or None.

        ValueError where the data lacks a column that the judge is to see, and where a row has no
        rubric, or a criterion no weight.
        """
        rubrics = [self._criteria(columns, at) for at in range(len(completions))]
        requests = [
            self._request(text, self.shown(at, prompts, columns), criteria) if text else None
            for at, (text, criteria) in enumerate(
                zip(self.texts(completions), rubrics, strict=True)
            )
        ]
        found = await self.verdicts(dict(filter(None, requests)))
        verdicts = [found[request[0]] if request else 0.0 for request in requests]
        causes = [verdict if isinstance(verdict, str) else "" for verdict in verdicts]
        self.told(causes, log_extra, log_metric)
        return [
            None if cause else _weighted(verdict, criteria) if criteria and request else verdict
            for verdict, cause, criteria, request in zip(
                verdicts, causes, rubrics, requests, strict=True
            )
        ]

    def _request(
        self, text: str, shown: dict, criteria: list[tuple[str, float]]
    ) -> tuple[bytes, Callable]:
        """What is sent about a completion, and how the answer is read: as a score, or as what is
        met of each criterion.
        """
        fenced, _ = self.fenced(shown | {"completion": text})
        if not criteria:
            task = "You grade one completion by this rubric and by nothing else."
            answer = (
                f'{{"score": …}} The score is a whole number from 0 (the rubric is not met) to '
                f"{self.points} (fully met)."
            )
            scale = {"score": {"enum": list(range(self.points + 1))}}
            body = self.body(task, self.rubric, f"{fenced}\nGrade the completion.", answer, scale)
            return body, self._score
        numbers = [str(number) for number in range(1, len(criteria) + 1)]
        listed = "\n".join(f"{n}. {said}" for n, (said, _) in zip(numbers, criteria, strict=True))
        body = self.body(
            "You check which of these criteria one completion meets, and nothing else.",
            f"{self.rubric}\n\n{listed}".strip(),
            f"{fenced}\nCheck the completion.",
            '{"1": …, "2": …} with true for each criterion that it meets, and else false.',
            {number: {"type": "boolean"} for number in numbers},
        )

        def read(answered: dict) -> list[bool] | None:
            met = [answered[number] for number in numbers]
            return met if all(type(one) is bool for one in met) else None

        return body, read

    def _score(self, answered: dict) -> float | None:
        score = answered["score"]
        known = type(score) is int and 0 <= score <= self.points
        return score / self.points if known else None

    def _criteria(self, columns: dict, at: int) -> list[tuple[str, float]]:
        """The criteria of a row with their weights, none without a `rubric_column`. ValueError
        where they should be.
        """
        if self.rubric_column is None:
            return []
        row = f"{self.__name__}: row {at} of the batch, column {self.rubric_column!r}"
        listed = columns.get(self.rubric_column, {at: None})[at]
        with suppress(ValueError):
            listed = json.loads(listed) if isinstance(listed, str) else listed
        if listed is None or isinstance(listed, str) or not len(listed):
            raise ValueError(f"{row}: there is no list of criteria.")
        criteria = []
        for one in listed:
            said, weight = one.get("criterion"), one.get("weight")
            if not said or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise ValueError(f"{row}: {one} needs a criterion and a weight.")
            criteria.append((str(said), float(weight)))
        if not any(weight > 0 for _, weight in criteria):
            raise ValueError(f"{row}: no criterion has a positive weight.")
        return criteria


def _weighted(met: list[bool], criteria: list[tuple[str, float]]) -> float:
    """The weight of the criteria that are met, as a share of what can be earned."""
    earned = sum(weight for one, (_, weight) in zip(met, criteria, strict=True) if one)
    return min(1.0, max(0.0, earned / sum(weight for _, weight in criteria if weight > 0)))


class RankingJudgeReward(Judge):
    """The place of a completion within its group, by a language model: the share of the group's
    other completions that it beats, from 0.0 to 1.0.

    A group never ties because a scale is coarse, so fewer groups are dead. The mean is 0.5 whatever
    the policy writes: the reward shows neither progress nor collapse, and cannot judge a holdout.
    Measure progress by another reward of weight 0, and by an evaluation.

    num_generations: the size of a group, as in GRPOConfig. A group is what follows one another in
    the batch with the same prompt. Where several processes train, each must hold whole groups
    (`per_device_train_batch_size` times `steps_per_generation` is a multiple of `num_generations`);
    a part of a group is refused. A group of one is None, and counted.

    most: completions in a request. A group needs one call where scoring needs a call for each. A
    larger one is cut into blocks of half of `most`, and each two blocks are judged together, so
    that all pairs are compared: b blocks cost b(b-1)/2 calls. orders: 2 shows every part a second
    time in reverse, because judges prefer what they read first, or last; the share of the pairs on
    which orders or parts disagree is the metric `<name>/disagreement`. seed: of the order shown.
    Identical completions share a place. An empty one is last, unasked.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        rubric: str,
        *,
        num_generations: int,
        most: int = 8,
        orders: int = 1,
        seed: int = 3407,
        name: str = "ranking_judge_reward",
        **asking,
    ):
        for setting, value, least in (
            ("num_generations", num_generations, 2),
            ("most", most, 2),
            ("orders", orders, 1),
        ):
            if not value >= least:
                raise ValueError(f"{setting}={value} must be {least} or more.")
        super().__init__(base_url, model, rubric, name=name, **asking)
        self.num_generations, self.most = num_generations, most
        self.orders, self.seed = orders, seed

    async def __call__(
        self, completions: list, prompts=None, log_extra=None, log_metric=None, **columns
    ) -> list[float | None]:
        """The share of wins per completion, or None.

        ValueError where the data lacks a column that the judge is to see, and for a part of a
        group.
        """
        requests, parts, first = {}, {}, {}
        # what the judge would read alike is one text
        texts = [
            first.setdefault(self.plain(text).strip(), text) for text in self.texts(completions)
        ]
        groups = self._groups(texts, prompts)
        for group in groups:
            shown = self.shown(group[0], prompts, columns)
            made = [self._request(shown, part) for part in self._parts({texts[at] for at in group})]
            requests |= made
            parts[group] = [body for body, _ in made]
        found = await self.verdicts(requests)
        scores, causes, agreed = [], [], []
        for group in groups:
            verdicts = [found[body] for body in parts[group]]
            cause = next((verdict for verdict in verdicts if isinstance(verdict, str)), "")
            cause = cause or ("a group of one" if len(group) == 1 else "")
            causes += [cause] * len(group)
            if cause:
                scores += [None] * len(group)
                continue
            won = Counter(pair for order in verdicts for pair in combinations(order, 2))
            agreed += [not won[b, a] for a, b in won if won[a, b] + won[b, a] > 1]
            scores += [_share(texts[at], [texts[o] for o in group if o != at], won) for at in group]
        if log_metric and agreed:
            log_metric(f"{self.__name__}/disagreement", 1 - sum(agreed) / len(agreed))
        self.told(causes, log_extra, log_metric)
        return scores

    def _groups(self, texts: list[str], prompts: list | None) -> list[range]:
        """The positions of each group in the batch. ValueError for a part of a group."""
        keys = [None if prompts is None else str(prompt) for prompt in prompts or texts]
        groups, size = [], self.num_generations
        for _, run in groupby(range(len(texts)), key=keys.__getitem__):
            places = list(run)
            if len(places) > 1 and len(places) % size:
                raise ValueError(
                    f"{self.__name__}: {len(places)} completions of one prompt are no whole groups "
                    f"of num_generations={size}. With several processes, let "
                    "per_device_train_batch_size * steps_per_generation be a multiple of it."
                )
            groups += [
                range(at, min(at + size, places[-1] + 1))
                for at in range(places[0], places[-1] + 1, size)
            ]
        return groups

    def _parts(self, texts: set[str]) -> list[list[str]]:
        """What is shown in each request: all pairs of different texts come together at least once,
        in an order that depends on the texts and the seed alone.
        """
        shuffled = sorted(texts - {""})
        random.Random(printable("\n".join([str(self.seed), *shuffled]))).shuffle(shuffled)
        if len(shuffled) < 2:
            return []
        parts = [shuffled]
        if len(shuffled) > self.most:
            half = self.most // 2
            blocks = [shuffled[at : at + half] for at in range(0, len(shuffled), half)]
            parts = [one + other for one, other in combinations(blocks, 2)]
        return parts + [part[::-1] for part in parts] * (self.orders > 1)

    def _request(self, shown: dict, part: list[str]) -> tuple[bytes, Callable]:
        """What is sent about some completions, and how the answer is read: as texts, best first."""
        fenced, marks = self.fenced(shown, part)
        body = self.body(
            "You put completions of one question in order by this rubric and by nothing else.",
            self.rubric,
            f"{fenced}\nOrder the completions.",
            '{"order": […]} with the marks of the completions, each once, from the best to the '
            f"worst: {', '.join(marks)}.",
            {"order": {"type": "array", "items": {"enum": marks}}},
        )

        def read(answered: dict) -> list[str] | None:
            order = answered["order"]
            return [part[marks.index(m)] for m in order] if sorted(order) == sorted(marks) else None

        return body, read


def _share(text: str, others: list[str], won: Counter) -> float:
    """The share of the others that a text beats; won: how often one was placed before another."""

    def beats(other: str) -> float:
        if text == other:
            return 0.5
        if not (text and other):
            return float(bool(text))
        return won[text, other] / (won[text, other] + won[other, text])

    return sum(map(beats, others)) / len(others)
