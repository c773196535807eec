"""A reward whose weight moves during the training: up while few completions earn it, down once
nearly all do.

TRL multiplies the rewards by `trainer.reward_weights`, a tensor, at every step, so a callback that
changes the tensor changes the next step. After `trainer = GRPOTrainer(…)` of notebook 03:

    trainer.add_callback(MovingWeight(trainer, "correctness_reward"))
"""

from transformers import TrainerCallback


class MovingWeight(TrainerCallback):
    """After each logged step, multiply the weight of the reward `name` by `factor` if its mean, the
    share of success of a reward from 0 to 1, is below `low`, and divide it if above `high`.

    The weights' sum stays what it was, so the curve of the weighted reward keeps its scale.
    `weights` holds each step's weights, in the order of the trainer's rewards: log or draw them,
    for without them that curve cannot be read. ValueError for a name that is no reward.
    """

    def __init__(self, trainer, name: str, low=0.3, high=0.8, factor=1.1, least=0.1, most=10.0):
        if name not in trainer.reward_func_names:
            raise ValueError(f"{name!r} is not one of {trainer.reward_func_names}.")
        self.trainer = trainer
        self.name = name
        self.low = low
        self.high = high
        self.factor = factor
        self.least = least
        self.most = most
        self.weights = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Move the weight. Transformers calls this after each logged step."""
        success = (logs or {}).get(f"rewards/{self.name}/mean")
        if success is None:  # an evaluation, or the summary at the end
            return
        weights = self.trainer.reward_weights
        total = weights.sum()
        at = self.trainer.reward_func_names.index(self.name)
        if success < self.low:
            weights[at] = min(weights[at] * self.factor, self.most)
        elif success > self.high:
            weights[at] = max(weights[at] / self.factor, self.least)
        weights *= total / weights.sum()
        self.weights.append(weights.tolist())
