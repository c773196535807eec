"""Completions kept as they come, on the real pocket model: an interruption, a damage or a change
never shows in them.
"""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from helpers.presets import PRESETS
from helpers.results import answering
from helpers.results.answering import answered, weights_identity
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
            "progress": False,
        }
        return answered(Run("kept"), name, model, tokenizer, prompts, **(settings | options))

    return ask


def stored(name: str = "one") -> Path:
    return Run("kept").require(f"evaluation/{name}.parquet")


# --- What comes back ------------------------------------------------------------------------------


def test_every_prompt_has_its_own_completions_in_the_order_given(ask):
    groups = ask(temperature=0.3, max_new_tokens=40)
    assert [len(group) for group in groups] == [2] * len(PROMPTS)
    for n, group in zip(range(11, 21), groups, strict=True):
        assert all(str(n) in text for text in group)


def test_greedy_completions_are_those_of_the_model_at_once(ask, model, tokenizer):
    expected = sample(model, tokenizer, PROMPTS, max_new_tokens=12, temperature=0.0, progress=False)
    assert ask(samples=1, temperature=0.0) == expected


def test_one_question_asked_in_two_chunks_is_sampled_anew(ask):
    groups = ask(prompts=[PROMPTS[0]] * 6, samples=4, temperature=2.0)
    assert groups[:3] != groups[3:], "with one seed for all chunks these would be the same"


def test_the_file_can_be_read_by_anyone(ask):
    groups = ask()
    table = pd.read_parquet(stored())
    assert list(table["question"]) == [messages[-1]["content"] for messages in PROMPTS]
    assert [list(group) for group in table["completions"]] == groups


def test_prompts_as_a_parquet_file_gives_them_are_the_same_prompts(ask, batches):
    expected = ask()
    done = batches.done
    assert ask(prompts=[np.array(messages, dtype=object) for messages in PROMPTS]) == expected
    assert batches.done == done > 0


def test_no_prompts_no_completions(ask):
    assert ask(prompts=[]) == []


@pytest.mark.parametrize("progress", [False, True])
def test_progress_is_shown_where_it_is_asked_for(ask, capsys, progress):
    ask(progress=progress)
    assert ("10/10" in capsys.readouterr().err) is progress


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


def test_after_many_interruptions_too(ask, batches):
    expected = ask("never")
    for _ in range(CHUNKS):
        batches.done, batches.most = 0, 1
        try:
            found = ask("often")
        except KeyboardInterrupt:
            continue
    assert found == expected


def test_what_is_finished_is_not_asked_again(ask, batches):
    expected = ask()
    written = stored().stat().st_mtime_ns
    batches.most = batches.done
    assert ask() == expected
    assert ask(batch_size=2) == expected, (
        "after running out of memory a smaller batch goes on with the same file"
    )
    assert stored().stat().st_mtime_ns == written


def test_half_a_file_that_a_kill_left_beside_it_does_not_matter(ask, batches):
    batches.most = 2
    with pytest.raises(KeyboardInterrupt):
        ask()
    stored().with_name(f".{stored().name}.1.tmp").write_bytes(stored().read_bytes()[:100])
    batches.most = 10**9
    assert ask() == ask("never")


# --- Not to be trusted ----------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_starts_anew(ask, batches, kept):
    expected = ask()
    content = stored().read_bytes()
    stored().write_bytes(content[: int(kept * len(content))])
    batches.done = 0
    assert ask() == expected and batches.done == CHUNKS


@pytest.mark.parametrize(
    "content", [b"PAR1", b"hello", b"\0" * 4096], ids=["magic", "text", "zeros"]
)
def test_what_is_no_such_file_starts_anew(ask, batches, content):
    expected = ask()
    stored().write_bytes(content)
    batches.done = 0
    assert ask() == expected and batches.done == CHUNKS


def test_another_table_of_that_name_starts_anew(ask, batches):
    expected = ask()
    pd.DataFrame({"completions": [["made up"]] * 10}).to_parquet(stored())
    batches.done = 0
    assert ask() == expected and batches.done == CHUNKS


@pytest.mark.slow
def test_no_single_flipped_byte_changes_a_completion(ask):
    expected = ask()
    content = stored().read_bytes()
    rng = random.Random(0)
    for position in rng.sample(range(len(content)), 25):
        damaged = bytearray(content)
        damaged[position] ^= 1 << rng.randrange(8)
        stored().write_bytes(damaged)
        assert ask() == expected, position


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
    batches.most = batches.done
    assert ask(**change) == groups, "and is itself kept"


def test_the_order_of_what_identifies_the_weights_does_not_matter(ask, batches):
    groups = ask()
    batches.most = batches.done  # one more would be an error
    assert ask(identity=dict(reversed(IDENTITY.items()))) == groups


@pytest.mark.parametrize("chunk", [0, -1])
def test_no_prompts_at_a_time_is_refused(ask, chunk):
    with pytest.raises(ValueError, match=f"chunk={chunk}"):
        ask(chunk=chunk)


# --- Which weights --------------------------------------------------------------------------------


def save(folder: Path, name: str = "model.safetensors", **tensors) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / name)
    return folder


def test_equal_weights_have_one_hash_wherever_they_lie(tmp_path):
    a, b = (save(tmp_path / name, w=torch.arange(1000.0)) for name in "ab")
    assert weights_identity(a) == weights_identity(b) == weights_identity(str(a))
    assert len(weights_identity(a)) == 16
    (b / "config.json").write_text("{}")
    assert weights_identity(a) == weights_identity(b), "only weights count"


@pytest.mark.parametrize(
    "tensors",
    [{"w": torch.arange(1000.0).neg()}, {"v": torch.arange(1000.0)}, {"w": torch.arange(1001.0)}],
)
def test_other_weights_have_another(tmp_path, tensors):
    a, b = save(tmp_path / "a", w=torch.arange(1000.0)), save(tmp_path / "b", **tensors)
    assert weights_identity(a) != weights_identity(b)


def test_every_file_and_its_name_count(tmp_path):
    folder = save(tmp_path / "a", w=torch.zeros(4))
    alone = weights_identity(folder)
    save(folder, "second.safetensors", w=torch.zeros(4))
    assert weights_identity(folder) != alone
    (folder / "model.safetensors").unlink()
    assert weights_identity(folder) not in (alone, None)


@pytest.mark.parametrize("position", ["first", "middle", "last"])
def test_of_a_large_file_a_change_of_all_blocks_is_seen_and_the_ends_always(
    tmp_path, monkeypatch, position
):
    monkeypatch.setattr(answering, "_BLOCK", 64)  # so that 40 kB are as large as 640 MB
    folder = save(tmp_path / "a", w=torch.zeros(10_000))
    before, path = weights_identity(folder), folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    size = len(content)
    where = {"first": range(1), "middle": range(0, size, 32), "last": range(size - 1, size)}[
        position
    ]
    for i in where:
        content[i] ^= 1
    path.write_bytes(content)
    assert weights_identity(folder) != before


def test_a_folder_without_weights_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"empty holds no \.safetensors"):
        weights_identity(tmp_path / "empty")
