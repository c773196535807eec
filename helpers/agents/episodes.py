"""A policy's episodes in an environment, played without a trainer.

The loop is the one that TRL 1.15 runs inside its trainer (`_tool_call_loop`, grpo_trainer.py 1872
to 2112), written out: it gives the same tokens from the same random numbers, and every limit falls
where TRL's does. Left out: tools that are asynchronous, images, several environments in one batch,
`chat_template_kwargs`, and rows without a prompt.
"""

# Why not `trainer.evaluate()`, which plays the rows of an `eval_dataset`? It was tried with TRL
# 1.15: it needs a trainer where notebook 10 has no adapter yet, shuffles the rows, hands an
# instance on from batch to batch, so that no episode keeps its game, passes neither the tool mask
# nor the calls on, and computes a loss: 64 games took 1.6 times as long.

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.agents.protocol import Environment, call_tool, tools_of
from helpers.data.tasks import fingerprint
from helpers.templates import encode
from helpers.training import policy

# From prompts as token ids, and the room that each has left, to what the policy writes next, as ids
# with the end token.
Complete = Callable[[list[list[int]], list[int]], list[list[int]]]


@dataclass
class Episode:
    """One episode, as far as it has come.

    environment: its instance. prompt: the messages it began with, the environment's own words
    included. said: the messages since, the policy's and the tools' in turn. prompt_ids, ids: both
    as tokens. mask: a number for each of `ids`, 1 where the policy wrote it and 0 where a tool did,
    which is not trained. calls: the calls that were made, with `name` and `arguments`.
    failed: how many of them came back as an error.
    """

    environment: Environment
    prompt: list[dict]
    prompt_ids: list[int]
    said: list[dict] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    calls: list[dict] = field(default_factory=list)
    failed: int = 0

    @property
    def reward(self) -> float | None:
        """Return what the environment gives for it."""
        return self.environment.get_reward()

    @property
    def finished(self) -> bool:
        """Return whether the last word is the policy's own; else a limit cut the episode off before
        its last call was answered.
        """
        return _is_finished(self.said)


def finished(completions: list[list[dict]], **columns) -> list[float]:
    """Return 1.0 where the last message is the policy's and calls nothing, 0.0 where it is a call
    that nobody answered, or an answer that left no room for another word. (Where the policy's own
    last words were cut, TRL's `completions/clipped_ratio` says so.)

    For `GRPOTrainer(reward_funcs=[..., finished])` with the weight 0: it is watched, and earns
    nothing. TRL logs neither that a tool's result did not fit into `max_completion_length` nor that
    `max_tool_calling_iterations` were over.

    Let it be the last reward, because it also makes the messages fit to be logged: it turns the
    calls' arguments into text, and leaves out what is neither a name nor arguments. TRL 1.15 writes
    the messages as a Parquet table (grpo_trainer.py 3277), which has one type a column: a policy
    that calls once with 50 and once with "50" would end the training with an ArrowInvalid, and one
    that calls without any argument with an ArrowNotImplementedError.

    >>> word = {"role": "assistant", "content": "I know it.", "tool_calls": []}
    >>> finished([[word], [word, {"role": "tool", "content": "Yes, it is 5."}]])
    [1.0, 0.0]
    """
    scores = [float(_is_finished(said)) for said in completions]
    for said in completions:
        for message in said:
            for call in _calls_of(message):
                name = call["function"].get("name", "")
                arguments = call["function"].get("arguments")
                if not isinstance(arguments, str):
                    arguments = json.dumps(arguments)
                call["function"] = {"name": name, "arguments": arguments}
    return scores


def _is_finished(said: list[dict]) -> bool:
    return len(said) > 0 and said[-1]["role"] == "assistant" and len(_calls_of(said[-1])) == 0


def _calls_of(message: dict) -> Sequence[dict]:
    """Return the calls of a message; one read from a Parquet file has an array of them, or None."""
    calls = message.get("tool_calls")
    return () if calls is None else calls


