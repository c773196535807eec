"""Dynamic sampling: draw more questions until each group of the batch disagrees (DAPO, arXiv
2503.14476, section 3.2).

A group whose completions all earn the same has no advantage and teaches nothing. TRL 1.15 has no
such option (TRL 3708, 4764). Left out: episodes of several turns, and pictures.
"""

import numpy as np
import torch


def refill(trainer, rounds: int) -> None:
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
        raise ValueError("dynamic_sampling is for completions of one turn: set it to 0.")
    prepare = trainer._generate_and_score_completions
    generate, judge = trainer._generate, trainer._calculate_rewards
    gather, size = trainer.accelerator.gather, trainer.num_generations

    def full(inputs: list[dict]) -> dict:
        if not trainer.model.training:
            return prepare(inputs)
        needed, first = len(inputs) // size, trainer.accelerator.process_index * len(inputs)
        rows, made, rewards = [], [], []
        for number in range(rounds + 1):
            batch = _others(trainer, needed, number) if number else inputs
            prompts = [row["prompt"] for row in batch]
            made.append(generate(prompts))
            of_all = judge(batch, prompts, made[-1][3], made[-1][1])
            rewards.append(of_all[first : first + len(inputs)])
            rows += batch
            for values in trainer._pending_extra_logs.values():  # a reward need not log each round
                values += [None] * (len(rows) - len(values))
            earned = torch.cat(rewards)
            totals = (earned * trainer.reward_weights.to(earned.device)).nansum(dim=1)
            totals[earned.isnan().all(dim=1)] = torch.nan  # what no reward could judge
            live = nanstd(totals.view(-1, size), dim=1) > 1e-6
            # all processes sample again, or none: each round gathers from all
            if gather((live.sum() >= needed).view(1)).all():
                break
        groups = torch.cat([live.nonzero(), (~live).nonzero()]).flatten()[:needed]
        kept = (groups[:, None] * size + torch.arange(size, device=groups.device)).flatten()
        chosen = kept.tolist()
        for column, values in trainer._pending_extra_logs.items():
            trainer._pending_extra_logs[column] = [values[place] for place in chosen]
        trainer._generate = lambda _: tuple(
            _chosen(parts, chosen) for parts in zip(*made, strict=True)
        )
        trainer._calculate_rewards = lambda *_: gather(earned[kept])
        try:
            output = prepare([rows[place] for place in chosen])
        finally:
            trainer._generate, trainer._calculate_rewards = generate, judge
        metrics, earned, totals = trainer._metrics["train"], gather(earned), gather(totals)
        for name, column in zip(trainer.reward_func_names, earned.T, strict=True):
            known = column[~column.isnan()]
            metrics[f"rewards/{name}/mean"][-1] = known.mean().item()
            metrics[f"rewards/{name}/std"][-1] = known.std().item()
        metrics["reward"][-1] = totals.nanmean().item()
        metrics["reward_std"][-1] = nanstd(totals).item()
        metrics["frac_reward_zero_std"][-1] = 1 - gather(live.float()).mean().item()
        metrics["dynamic_sampling/kept"].append(1 / len(made))
        return output

    trainer._generate_and_score_completions = full


def _others(trainer, groups: int, number: int) -> list[dict]:
    """The rows of one more round, each question as often as a group is large."""
    state, process = trainer.state, trainer.accelerator.process_index
    draw = np.random.default_rng([trainer.args.seed, state.global_step, number, process])
    chosen = draw.integers(len(trainer.train_dataset), size=groups).tolist()
    repeat = range(trainer.num_generations)
    return [dict(trainer.train_dataset[row]) for row in chosen for _ in repeat]


def _chosen(parts: tuple, places: list[int]):
    """One of the results of `_generate` over all rounds: a list with an entry for each completion,
    None, or a dict that is empty without a `rollout_func`.
    """
    if not isinstance(parts[0], list) or not parts[0]:
        return parts[0]
    entries = [entry for part in parts for entry in part]
    return [entries[place] for place in places]
