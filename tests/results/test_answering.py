"""Completions kept as they come, on the real pocket model: an interruption, a damage or a change
never shows in them.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.presets import PRESETS
from helpers.results.answering import Measurement, complete
from helpers.runs import Run
from helpers.tags import THINK_ANSWER
from helpers.training.policy import sample

pytestmark = pytest.mark.usefixtures("one_thread", "machine")

FOLDER = PRESETS["pocket"].model_path
IDENTITY = {"model": "pocket", "adapter": None}


def prompt(question: str) -> list[dict]:
    return [
        {"role": "system", "content": THINK_ANSWER.system_prompt},
        {"role": "user", "content": question},
    ]


PROMPTS = [prompt(f"What is {n} + {(7 * n) % 10}?") for n in range(11, 21)]
CHUNKS = 4  # of 3 prompts, the last of 1


@pytest.fixture
def batches(model, monkeypatch):
    """Counts the batches that the model really completes; `batches.most` is when Ctrl-C is
    pressed.
    """

    class Batches:
        done, most, generate = 0, 10**9, model.generate

        def __call__(self, **arguments):
            if self.done == self.most:
                raise KeyboardInterrupt
            self.done += 1
            return type(self).generate(**arguments)

    batches = Batches()
    monkeypatch.setattr(model, "generate", batches)
    return batches


@pytest.fixture
def ask(model, tokenizer):
    def ask(name: str = "one", prompts=PROMPTS, **options) -> list[list[str]]:
        settings = {
            "identity": IDENTITY,
            "samples": 2,
            "temperature": 1.0,
            "max_new_tokens": 12,
            "chunk": 3,
        }
        return complete(Run("kept"), name, model, tokenizer, prompts, **(settings | options))

    return ask


def stored(name: str = "one") -> Path:
    return Run("kept").require(f"evaluation/{name}.parquet")


# --- What comes back ------------------------------------------------------------------------------


def test_greedy_completions_are_those_of_the_model_at_once(ask, model, tokenizer):
    options = {"max_new_tokens": 12, "temperature": 0.0}
    groups = ask(samples=1, **options)
    assert groups == sample(model, tokenizer, PROMPTS, **options, progress=False)
    table = pd.read_parquet(stored())
    assert list(table["question"]) == [messages[-1]["content"] for messages in PROMPTS]
    assert [list(group) for group in table["completions"]] == groups
    assert ask("none", prompts=[]) == []


def test_one_question_asked_in_two_chunks_is_sampled_anew(ask):
    groups = ask(prompts=[PROMPTS[0]] * 6, samples=4, temperature=2.0)
    assert [len(group) for group in groups] == [4] * 6
    assert groups[:3] != groups[3:], "with one seed for all chunks these would be the same"


# --- Interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("most", range(CHUNKS))
def test_interrupted_anywhere_it_goes_on_and_the_result_is_the_same(ask, batches, capsys, most):
    expected = ask("never")
    assert batches.done == CHUNKS
    batches.done, batches.most = 0, most
    with pytest.raises(KeyboardInterrupt):
        ask("often")
    assert Path(Run("kept").folder / "evaluation" / "often.parquet").exists() is (most > 0)
    batches.done, batches.most = 0, 10**9
    assert ask("often") == expected
    assert batches.done == CHUNKS - most, "nothing was completed twice"
    said = f"often: {3 * most} of 10 prompts were answered before"
    assert (said in capsys.readouterr().out) is (most > 0)


def test_what_is_finished_is_not_asked_again(ask, batches):
    expected = ask()
    written = stored().stat().st_mtime_ns
    batches.most = batches.done
    assert ask(identity=dict(reversed(IDENTITY.items()))) == expected
    # after running out of memory a smaller batch goes on with the same file
    assert ask(batch_size=2) == expected
    # prompts as a Parquet file gives them
    assert ask(prompts=[np.array(messages, dtype=object) for messages in PROMPTS]) == expected
    assert stored().stat().st_mtime_ns == written
    pd.DataFrame({"completions": [["made up"]] * 10}).to_parquet(stored())
    batches.done, batches.most = 0, CHUNKS
    assert ask() == expected and batches.done == CHUNKS, "another table is not taken"


OTHERS = {
    "identity": {"identity": IDENTITY | {"adapter": "0123456789abcdef"}},
    "prompts": {"prompts": [*PROMPTS[:-1], prompt("What is 1 + 1?")]},
    "order": {"prompts": PROMPTS[::-1]},
    "fewer prompts": {"prompts": PROMPTS[:3]},
    "system prompt": {"prompts": [messages[1:] for messages in PROMPTS]},
    "samples": {"samples": 3},
    "temperature": {"temperature": 0.7},
    "limit": {"max_new_tokens": 6},
    "seed": {"seed": 1},
    "chunk": {"chunk": 5},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_asked_otherwise_it_starts_anew_and_is_what_it_would_have_been(ask, batches, change):
    ask()
    batches.done = 0
    groups = ask(**change)
    assert batches.done > 0
    assert groups == ask("fresh", **change)


# --- What is measured besides ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "other"),
    [
        ("arithmetic/sums", "arithmetic/differences"),
        ("arithmetic/differences", "arithmetic/sums"),
        ("my/rows.csv", "arithmetic/sums"),
    ],
)
def test_what_was_forgotten_is_looked_for_where_the_training_was_not(source, other):
    example = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    before = [{"role": "system", "content": "Add."}, *example]
    holdout = pd.DataFrame({"prompt": [[*before, {"role": "user", "content": "asked"}]]})
    exam = Measurement(None, PRESETS["pocket"], THINK_ANSWER, holdout, source)
    assert exam.other == other and len(exam.elsewhere) == 128
    for asked, question in zip(exam.elsewhere["prompt"], exam.elsewhere["question"], strict=True):
        assert asked == [*before, {"role": "user", "content": question}]
