"""Play a policy's episodes in an environment, without a trainer.

Begin with `play_to_end`, the loop itself. `play` calls it with a model as the policy. An episode is
one conversation of a policy with an environment:

    prompt       the row's messages, and the text of `reset`
    completion   the policy writes, and may call tools      tool_mask 1
                 the tools' results are appended            tool_mask 0
                 … until the policy calls no tool, or a limit is reached
    reward       the environment's `get_reward()`

TRL 1.15 runs this loop inside its trainer (`_tool_call_loop` in grpo_trainer.py). The loop here
gives the same tokens from the same random numbers, and applies each limit at the same place. Left
out: asynchronous tools, images, several environments in one batch, `chat_template_kwargs`, and rows
without a prompt.

Notebook 10 does not use `trainer.evaluate()`, which plays episodes, too. It needs a trainer before
there is an adapter, shuffles the rows, and returns neither the tool mask nor the calls. It reuses
an instance in the next batch, so that an episode loses its game. It also computes a loss: 64 games
took 1.6 times as long.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helpers.agents.protocol import Environment, call_tool, read_calls_safely, tools_of
from helpers.templates import encode
from helpers.training import sampling

# A policy as a function: from the token ids of each conversation so far, and the largest number of
# new tokens for each, to the new token ids of each, including the end token.
Complete = Callable[[list[list[int]], list[int]], list[list[int]]]


@dataclass
class Episode:
    """One episode, finished or not.

    environment: its instance of the environment.
    prompt: the messages it began with, including the text of `reset`.
    prompt_ids: the prompt as tokens.
    completion: the messages since then, of the policy and of the tools.
    completion_ids: the completion as tokens.
    tool_mask: for each of the `completion_ids`, 1 if the policy wrote it. 0 stands for a tool's
        token, which is not trained on.
    calls: the calls that were made, each with `name` and `arguments`.
    failed: how many of the calls returned an error.
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
        """Return the environment's reward."""
        return self.environment.get_reward()

    @property
    def finished(self) -> bool:
        """Return whether the policy ended the episode. Otherwise a limit ended it before its last
        call was answered.
        """
        return is_finished(self.completion)


def is_finished(completion: Sequence[dict]) -> bool:
    """Return whether the last message is the policy's and has no calls."""
    # not `if not completion`: a completion from a Parquet file is an array
    if len(completion) == 0:
        return False
    return completion[-1]["role"] == "assistant" and not calls_of(completion[-1])


def calls_of(message: dict) -> list[dict]:
    """Return the calls of a message. A Parquet file has them as an array or None."""
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
    """Play one episode per row with a model, and return the episodes in the order of the rows. See
    `play_to_end` for the limits.

    All episodes begin first, and then `sampling.BATCH` of them are played at a time. With vLLM, an
    episode also ends at the engine's context length, as in TRL's trainer.
    """
    context = sampling.context_of(model)
    episodes = [begin(tokenizer, environments(), row) for row in rows]
    batch = sampling.BATCH[sampling.engine_of(model)]

    with sampling.sampler(model, tokenizer, temperature=temperature, seed=seed) as continuations:

        def complete(prefixes: list[list[int]], limits: list[int]) -> list[list[int]]:
            if sampling.engine_of(model) == "vllm":
                # it refuses prompts whose limit does not fit into the context
                limits = [
                    min(limit, max(1, context - len(prefix)))
                    for prefix, limit in zip(prefixes, limits, strict=True)
                ]
            # there is one continuation per prefix
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
    """Begin an episode and return it. The text of `reset` is appended to the last message, and the
    prompt describes the tools.
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
    """Play episodes that have begun to their ends, all at once. In each turn the policy writes, its
    calls are made, and their results are appended, until no episode has calls.

    max_completion_length: the most tokens of an episode after its prompt, including the tools'.
    turns: how often calls are answered (TRL's `max_tool_calling_iterations`).
    context: the model's context length, for prompt and completion together.
    """
    from trl.chat_template_utils import parse_response

    read_calls_safely()
    for turn in range(turns + 1):
        # 1. Let the policy write in all episodes at once.
        prefixes = [episode.prompt_ids + episode.completion_ids for episode in episodes]
        limits = [max_completion_length - len(episode.completion_ids) for episode in episodes]
        continuations = complete(prefixes, limits)

        # 2. Append what it wrote. A call that cannot be parsed is plain text.
        for episode, prefix, limit, ids in zip(
            episodes, prefixes, limits, continuations, strict=True
        ):
            ids = ids[:limit]
            if ids:
                message = parse_response(tokenizer, ids, prefix=prefix)
                episode.completion.append(message)
            episode.completion_ids += ids
            episode.tool_mask += [1] * len(ids)
        if turn == turns:
            break

        # 3. Make its calls, and append their results. An episode without results ends.
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
    """Make the calls of the last message and append their results. Return whether there were calls
    and room for the results. Without room, the call remains the last message, as in TRL.
    """
    # 1. Make the calls.
    if not episode.completion:
        return False
    results = []
    for call in calls_of(episode.completion[-1]):
        function = call["function"]
        content, failed = call_tool(episode.environment, function["name"], function["arguments"])
        episode.calls.append(function)
        episode.failed += failed
        results.append({"role": "tool", "name": function["name"], "content": content})
    if not results:
        return False

    # 2. Append the results if they fit.
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
    """Return the tokens between the policy's end token and its next turn.

    They are taken from a short conversation with the same results. Rendering the real conversation
    again could split the policy's text into other tokens than it sampled.
    """
    call = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
    before = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]

    start = encode(tokenizer, before, answering=False)
    whole = encode(tokenizer, before + results)
    # The results begin behind the last end token of `start`: `prepare_template` ensured that later
    # messages do not change how earlier ones are rendered.
    end = tokenizer.eos_token_id
    behind_ends = [position + 1 for position, token in enumerate(start) if token == end]
    return whole[max(behind_ends, default=len(start)) :]
