"""TRL's own tool loop on guarded environments: a step of a real training, with the embedded model
and a template of our own.
"""

import itertools
import warnings

import pandas as pd
import pytest
import sick_environments as sick
from scripted_policies import POCKET, TEMPLATE, Scripted, called, halving, log, trained
from transformers import AutoTokenizer
from trl.chat_template_utils import qwen3_template

from helpers.agents import BrokenEnvironment, Guarded, Guessing
from helpers.agents.episodes import finished
from helpers.metrics import plots
from helpers.metrics.diagnosis import diagnose
from helpers.training.reward_guard import GuardedEpisodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:You are using 'environment_factory'"),
]


@pytest.fixture
def tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(POCKET)
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, qwen3_template
    return tokenizer


def test_trl_trains_on_a_guarded_environment_as_it_would_on_the_bare_one(tokenizer, tmp_path):
    def play():
        # one member of each group does not try, so that there is something to learn
        asked = itertools.count()
        return lambda words: (
            halving(words) if "<tool_call>" in words or next(asked) % 2 else "I give up."
        )

    guard = Guarded(Guessing)
    guarded, bare = (
        trained(Scripted, tokenizer, tmp_path, factory, play()) for factory in (guard, Guessing)
    )
    assert log(guarded)["rewards/Guessing/mean"] == 0.5 and log(guarded)["grad_norm"] > 0
    assert log(guarded)["tools/failure_frequency"] == 0.0
    kept = [
        "rewards/Guessing/mean",
        "tools/call_frequency",
        "completions/mean_length",
        "loss",
        "num_tokens",
        "grad_norm",
    ]
    assert [log(guarded)[key] for key in kept] == [log(bare)[key] for key in kept]
    assert guard.counts["episodes"] == 8
    # Members of a group start alike, and play in instances of their own.
    numbers = [environment._number for environment in guarded.environments]
    assert numbers[0::2] == numbers[1::2] and len(set(numbers)) > 1
    assert len({id(environment._play.inner) for environment in guarded.environments}) == 8


def test_a_broken_environment_ends_the_training_with_a_checkpoint_and_a_sentence(
    tokenizer, tmp_path
):
    def play(conversation):
        hung = "error" in conversation
        # short for what hangs; an episode has all the time to begin
        guard.seconds = 10.0 if hung else 0.1
        return "I give up." if hung else called("say", word="a")

    guard = Guarded(sick.doing(sick.sleeping))
    with pytest.raises(BrokenEnvironment, match="16 calls still hang"):
        trained(Scripted, tokenizer, tmp_path, guard, play, [GuardedEpisodes(guard)], max_steps=5)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


@pytest.mark.parametrize(
    ("play", "budget", "turns", "rule", "clipped"),
    [
        (halving, 70, None, "unfinished", 0.0),  # the first call takes 61 tokens, its result 23
        (lambda words: called("guess", number=1000), 800, 2, "unfinished", 0.0),
        (lambda words: "Let me think. " * 100, 40, None, "clipped", 1.0),
        # cut inside a call, it is text
        (lambda words: called("guess", number="?" * 200), 100, None, "clipped", 1.0),
    ],
    ids=["budget", "turns", "words", "half a call"],
)
def test_an_episode_cut_off_is_found_under_one_name(
    tokenizer, tmp_path, play, budget, turns, rule, clipped
):
    limits = {"max_completion_length": budget, "max_tool_calling_iterations": turns}
    judged = {"reward_funcs": [finished], "reward_weights": [0.0], "max_steps": 5}
    trainer = trained(Scripted, tokenizer, tmp_path, Guarded(Guessing), play, **limits, **judged)
    rows = pd.DataFrame(trainer.state.log_history)
    assert list(rows["completions/clipped_ratio"][:5]) == [clipped] * 5
    assert list(rows["rewards/finished/mean"][:5]) == [clipped] * 5, "its own last word, or none"
    assert list(rows["reward"][:5]) == pytest.approx(list(rows["rewards/Guessing/mean"][:5])), (
        "it is not paid for"
    )
    cut = {
        finding.rule: finding.severity
        for finding in diagnose(rows)
        if finding.rule in ("unfinished", "clipped")
    }
    assert cut == {rule: "critical"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = {
            line.get_label(): line.get_ydata()
            for axes in plots.tools(rows).axes
            for line in axes.get_lines()
        }
    assert list(lines["unfinished episodes (right)"][:5]) == [1 - clipped] * 5
