"""Combine several rewards into one: their mean, minimum or median, minus a penalty on the spread.

A policy finds the mistakes of a reward model. Several models rarely share a mistake, and the
minimum, or a penalty on the spread, pays little for a mistake of one of them (Coste et al., "Reward
Model Ensembles Help Mitigate Overoptimization", arXiv 2310.02743).

    helpful = ensemble([model_reward("org/judge-a"), model_reward("org/judge-b")], "min")
"""

from statistics import fmean, median, pstdev

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from helpers.tags import completion_text

JOIN = {"mean": fmean, "min": min, "median": median}


def ensemble(rewards: list, how: str = "mean", spread_penalty: float = 0.0):
    """Return a reward: the "mean", "min" or "median" of several rewards' scores, minus
    `spread_penalty` times their standard deviation.

    Scores of None are left out; if all are None, the result is None. The rewards must have the same
    scale, such as 0 to 1. Async rewards, such as JudgeReward, are not supported.
    """
    join = JOIN[how]

    def ensemble_reward(completions, **columns):
        by_reward = [reward(completions=completions, **columns) for reward in rewards]
        scores = []
        for of_completion in zip(*by_reward, strict=True):
            known = [score for score in of_completion if score is not None]
            scores.append(join(known) - spread_penalty * pstdev(known) if known else None)
        return scores

    return ensemble_reward


def model_reward(name: str):
    """Return a reward from 0 to 1: the sigmoid of a sequence classifier's only logit, for a prompt
    with its completion. name: a model on the Hub, or a folder.
    """
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1).eval()
    tokenizer = AutoTokenizer.from_pretrained(name)

    @torch.no_grad()
    def classifier_reward(prompts, completions, **columns):
        texts = []
        for prompt, completion in zip(prompts, completions, strict=True):
            question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
            texts.append(f"{question}\n{completion_text(completion)}")
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        logits = model(**batch.to(model.device)).logits[:, 0]
        return torch.sigmoid(logits.float()).tolist()

    return classifier_reward
