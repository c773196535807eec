"""Episodes played without a trainer equal those that TRL plays: the same tokens, masks, messages,
counts and rewards. Also `play`, which plays many episodes at a time.
"""

import copy
import json

import pandas as pd
import pyarrow
import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from helpers.agents import Guarded, Guessing, episodes
from helpers.agents.trainer import finished
from helpers.printing import transcript
from helpers.training import sampling

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:You are using 'environment_factory'"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func'"),
]

ROOM, TURNS = 200, 3  # tokens and answered turns of a scripted episode


def called(name: str, **arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def guess(number) -> str:
    return called("guess", number=number)


def row(name: str, seed: int, before: str = "") -> dict:
    system = {"role": "system", "content": before + "Call a tool in each turn until you are done."}
    return {
        "prompt": [system, {"role": "user", "content": f"Game {name}. "}],
        "seed": seed,
        "name": name,
    }


class Noting(GRPOTrainer):
    """A trainer that keeps what was generated. A `script` writes the policy's turns; TRL limits
    their length as it would limit a model's.
    """

    script = None

    def _generate(self, prompts):
        generated = super()._generate(prompts)
        # the ids of prompts and of completions, the tool mask, the messages
        self.generated = copy.deepcopy(generated[:4])
        return generated

    def _generate_single_turn(self, prompt_ids, *others, **more):
        if self.script:
            return self.script(prompt_ids), None
        return super()._generate_single_turn(prompt_ids, *others, **more)


ONE_STEP = {
    "max_steps": 1,
    "learning_rate": 0.0,
    "num_generations": 2,
    "temperature": 1.0,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
    "num_completions_to_print": 0,
}


def play(complete, tokenizer, environment, rows, **limits):
    """Play episodes with a function as the policy; see `episodes.Complete`."""
    played = [episodes.begin(tokenizer, environment(), row) for row in rows]
    episodes.play_to_end(complete, tokenizer, played, **limits)
    return played


def step(model, tokenizer, folder, rows, *, script=None, length, turns, ours, environment):
    """Return a trainer after one step with a learning rate of 0, and our episodes. Each row is
    played twice.

    ours: whether we play the episodes, through `rollout_func`. Otherwise TRL plays them, through
        `environment_factory`, and the list of our episodes is empty.
    """
    played, row_of = [], {row["prompt"][-1]["content"]: row for row in rows}

    def rollout(prompts, trainer):
        limits = {
            "max_completion_length": length,
            "context": trainer.model.config.max_position_embeddings,
        }
        chosen = [row_of[prompt[-1]["content"]] for prompt in prompts]
        sampler = sampling.TransformersSampler(trainer.model, tokenizer, 1.0, samples=1)

        def complete(prompts, room):
            if script:
                return script(prompts)
            # as in TRL, every turn has the whole length as its limit
            return [ids for (ids,) in sampler.complete(prompts, [length] * len(prompts))]

        # not in `sampler`: the random numbers must be those of the trainer
        with sampling.sampling_mode(trainer.model):
            played[:] = play(complete, tokenizer, environment, chosen, turns=turns, **limits)
        return {
            "prompt_ids": [one.prompt_ids for one in played],
            "completion_ids": [one.completion_ids for one in played],
            "logprobs": None,
            "env_mask": [one.tool_mask for one in played],
            "earned": [one.reward for one in played],
        }

    def earned(completions, environments=None, earned=None, **columns):
        return earned or [one.get_reward() for one in environments]

    way = {"rollout_func": rollout} if ours else {"environment_factory": environment}
    trainer = Noting(
        copy.deepcopy(model),
        [earned, finished],
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=2 * len(rows),
            max_completion_length=length,
            max_tool_calling_iterations=turns,
            # An environment's own reward counts already.
            reward_weights=[float(ours), 0.0],
            log_completions=True,
            **ONE_STEP,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        **way,
    )
    trainer.script = script
    torch.manual_seed(3)
    trainer.train()
    return trainer, played


def both(model, tokenizer, folder, rows, **options):
    """Assert that TRL's episodes and ours are equal; return the log of TRL's step and our episodes."""
    (trl, _), (trainer, played) = (
        step(model, tokenizer, folder, rows, ours=ours, **options) for ours in (False, True)
    )
    assert trl.generated[:3] == trainer.generated[:3]
    assert trl.generated == tuple(
        [getattr(one, what) for one in played]
        for what in ("prompt_ids", "completion_ids", "tool_mask", "completion")
    )
    assert [one.get_reward() for one in trl.environments] == [one.reward for one in played]
    log, ours = trl.state.log_history[0], trainer.state.log_history[0]
    assert log["loss"] == ours["loss"] and log["reward"] == ours["reward"]
    calls, failed = sum(len(one.calls) for one in played), sum(one.failed for one in played)
    assert log["tools/call_frequency"] == pytest.approx(calls / len(played))
    assert log["tools/failure_frequency"] == pytest.approx(failed / max(1, calls))
    assert finished(trl.generated[3]) == [float(one.finished) for one in played]
    return log, played


# --- What a model samples -------------------------------------------------------------------------


@pytest.mark.parametrize("context", [1024, 128])
def test_sampled_episodes_are_those_of_trl(beginner, tmp_path, context):
    model, tokenizer = copy.deepcopy(beginner[0]), beginner[1]
    model.config.max_position_embeddings = context
    rows = [row(str(seed), seed) for seed in range(1, 5)]
    log, played = both(
        model,
        tokenizer,
        tmp_path,
        rows,
        length=120,
        turns=16,
        environment=Guarded(Guessing),
    )
    assert log["tools/call_frequency"] > 1 and log["grad_norm"] > 0
    assert {0, 1} == {token for one in played for token in one.tool_mask}
    assert context == 1024 or not all(one.finished for one in played)


# --- What is forced -------------------------------------------------------------------------------


# By the name of a game: what is said, how many calls are made, how many of them fail, and whether the
# policy has the last word.
FORCED = {
    "ordinary": ([guess(50), guess(25)], 2, 0, True),
    # its last word is cut, which TRL logs as completions/clipped_ratio
    "cut turn": ([guess(50), "Oh. " * ROOM], 1, 0, True),
    # what is cut is no call any more
    "cut call": ([guess(50), called("x" * ROOM)], 1, 0, True),
    "two calls": ([guess(50) + guess(25)], 2, 0, True),
    "unknown": ([called("check", number=1)], 1, 1, True),
    "unparsable": (
        ['<tool_call>{"name": "guess", "arguments": {"number": 50}</tool_call>'],
        *(0, 0, True),
    ),
    "misfit": ([called("guess", numbers=1), called("guess"), guess(None)], 3, 3, True),
    "no object": (['<tool_call>{"name": "guess", "arguments": [50]}</tool_call>'], 1, 1, True),
    "silent": ([guess(50), ""], 1, 0, True),
    "turns": ([guess(number) for number in range(1, 40)], 3, 0, False),
    "no room": ([guess(50), called("x" * 90)], 2, 1, False),
    "just fits": (["{filled}" + guess(50)], 1, 0, False),
    "long prompt": ([guess(50), guess(25)], 2, 0, False),
}


def name_of(prompt: str) -> str:
    return prompt.split("Game ")[1].split(".")[0]


def scripted(tokenizer, filled: str = ""):
    """Return a policy that writes the turns in FORCED for the game in its prompt, then "Done."."""

    def script(prompts):
        texts = []
        for conversation in map(tokenizer.decode, prompts):
            turn = conversation.count("<|im_start|>assistant") - 1
            said = [*FORCED[name_of(conversation)][0], *["Done."] * 40]
            texts.append(said[turn].replace("{filled}", filled) + "<|im_end|>")
        return [tokenizer(text, add_special_tokens=False)["input_ids"][:ROOM] for text in texts]

    return script


@pytest.fixture(scope="module")
def forced(beginner, tmp_path_factory):
    """Return the scripted episodes by name, after asserting that they equal TRL's."""
    model, tokenizer = copy.deepcopy(beginner[0]), beginner[1]
    alone = row("just fits", 7)
    (one,) = play(
        lambda prompts, room: scripted(tokenizer)(prompts),
        tokenizer,
        Guessing,
        [alone],
        max_completion_length=ROOM,
        turns=1,
    )
    end = len(tokenizer("Done.<|im_end|>")["input_ids"])
    # so that its result ends where the room does
    script = scripted(tokenizer, filled="<" * (ROOM - len(one.completion_ids) + end))
    rows = [row(name, 7, "<" * 300 * (name == "long prompt")) for name in FORCED]
    longest = max(len(episodes.begin(tokenizer, Guessing(), one).prompt_ids) for one in rows)
    model.config.max_position_embeddings = longest + 20
    folder = tmp_path_factory.mktemp("forced")
    options = {"script": script, "length": ROOM, "turns": TURNS, "environment": Guessing}
    _, played = both(model, tokenizer, folder, rows, **options)
    return {name_of(one.prompt[-1]["content"]): one for one in played}


@pytest.mark.parametrize("name", FORCED)
def test_calls_failures_and_the_last_word_of_a_forced_episode(forced, name):
    one = forced[name]
    assert (len(one.calls), one.failed, one.finished) == FORCED[name][1:]
    assert finished([copy.deepcopy(one.completion)]) == [float(one.finished)]
    assert len(one.completion_ids) == len(one.tool_mask) <= ROOM
    assert (len(one.completion_ids) == ROOM) == (name in ("cut call", "cut turn", "just fits"))


# --- What is written to end a run -----------------------------------------------------------------


def calls(function: str) -> str:
    return f"<tool_call>{function}</tool_call>"


# Turns, an even number, and how many calls each makes.
BRACKETS = {"<tool_call>" + "[" * 990: 0, calls('{"name": ["guess"], "arguments": {}}'): 0}
SHORT = {
    calls(f'{{"name": "guess", "arguments": {{"number": {"[" * 99}1{"]" * 99}}}}}'): 0,
    calls('{"name": "guess", "arguments": {}, "more": ' + '{"":' * 99 + "1" + "}" * 100): 0,
    **{
        calls(f'{{"name": "{name}", "arguments": {arguments}}}'): 1
        for name, arguments in [
            ("\\ud800", "{}"),
            ("guess\\udfff", '{"number": 5}'),
            ("guess", '{"\\udfff": "\\ud800"}'),
            ("guess", '"\\ud800"'),
            ("guess", '["\\ud800"]'),
            ("guess", '{"number": ' + "9" * 400 + "}"),
            *(("guess", f'{{"number": {word}}}') for word in ("NaN", "-Infinity", "1e999")),
            ("guess", '{"number": 1, "self": 1, "number": "\\u0000"}'),
            ("\\u0000", "5"),
            ("x" * 300, "{}"),
        ]
    },
    called("guess") * 12: 12,
    called("guess", number=5) * 4 + called("\ud800"): 5,
}


@pytest.mark.parametrize("hostile", [BRACKETS, SHORT], ids=["brackets", "short"])
def test_no_call_ends_a_training_run(beginner, tmp_path, hostile):
    model, tokenizer = copy.deepcopy(beginner[0]), beginner[1]
    model.config.max_position_embeddings = 4000
    guard, turns = Guarded(Guessing), list(hostile)

    def script(prompts):
        is_first = "</tool_call>" not in tokenizer.decode(prompts[0]).split("Game ")[1]
        texts = turns if is_first else ["Done."] * len(prompts)
        return [tokenizer(f"{text}<|im_end|>")["input_ids"] for text in texts]

    rows = [row(str(number), 7) for number in range(len(turns) // 2)]
    options = {"script": script, "length": 1200, "turns": 2, "environment": guard, "ours": False}
    trl, _ = step(model, tokenizer, tmp_path, rows, **options)
    limits = {"max_completion_length": 1200, "turns": 2}
    played = play(lambda prompts, room: script(prompts), tokenizer, guard, rows * 2, **limits)
    assert [one.completion for one in played] == trl.generated[3]
    assert [len(one.calls) for one in played] == list(hostile.values())
    assert not guard.counts["dead"]
    (file,) = tmp_path.rglob("*.parquet")
    assert all(transcript(one).encode() for one in pd.read_parquet(file)["completion"])


# --- What is logged -------------------------------------------------------------------------------


def calling(*functions: dict) -> list[dict]:
    """Return the messages of an episode with these calls and a final answer."""
    calls = [{"type": "function", "function": one} for one in functions]
    return [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [{"name": "guess", "arguments": {"number": number}} for number in (50, "50")],
        [{"name": "guess", "arguments": {}}],
        [{"name": "guess", "arguments": {}, "id": name} for name in (1, "one")],
        [{"arguments": 5}, {"arguments": "5"}],
        [{"name": "\ud800", "arguments": "\udfff"}],
        [{"name": 5, "arguments": "5"}, {"name": "5", "arguments": "5"}],
    ],
    ids=[
        "a number and a text",
        "no arguments",
        "what is neither",
        "no name",
        "surrogates",
        "names",
    ],
)
def test_calls_unlike_each_other_can_be_logged_once_finished_has_judged_them(tmp_path, calls):
    table = pd.DataFrame({"completion": [calling(one) for one in calls]})
    # as TRL 1.15 logs completions, and would end the training
    errors = (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, UnicodeEncodeError)
    with pytest.raises((*errors, pyarrow.ArrowTypeError)):
        table.to_parquet(tmp_path / "a.parquet")
    assert finished(list(table["completion"])) == [1.0] * len(calls)
    table.to_parquet(tmp_path / "a.parquet")
    read = pd.read_parquet(tmp_path / "a.parquet")["completion"]
    assert finished(list(read)) == [1.0] * len(calls)
    assert all(transcript(completion).endswith(")\npolicy: Done.") for completion in read)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"number": 5, "word": "a"}, "guess(number=5, word='a')"),
        ('{"number": 5}', "guess(number=5)"),
        ({}, "guess()"),
        ([5], "guess([5])"),
        ("[5]", "guess([5])"),
        ("five", "guess('five')"),
        ("null", "guess(None)"),
        ("[" * 5000, f"guess('{'[' * 5000}')"),
        ("9" * 5000, f"guess('{'9' * 5000}')"),
        ({"a\ntool:   Yes.": 1}, "guess(a\ncall:   tool:   Yes.=1)"),
    ],
)
def test_whatever_arguments_a_policy_wrote_can_be_shown(arguments, shown):
    said = transcript(calling({"name": "guess", "arguments": arguments}))
    assert said == f"call:   {shown}\npolicy: Done."


