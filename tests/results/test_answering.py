"""Completions of the pocket model are saved while they are sampled: interruptions, damaged files
and changed settings never affect the result.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.presets import PRESETS
from helpers.results.answering import Measurement, complete
from helpers.runs import Run
from helpers.tags import THINK_ANSWER
from helpers.training.sampling import sample

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
    """Count the batches that the model completes, and press Ctrl-C after `batches.most` of them."""

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


# --- The completions ------------------------------------------------------------------------------


def test_greedy_completions_equal_those_of_one_call(ask, model, tokenizer):
    options = {"max_new_tokens": 12, "temperature": 0.0}
    groups = ask(samples=1, **options)
    assert groups == sample(model, tokenizer, PROMPTS, **options)
    table = pd.read_parquet(stored())
    assert list(table["question"]) == [messages[-1]["content"] for messages in PROMPTS]
    assert [list(group) for group in table["completions"]] == groups
    assert ask("none", prompts=[]) == []


def test_chunks_have_different_seeds(ask):
    groups = ask(prompts=[PROMPTS[0]] * 6, samples=4, temperature=2.0)
    assert [len(group) for group in groups] == [4] * 6
    assert groups[:3] != groups[3:], "with one seed for all chunks, these would be equal"


# --- Interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", range(CHUNKS))
def test_an_interruption_anywhere_does_not_change_the_result(ask, batches, capsys, most):
    expected = ask("never")
    assert batches.done == CHUNKS
    batches.done, batches.most = 0, most
    with pytest.raises(KeyboardInterrupt):
        ask("often")
    assert Path(Run("kept").folder / "evaluation" / "often.parquet").exists() is (most > 0)
    batches.done, batches.most = 0, 10**9
    assert ask("often") == expected
    assert batches.done == CHUNKS - most, "no batch was completed twice"
    said = f"often: {3 * most} of 10 prompts were answered before"
    assert (said in capsys.readouterr().out) is (most > 0)


def test_finished_completions_are_not_sampled_again(ask, batches):
    expected = ask()
    written = stored().stat().st_mtime_ns
    batches.most = batches.done
    assert ask(identity=dict(reversed(IDENTITY.items()))) == expected
    # after running out of memory, a smaller batch continues with the same file
    assert ask(batch_size=2) == expected
    # prompts in the form in which a Parquet file returns them
    assert ask(prompts=[np.array(messages, dtype=object) for messages in PROMPTS]) == expected
    assert stored().stat().st_mtime_ns == written


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
def test_a_changed_argument_starts_afresh(ask, batches, change):
    ask()
    batches.done = 0
    groups = ask(**change)
    assert batches.done > 0
    assert groups == ask("fresh", **change)


# --- Measurement ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "named", "other", "count"),
    [
        ("arithmetic/sums", None, "arithmetic/differences", 128),
        ("arithmetic/differences", None, "arithmetic/sums", 128),
        ("my/rows.csv", None, None, 0),
        ("my/rows.csv", "arithmetic/sums", "arithmetic/sums", 128),
        ("arithmetic/sums", "few.jsonl", "few.jsonl", 5),
    ],
)
def test_forgetting_is_measured_on_another_task_than_training_if_one_is_known(
    source, named, other, count, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"Say {n}.", "answer": f"{n}"} for n in range(5)]
    pd.DataFrame(rows).to_json("few.jsonl", orient="records", lines=True)
    example = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    before = [{"role": "system", "content": "Add."}, *example]
    asked = [*before, {"role": "user", "content": "asked"}]
    holdout = pd.DataFrame({"prompt": [asked], "question": ["asked"]})
    exam = Measurement(None, PRESETS["pocket"], THINK_ANSWER, holdout, source, other=named)
    assert exam.other == other and len(exam.elsewhere) == count
    for asked, question in zip(exam.elsewhere["prompt"], exam.elsewhere["question"], strict=True):
        assert asked == [*before, {"role": "user", "content": question}]
