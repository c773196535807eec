"""Dynamic sampling: sample more questions until the rewards differ within each group of the batch
(DAPO, arXiv 2503.14476, section 3.2).

    trainer = GRPOTrainer(...)
    resample_dead_groups(trainer, rounds=3)
    trainer.train()

If all completions of a group earn the same, their advantages are zero and the group teaches
nothing. TRL 1.15 has no option for dynamic sampling (issues 3708, 4764). Notebook 08 measures its
cost and benefit; it did not pay there. Left out: episodes of several turns, images, and several
processes.
"""

import numpy as np
import torch


def resample_dead_groups(trainer, rounds: int) -> None:
    """Make a trainer sample up to `rounds` more times for each batch, each time with new questions,
    and keep the groups whose rewards differ. If there are too few, other groups fill the batch.

    The new questions depend on the trainer's seed and step, so a resumed run draws the same ones.
    TRL builds its batch from the kept completions only. The metrics describe all sampled
    completions: `reward` stays comparable with a run without dynamic sampling, and
    `frac_reward_zero_std` is the share of dead groups. `dynamic_sampling/kept` is the share of
    completions kept.

    Raise ValueError if the trainer has tools or environments.
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

        # 1. Sample and score, until there are enough live groups: those whose rewards differ.
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
            # A reward may not log in every round.
            for values in trainer._pending_extra_logs.values():
                values += [None] * (len(rows) - len(values))
            earned = torch.cat(rewards)
            totals = (earned * trainer.reward_weights.to(earned.device)).nansum(dim=1)
            totals[earned.isnan().all(dim=1)] = torch.nan  # no reward gave a score
            live = nanstd(totals.view(-1, size), dim=1) > 1e-6
            if live.sum() >= needed:
                break

        # 2. Choose the live groups first, and fill the batch with dead ones.
        groups = torch.cat([live.nonzero(), (~live).nonzero()]).flatten()[:needed]
        kept = (groups[:, None] * size + torch.arange(size, device=groups.device)).flatten()
        places = kept.tolist()
        for column, values in trainer._pending_extra_logs.items():
            trainer._pending_extra_logs[column] = [values[place] for place in places]

        # 3. Let TRL build its batch, with the chosen completions and rewards instead of new ones.
        generated = tuple(_at(places, parts) for parts in zip(*generations, strict=True))
        trainer._generate = lambda _: generated
        trainer._calculate_rewards = lambda *_: earned[kept]
        try:
            output = prepare([rows[place] for place in places])
        finally:
            trainer._generate = generate
            trainer._calculate_rewards = judge

        # 4. Log the metrics of all sampled completions.
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
    """Return the rows of one more round, with each question repeated for its group."""
    process = trainer.accelerator.process_index
    draw = np.random.default_rng([trainer.args.seed, trainer.state.global_step, number, process])
    numbers = draw.integers(len(trainer.train_dataset), size=groups).tolist()
    repeat = range(trainer.num_generations)
    return [dict(trainer.train_dataset[number]) for number in numbers for _ in repeat]


def _at(places: list[int], parts: tuple):
    """Return the entries at some places of one result of `_generate`, joined over all rounds.

    parts: the result in each round: a list with an entry for each completion, or None, or a dict
        that is empty without a `rollout_func`.
    """
    if not isinstance(parts[0], list) or not parts[0]:
        return parts[0]
    entries = [entry for part in parts for entry in part]
    return [entries[place] for place in places]
