"""A policy's episodes in an environment: the loop that TRL runs inside its trainer, written out,
for playing without one.

TRL 1.15's is `_tool_call_loop` (grpo_trainer.py 1872 to 2112), reached through
`GRPOTrainer(environment_factory=…)`. This one gives the same tokens from the same random numbers,
and every limit falls where TRL's does. Left out: tools that are asynchronous, images, several
environments in one batch, `chat_template_kwargs`, and rows without a prompt.
"""

import inspect
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.agents.protocol import Environment, called, tools_of
from helpers.data.tasks import fingerprint
from helpers.tags import transcript as transcript
from helpers.templates import options_of

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
        """What the environment gives for it."""
        return self.environment.get_reward()

    @property
    def finished(self) -> bool:
        """Whether the last word is the policy's own; else a limit cut the episode off before its
        last call was answered.
        """
        return _ended(self.said)


def finished(completions: list[list[dict]], **columns) -> list[float]:
    """1.0 where the last message is the policy's and calls nothing, 0.0 where it is a call that
    nobody answered, or an answer that left no room for another word. (Where the policy's own last
    words were cut, TRL's `completions/clipped_ratio` says so.)

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
    ended = [float(_ended(said)) for said in completions]
    for message in itertools.chain.from_iterable(completions):
        for call in _calls(message):
            name, arguments = call["function"].get("name", ""), call["function"].get("arguments")
            call["function"] = {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
            }
    return ended


def _ended(said: list[dict]) -> bool:
    return len(said) > 0 and said[-1]["role"] == "assistant" and len(_calls(said[-1])) == 0


def _calls(message: dict) -> Sequence[dict]:
    """The calls of a message; a message read from a Parquet file has an array of them, or None."""
    calls = message.get("tool_calls")
    return () if calls is None else calls


def go_on(
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

    complete: the policy; see `Complete`, and `policy.play`. max_completion_length: tokens of an
    episode after its prompt, the tools' included. turns: how often its calls are answered (TRL's
    `max_tool_calling_iterations`). context: the model's, for prompt and episode together.
    """
    from trl.chat_template_utils import parse_response

    for turn in range(turns + 1):
        written = complete(
            [episode.prompt_ids + episode.ids for episode in going],
            [max_completion_length - len(episode.ids) for episode in going],
        )
        for episode, ids in zip(going, written, strict=True):
            ids = ids[: max_completion_length - len(episode.ids)]
            if ids:  # what cannot be parsed as a call is plain text
                before = episode.prompt_ids + episode.ids
                episode.said.append(parse_response(tokenizer, ids, prefix=before))
            episode.ids += ids
            episode.mask += [1] * len(ids)
        if turn < turns:
            going = [one for one in going if answer(one, tokenizer, max_completion_length, context)]
        if not going:
            break


def begun(tokenizer, environment: Environment, row: dict) -> Episode:
    """An episode at its beginning: what `reset` says is appended to the last message, and the tools
    stand in the prompt.
    """
    said = environment.reset(**row)
    prompt = [dict(message) for message in row["prompt"]]
    prompt[-1]["content"] += said or ""
    tools = [getattr(environment, name) for name in tools_of(type(environment))]
    ids = tokenizer.apply_chat_template(
        prompt,
        tools=tools,
        add_generation_prompt=True,
        return_dict=True,
        **options_of(tokenizer),
    )
    return Episode(environment, prompt, ids["input_ids"])


def answer(
    episode: Episode, tokenizer, max_completion_length: int, context: int | None = None
) -> bool:
    """Make the calls of the last message and add their results; whether there was a call, and room
    for what came back.

    If there is no room, the results are left out and the call stays the last word, as in TRL.
    """
    results = []
    for call in _calls(episode.said[-1]) if episode.said else ():
        function = call["function"]
        content, failed = called(episode.environment, function["name"], function["arguments"])
        results.append({"role": "tool", "name": function["name"], "content": content})
        episode.calls.append(function)
        episode.failed += failed
    if not results:
        return False
    ids = _result_ids(tokenizer, results)
    length = len(episode.ids) + len(ids)
    if length > max_completion_length or (
        context is not None and len(episode.prompt_ids) + length >= context
    ):
        return False
    episode.said += results
    episode.ids += ids
    episode.mask += [0] * len(ids)
    return True


def _result_ids(tokenizer, results: list[dict]) -> list[int]:
    """The tokens from the policy's end token to where it writes again.

    A conversation around the results shows which they are: to render the real one again could cut
    what the policy wrote into other tokens than it sampled.
    """
    call = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
    before = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    start, whole = (
        tokenizer(
            tokenizer.apply_chat_template(messages, **how, tokenize=False, **options_of(tokenizer)),
            add_special_tokens=False,
        )["input_ids"]
        for messages, how in ((before, {}), (before + results, {"add_generation_prompt": True}))
    )
    ends = [at + 1 for at, token in enumerate(start) if token == tokenizer.eos_token_id]
    # prepare_template has made sure that what follows a call does not change how it is rendered
    known = ends[-1] if ends else len(start)
    return whole[known:]


def episodes_fingerprint(rows: list[dict], factory: Callable[[], Environment], limits: str) -> str:
    """The fingerprint of a training's episodes: of its rows, the limits, and the environment's own
    files, so that after a change of any of them no old checkpoint is continued.
    """
    methods = inspect.getmembers(type(factory()), inspect.isfunction)
    files = {inspect.getsourcefile(method) for _, method in methods} - {None}
    rules = "\n".join(Path(file).read_text("utf-8") for file in sorted(files))
    marked = [
        {"question": row["question"], "answer": json.dumps(row, sort_keys=True, default=str)}
        for row in rows
    ]
    return fingerprint([{"question": limits, "answer": rules}, *marked])