def play(
    model,
    tokenizer,
    environments: Callable[[], Environment],
    rows: Sequence[dict],
    *,
    max_completion_length: int,
    turns: int,
    temperature: float = 1.0,
    seed: int = 3407,
) -> list[Episode]:
    """Play the policy's episodes in an environment and return them, one for each row, in the order
    given; see `play_on`.

    All of them begin first; then `policy.BATCH` are played at a time. With a vLLM engine they also
    end at its context, as in TRL's trainer.
    """
    context = policy.context_of(model)
    episodes = [begun(tokenizer, environments(), row) for row in rows]
    batch = policy.BATCH[policy.engine_of(model)]

    with policy.sampler(
        model, tokenizer, max_new_tokens=max_completion_length, temperature=temperature, seed=seed
    ) as continuations:

        def complete(prompts: list[list[int]], room: list[int]) -> list[list[int]]:
            if policy.engine_of(model) == "vllm":  # which refuses what does not fit
                ends = [max(1, context - len(ids)) for ids in prompts]
                room = list(map(min, room, ends))
            return [ids for (ids,) in continuations(prompts, room)]

        for start in range(0, len(episodes), batch):
            play_on(
                complete,
                tokenizer,
                episodes[start : start + batch],
                max_completion_length=max_completion_length,
                turns=turns,
                context=context,
            )
    return episodes


def begun(tokenizer, environment: Environment, row: dict) -> Episode:
    """Begin an episode and return it: what `reset` says is appended to the last message, and the
    tools stand in the prompt.
    """
    said = environment.reset(**row)
    prompt = [dict(message) for message in row["prompt"]]
    prompt[-1]["content"] += said or ""
    tools = [getattr(environment, name) for name in tools_of(type(environment))]
    return Episode(environment, prompt, encode(tokenizer, prompt, tools=tools))


def play_on(
    complete: Complete,
    tokenizer,
    going: list[Episode],
    *,
    max_completion_length: int,
    turns: int,
    context: int | None = None,
) -> None:
    """Play episodes that have begun to their ends, all at once: the policy writes, its calls are
    made, the results go on the end, until none calls.

    max_completion_length: tokens of an episode after its prompt, the tools' included. turns: how
    often its calls are answered (TRL's `max_tool_calling_iterations`). context: the model's, for
    prompt and episode together.
    """
    from trl.chat_template_utils import parse_response

    for turn in range(turns + 1):
        # the policy writes; what cannot be parsed as a call is plain text
        prompts = [one.prompt_ids + one.ids for one in going]
        room = [max_completion_length - len(one.ids) for one in going]
        written = complete(prompts, room)
        for one, prompt, left, ids in zip(going, prompts, room, written, strict=True):
            ids = ids[:left]
            if ids:
                one.said.append(parse_response(tokenizer, ids, prefix=prompt))
            one.ids += ids
            one.mask += [1] * len(ids)
        if turn == turns:
            break

        # its calls are made
        answered = []
        for one in going:
            results = []
            for call in _calls_of(one.said[-1]) if one.said else ():
                function = call["function"]
                one.calls.append(function)
                name = function["name"]
                content, failed = call_tool(one.environment, name, function["arguments"])
                one.failed += failed
                results.append({"role": "tool", "name": name, "content": content})
            if not results:
                continue
            # if the results have no room, the call stays the last word, as in TRL
            ids = _result_ids(tokenizer, results)
            length = len(one.ids) + len(ids)
            room_in_context = math.inf if context is None else context - len(one.prompt_ids)
            if length <= max_completion_length and length < room_in_context:
                one.said += results
                one.ids += ids
                one.mask += [0] * len(ids)
                answered.append(one)
        going = answered
        if not going:
            break


def _result_ids(tokenizer, results: list[dict]) -> list[int]:
    """Return the tokens from the policy's end token to where it writes again.

    A conversation around the results shows which they are: to render the real one again could cut
    what the policy wrote into other tokens than it sampled.
    """
    call = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
    before = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]

    start = encode(tokenizer, before, answering=False)
    whole = encode(tokenizer, before + results)
    # prepare_template has made sure that what follows a call does not change how it is rendered
    ends = [at + 1 for at, token in enumerate(start) if token == tokenizer.eos_token_id]
    return whole[ends[-1] if ends else len(start) :]


def episodes_fingerprint(rows: list[dict], factory: Callable[[], Environment], limits: str) -> str:
    """Return the fingerprint of a training's episodes: of its rows, the limits, and the
    environment's own files, so that after a change of any of them no old checkpoint is continued.
    """
    methods = inspect.getmembers(type(factory()), inspect.isfunction)
    files = {inspect.getsourcefile(method) for _, method in methods} - {None}
    rules = "\n".join(Path(file).read_text("utf-8") for file in sorted(files))
    marked = [
        {"question": row["question"], "answer": json.dumps(row, sort_keys=True, default=str)}
        for row in rows
    ]
    return fingerprint([{"question": limits, "answer": rules}, *marked])
