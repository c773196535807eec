"""Dynamic sampling in a real training run, in which two of three questions give dead groups."""

import pytest
from datasets import Dataset
from trl import GRPOTrainer

from examples.dynamic_sampling import other_rows, resample_dead_groups
from helpers.data.tasks import load_task

pytestmark = pytest.mark.usefixtures("one_thread")
TASK = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


def told_apart(completions, dead, log_extra, **columns):
    """Return different scores for a live question, and 0.25 for each completion of a dead one."""
    log_extra("question", columns["question"])
    places = range(len(completions))
    return [0.25 if same else place % 4 / 4 for place, same in zip(places, dead, strict=True)]


@pytest.mark.parametrize("live", [3, 0], ids=["one in three lives", "all are dead"])
def test_live_groups_are_kept_and_the_metrics_describe_all_samples(fresh, config, tmp_path, live):
    model, tokenizer = fresh(load_in_4bit=False)
    dead = [not live or number % live > 0 for number in range(len(TASK))]
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config(
            tmp_path,
            max_steps=3,
            seed=5,
            max_completion_length=8,
            log_completions=True,
            num_completions_to_print=0,
        ),
        reward_funcs=[told_apart],
        train_dataset=Dataset.from_pandas(TASK.assign(dead=dead)),
    )
    resample_dead_groups(trainer, 8 if live else 2)
    batches, prepare = [], trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda rows: (
        batches.append(prepare(rows)) or batches[-1]
    )
    trainer.train()

    def logged(name: str) -> list[float]:
        return [row[name] for row in trainer.state.log_history if "reward" in row]

    for batch in batches:
        assert batch["completion_ids"].shape[0] == 8, "the batch is as large as without it"
        assert (batch["advantages"].view(2, 4) != 0).any(dim=1).all() == bool(live)
    kept = logged("dynamic_sampling/kept")
    shares = logged("frac_reward_zero_std")
    assert min(kept) < 1 and all(1 / share == pytest.approx(round(1 / share)) for share in kept)
    # a live group has the mean 0.375, a dead one 0.25
    assert logged("reward") == pytest.approx([0.375 - 0.125 * share for share in shares])
    assert logged("rewards/told_apart/mean") == pytest.approx(logged("reward"))
    if not live:
        assert kept == pytest.approx([1 / 3] * 3) and shares == [1.0] * 3
    # each logged completion has the values of its own question
    for prompt, question in zip(
        trainer._logs["prompt"], trainer._logs["extra"]["question"], strict=True
    ):
        assert question in prompt[-1]["content"]
    # a resumed run draws the same questions
    assert other_rows(trainer, 8, 1) == other_rows(trainer, 8, 1) != other_rows(trainer, 8, 2)
    trainer.tools = [print]
    with pytest.raises(ValueError, match="one turn"):
        resample_dead_groups(trainer, 2)
