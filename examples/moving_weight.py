"""Change the weight of a reward during training: raise it while few completions earn the reward,
lower it when nearly all do.

At every step, TRL multiplies the rewards by the tensor `trainer.reward_weights`. A callback that
changes the tensor changes the next step. In notebook 03, after `trainer = GRPOTrainer(…)`:

    trainer.add_callback(MovingWeight(trainer, "correctness_reward"))
"""

from transformers import TrainerCallback


class MovingWeight(TrainerCallback):
    """After each logged step, multiply the weight of the reward `name` by `factor` if the reward's
    mean is below `low`, and divide the weight by `factor` if the mean is above `high`. The limits
    are meant for a reward from 0 to 1, and the weight stays between `least` and `most`.

    The sum of all weights does not change, so the curve of the total reward keeps its scale.
    `weights` has the weights of each step, in the order of the trainer's rewards. Log or plot them,
    because the curve of the total reward cannot be read without them. Raise ValueError if the
    trainer has no reward of this name.
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
        """Change the weight. Transformers calls this method after each logged step."""
        success = (logs or {}).get(f"rewards/{self.name}/mean")
        if success is None:  # the log of an evaluation, or the summary at the end
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
