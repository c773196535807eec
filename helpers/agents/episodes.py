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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helpers.agents.protocol import Environment, call_tool, tools_of
from helpers.templates import encode
from helpers.training import policy

# From token ids, and how many more of each there may be, to what the policy writes next, as ids
# with the end token.
Complete = Callable[[list[list[int]], list[int]], list[list[int]]]


@dataclass
class Episode:
    """One episode, as far as it has come.

    environment: its instance. prompt: the messages it began with, the environment's own words
    included. completion: the messages since, the policy's and the tools' in turn. prompt_ids,
    completion_ids: both as tokens. tool_mask: a number for each of `completion_ids`, 1 where the
    policy wrote it and 0 where a tool did, which is not trained. calls: the calls that were made,
    with `name` and `arguments`. failed: how many of them came back as an error.
    """

    environment: Environment
    prompt: list[dict]
    prompt_ids: list[int]
    completion: list[dict] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    tool_mask: list[int] = field(default_factory=list)
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
        return is_finished(self.completion)


def is_finished(completion: Sequence[dict]) -> bool:
    """Return whether the last message is the policy's and calls nothing."""
    if len(completion) == 0:  # one read from a Parquet file is an array
        return False
    return completion[-1]["role"] == "assistant" and not calls_of(completion[-1])


def calls_of(message: dict) -> list[dict]:
    """Return the calls of a message; one read from a Parquet file has an array of them, or None."""
    calls = message.get("tool_calls")
    return [] if calls is None else list(calls)


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
    given; see `play_to_end`.

    All of them begin first; then `policy.BATCH` are played at a time. With a vLLM engine they also
    end at its context, as in TRL's trainer.
    """
    context = policy.context_of(model)
    episodes = [begin(tokenizer, environments(), row) for row in rows]
    batch = policy.BATCH[policy.engine_of(model)]

    with policy.sampler(
        model, tokenizer, max_new_tokens=max_completion_length, temperature=temperature, seed=seed
    ) as continuations:

        def complete(prefixes: list[list[int]], limits: list[int]) -> list[list[int]]:
            if policy.engine_of(model) == "vllm":  # which refuses what does not fit
                rooms = [max(1, context - len(ids)) for ids in prefixes]
                limits = [min(pair) for pair in zip(limits, rooms, strict=True)]
            return [ids for (ids,) in continuations(prefixes, limits)]

        for start in range(0, len(episodes), batch):
            play_to_end(
                complete,
                tokenizer,
                episodes[start : start + batch],
                max_completion_length=max_completion_length,
                turns=turns,
                context=context,
            )
    return episodes


def begin(tokenizer, environment: Environment, row: dict) -> Episode:
    """Begin an episode and return it: what `reset` says is appended to the last message, and the
    tools stand in the prompt.
    """
    text = environment.reset(**row)
    prompt = [dict(message) for message in row["prompt"]]
    prompt[-1]["content"] += text or ""
    tools = [getattr(environment, name) for name in tools_of(type(environment))]
    return Episode(environment, prompt, encode(tokenizer, prompt, tools=tools))


def play_to_end(
    complete: Complete,
    tokenizer,
    episodes: list[Episode],
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
        prefixes = [episode.prompt_ids + episode.completion_ids for episode in episodes]
        limits = [max_completion_length - len(episode.completion_ids) for episode in episodes]
        continuations = complete(prefixes, limits)
        for episode, prefix, limit, ids in zip(
            episodes, prefixes, limits, continuations, strict=True
        ):
            ids = ids[:limit]
            if ids:
                episode.completion.append(parse_response(tokenizer, ids, prefix=prefix))
            episode.completion_ids += ids
            episode.tool_mask += [1] * len(ids)
        if turn == turns:
            break

        # its calls are made, and their results added; an episode without any is at its end
        answered = []
        for episode in episodes:
            if _add_results(tokenizer, episode, max_completion_length, context):
                answered.append(episode)
        episodes = answered
        if not episodes:
            break


def _add_results(
    tokenizer, episode: Episode, max_completion_length: int, context: int | None
) -> bool:
    """Make the calls of the last message and add their results; return whether there were any, and
    room for them. If there is no room, the call stays the last word, as in TRL.
    """
    results = []
    for call in calls_of(episode.completion[-1]) if episode.completion else ():
        function = call["function"]
        name = function["name"]
        content, failed = call_tool(episode.environment, name, function["arguments"])
        episode.calls.append(function)
        episode.failed += failed
        results.append({"role": "tool", "name": name, "content": content})
    if not results:
        return False
    ids = _result_ids(tokenizer, results)
    length = len(episode.completion_ids) + len(ids)
    room_in_context = math.inf if context is None else context - len(episode.prompt_ids)
    if length > max_completion_length or length >= room_in_context:
        return False
    episode.completion += results
    episode.completion_ids += ids
    episode.tool_mask += [0] * len(ids)
    return True


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
