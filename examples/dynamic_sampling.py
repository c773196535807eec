"""Dynamic sampling: draw more questions until each group of the batch disagrees (DAPO, arXiv
2503.14476, section 3.2).

    trainer = GRPOTrainer(...)
    resample_dead_groups(trainer, rounds=3)
    trainer.train()

A group whose completions all earn the same has no advantage and teaches nothing. TRL 1.15 has no
such option (TRL 3708, 4764). Notebook 08 measures what it costs and brings: it did not pay. Left
out: episodes of several turns, pictures, and several processes.
"""

import numpy as np
import torch


def resample_dead_groups(trainer, rounds: int) -> None:
    """Let a trainer sample up to `rounds` more times for a batch, each time with new questions, and
    keep the groups that disagree. What is still missing is filled with groups that do not.

    The new questions are drawn by the trainer's seed and step, so a resumed training draws the
    same. TRL makes its batch of what is kept, as if that were all it had sampled. The metrics are
    of all that was sampled, so `reward` is comparable with a training without this, and
    `frac_reward_zero_std` tells how many groups were dead; `dynamic_sampling/kept` is the share of
    the completions in the batch.

    ValueError for a trainer whose completions are episodes.
    """
    from trl.trainer.utils import nanstd  # here, because Unsloth must be imported before TRL

    if trainer.environments is not None or trainer.tools:
        raise ValueError("resample_dead_groups is for completions of one turn.")
    prepare = trainer._generate_and_score_completions
    generate = trainer._generate
    judge = trainer._calculate_rewards
    size = trainer.num_generations

    def prepare_resampled(inputs: list[dict]) -> dict:
        if not trainer.model.training:
            return prepare(inputs)

        # sample and judge, until there are enough groups that disagree
        needed = len(inputs) // size
        rows = []
        generations = []
        rewards = []
        for number in range(rounds + 1):
            batch = other_rows(trainer, needed, number) if number else inputs
            prompts = [row["prompt"] for row in batch]
            generations.append(generate(prompts))
            rewards.append(judge(batch, prompts, generations[-1][3], generations[-1][1]))
            rows += batch
            for values in trainer._pending_extra_logs.values():  # a reward need not log each round
                values += [None] * (len(rows) - len(values))
            earned = torch.cat(rewards)
            totals = (earned * trainer.reward_weights.to(earned.device)).nansum(dim=1)
            totals[earned.isnan().all(dim=1)] = torch.nan  # what no reward could judge
            live = nanstd(totals.view(-1, size), dim=1) > 1e-6
            if live.sum() >= needed:
                break

        # choose them, and others for what is missing
        groups = torch.cat([live.nonzero(), (~live).nonzero()]).flatten()[:needed]
        kept = (groups[:, None] * size + torch.arange(size, device=groups.device)).flatten()
        places = kept.tolist()
        for column, values in trainer._pending_extra_logs.items():
            trainer._pending_extra_logs[column] = [values[place] for place in places]

        # let TRL make its batch, with what was sampled in the place of sampling
        generated = tuple(_at(places, parts) for parts in zip(*generations, strict=True))
        trainer._generate = lambda _: generated
        trainer._calculate_rewards = lambda *_: earned[kept]
        try:
            output = prepare([rows[place] for place in places])
        finally:
            trainer._generate = generate
            trainer._calculate_rewards = judge

        # log what is true of all that was sampled
        metrics = trainer._metrics["train"]
        for name, column in zip(trainer.reward_func_names, earned.T, strict=True):
            scores = column[~column.isnan()]
            metrics[f"rewards/{name}/mean"][-1] = scores.mean().item()
            metrics[f"rewards/{name}/std"][-1] = scores.std().item()
        metrics["reward"][-1] = totals.nanmean().item()
        metrics["reward_std"][-1] = nanstd(totals).item()
        metrics["frac_reward_zero_std"][-1] = 1 - live.float().mean().item()
        metrics["dynamic_sampling/kept"].append(1 / len(generations))
        return output

    trainer._generate_and_score_completions = prepare_resampled


def other_rows(trainer, groups: int, number: int) -> list[dict]:
    """Return the rows of one more round, each question as often as a group is large."""
    process = trainer.accelerator.process_index
    draw = np.random.default_rng([trainer.args.seed, trainer.state.global_step, number, process])
    numbers = draw.integers(len(trainer.train_dataset), size=groups).tolist()
    repeat = range(trainer.num_generations)
    return [dict(trainer.train_dataset[number]) for number in numbers for _ in repeat]


def _at(places: list[int], parts: tuple):
    """Return one of the results of `_generate`, of all rounds, at these places: a list with an
    entry for each completion, None, or a dict that is empty without a `rollout_func`.
    """
    if not isinstance(parts[0], list) or not parts[0]:
        return parts[0]
    entries = [entry for part in parts for entry in part]
    return [entries[place] for place in places]
