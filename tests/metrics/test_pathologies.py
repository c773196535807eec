"""Real trainings of the pocket model, one that goes well and three that do not, each named for what
it is.

The one that goes well is the stored run of the notebooks; the others are trained here.
"""

import math
import tarfile

import pandas as pd
import pytest

from unsloth import FastLanguageModel  # isort: skip

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from helpers.commands import checkpoint
from helpers.data.tasks import load_task
from helpers.metrics.diagnosis import diagnose
from helpers.presets import PRESETS
from helpers.rewards import correctness_reward, substantial_format_reward
from helpers.runs import seed_everything
from helpers.tags import completion_text
from helpers.training.policy import LORA_TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
POCKET = PRESETS["pocket"]
ROWS = load_task("arithmetic/sums", train_size=POCKET.train_size, holdout_size=8).train
# As in notebook 03.
REWARDS = {correctness_reward: 1.0, substantial_format_reward: 0.25}


def constant_reward(completions, **columns):
    return [1.0] * len(completions)


def plain_reward(completions, **columns):
    """Someone disliked the tags; but without them no answer can be read."""
    return [float("<answer>" not in completion_text(completion)) for completion in completions]


def train(folder, rewards: dict, steps: int, completions: int = 32, **changes) -> pd.DataFrame:
    """The history of a training with the pocket preset's settings, but for its size and what is
    changed.
    """
    seed_everything(11)
    model, tokenizer = FastLanguageModel.from_pretrained(
        POCKET.model_path, max_seq_length=256, load_in_4bit=True
    )
    rank = {"r": POCKET.lora_rank, "lora_alpha": POCKET.lora_alpha, "target_modules": LORA_TARGETS}
    options = {
        "learning_rate": POCKET.learning_rate,
        "lr_scheduler_type": POCKET.lr_scheduler_type,
        "warmup_steps": POCKET.warmup_steps,
        "optim": POCKET.optim,
        "adam_beta2": POCKET.adam_beta2,
        "max_grad_norm": POCKET.max_grad_norm,
        "beta": POCKET.beta,
        "num_generations": POCKET.num_generations,
    }
    trainer = GRPOTrainer(
        model=FastLanguageModel.get_peft_model(
            model, **rank, use_gradient_checkpointing=False, random_state=11
        ),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            seed=11,
            max_steps=steps,
            per_device_train_batch_size=completions,
            max_completion_length=POCKET.max_completion_length,
            reward_weights=list(rewards.values()),
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **options | changes,
        ),
        reward_funcs=list(rewards),
        train_dataset=Dataset.from_pandas(ROWS),
    )
    trainer.train()
    return pd.DataFrame(trainer.state.log_history)


@pytest.fixture(scope="module")
def healthy():
    with tarfile.open(checkpoint.ARCHIVE) as archive:
        return pd.read_csv(archive.extractfile("metrics.csv"))


@pytest.fixture(scope="module")
def hot(tmp_path_factory):
    return train(
        tmp_path_factory.mktemp("hot"), REWARDS, steps=12, learning_rate=100 * POCKET.learning_rate
    )


@pytest.fixture(scope="module")
def constant(tmp_path_factory):
    return train(
        tmp_path_factory.mktemp("constant"), {constant_reward: 1.0}, steps=12, completions=16
    )


@pytest.fixture(scope="module")
def hacked(tmp_path_factory):
    return train(
        tmp_path_factory.mktemp("hacked"), {plain_reward: 1.0, correctness_reward: 0.2}, steps=24
    )


def severe(history: pd.DataFrame) -> dict[str, str]:
    return {
        finding.rule: finding.severity
        for finding in diagnose(history)
        if finding.severity != "info"
    }


def test_a_training_that_goes_well_learns_and_gives_no_warning_at_any_step(healthy):
    rewards = healthy["reward"].dropna()
    assert len(rewards) == len(healthy) > 24 and rewards[-5:].mean() > rewards[:5].mean() + 0.4
    assert [severe(healthy[:n]) for n in range(1, len(healthy) + 1)] == [{}] * len(healthy)
    assert "too_few_steps" not in {finding.rule for finding in diagnose(healthy)}


def test_a_learning_rate_a_hundred_times_too_high_is_a_policy_that_ran_away(hot):
    first = diagnose(hot)[0]
    assert (
        (first.severity, first.rule) == ("critical", "kl")
        and "run away" in first.what
        and "learning rate" in first.advice
    )
    assert "hacking" not in severe(hot) and hot["kl"][-5:].median() > 2
    assert severe(hot[:8])["kl"] == "critical", "in time to stop it"


def test_a_constant_reward_is_groups_without_spread(constant):
    (first, *_) = diagnose(constant)
    assert (first.severity, first.rule) == (
        "critical",
        "zero_spread",
    ) and "100% of the groups" in first.evidence
    assert severe(constant).keys() <= {"zero_spread", "no_learning"}
    assert severe(constant[:5]) == {"zero_spread": "critical"}


def test_a_reward_that_pays_what_is_wrong_is_hacking(hacked):
    first = diagnose(hacked)[0]
    assert (first.severity, first.rule) == ("critical", "hacking")
    assert hacked["reward"][-5:].mean() > hacked["reward"][:5].mean()
    right = hacked["rewards/correctness_reward/mean"].dropna()
    told = float(first.evidence.split("correctness ")[1].split()[0])
    assert math.isclose(right[:6].mean(), told, abs_tol=6e-4)  # it is told with three digits