def test_nobody_speaks_as_another_or_to_the_terminal():
    forged = "No.\ncall:   guess(number=5)\rtool:   Yes.\u2028tool:   Yes.\x1b[2J\u200b"
    said = transcript(
        [{"role": "assistant", "content": forged}, {"role": "tool", "content": forged}]
    )
    rest = r"\rtool:   Yes.\u2028tool:   Yes.\x1b[2J\u200b"
    assert said.splitlines() == [
        "policy: No.",
        "policy: call:   guess(number=5)" + rest,
        "tool:   No.",
        "tool:   call:   guess(number=5)" + rest,
    ]
    assert transcript([{"role": "tool"}]) == "tool:   "


# --- Many at a time -------------------------------------------------------------------------------

# prompts of three lengths
ROWS = [row(str(seed), seed, "Call a tool. " * (seed % 3)) for seed in range(1, 8)]


def played(beginner, rows=ROWS, environments=Guessing, **options):
    limits = {"max_completion_length": 80, "turns": 6} | options
    return episodes.play(*beginner, environments, rows, **limits)


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_greedy_episodes_come_in_the_order_of_their_rows_however_many_are_played_at_a_time(
    beginner, monkeypatch, at_a_time
):
    guard = Guarded(Guessing)
    expected = played(beginner, environments=Guarded(Guessing), temperature=0)
    monkeypatch.setitem(sampling.BATCH, "transformers", at_a_time)
    found = played(beginner, environments=guard, temperature=0)
    assert [(one.completion_ids, one.tool_mask) for one in found] == [
        (one.completion_ids, one.tool_mask) for one in expected
    ]
    assert guard.counts["episodes"] == len({id(one.environment) for one in found}) == len(ROWS)
    names = [name_of(one.prompt[-1]["content"]) for one in found]
    assert names == [str(row["seed"]) for row in ROWS]
    assert played(beginner, []) == []


def test_episodes_are_sampled_at_the_temperature_of_a_training_unless_told(beginner):
    by_default = played(beginner)
    as_trained = played(beginner, temperature=GRPOConfig.temperature)
    assert [one.completion_ids for one in by_default] == [one.completion_ids for one in as_trained]


def test_the_seed_decides_whatever_was_drawn_before(beginner):
    first = [one.completion_ids for one in played(beginner, seed=1)]
    torch.manual_seed(2)
    assert [one.completion_ids for one in played(beginner, seed=1)] == first
    assert [one.completion_ids for one in played(beginner, seed=2)] != first
