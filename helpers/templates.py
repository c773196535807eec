"""Render chat messages as the text and the tokens that a model reads. All prompts go through here.

    set_thinking(tokenizer, False)          # once, when the tokenizer is loaded
    text = render(tokenizer, messages)
    ids = encode(tokenizer, messages)

A model must be measured with the prompts that it is trained with. A chat template therefore always
gets the same keywords besides the messages: `enable_thinking` says whether the model reasons before
it answers. Qwen3's template thinks unless it is False, and then starts the answer with an empty
`<think></think>`. TRL renders by itself, with the same keywords (`settings.grpo_keywords`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary, WeakSet

_PROBE = [{"role": "user", "content": "?"}]  # shows how a template ends a prompt
_OPENED = re.compile(r"<([A-Za-z][\w-]*)>\s*\Z")  # an opening tag at the end of a prompt

# What is known of each tokenizer. It is kept here because the tokenizers belong to others, and by
# weak references, so that it ends with the tokenizer.
_options: WeakKeyDictionary = WeakKeyDictionary()  # tokenizer -> the keywords of its template
_noted_as_cutting: WeakSet = WeakSet()  # the tokenizers whose note on cut turns has been printed


def template_options(thinking: bool | None) -> dict[str, bool]:
    """Return the keywords of `apply_chat_template` for the setting `thinking`; None leaves the
    model's default.

    Chat templates ignore keywords they do not know (trl/chat_templates/*.jinja). A processor for
    images would take an unknown keyword for its own, so its setting must be None
    (`settling.settle`).

    >>> template_options(False)
    {'enable_thinking': False}
    """
    return {} if thinking is None else {"enable_thinking": thinking}


def set_thinking(tokenizer, thinking: bool | None) -> None:
    """Remember the setting for a tokenizer or processor; `render` and `encode` follow it."""
    _options[tokenizer] = template_options(thinking)


def options_of(tokenizer) -> dict[str, bool]:
    """Return the keywords that `set_thinking` has stored for a tokenizer; {} by default."""
    return _options.get(tokenizer, {})


def render(
    tokenizer,
    messages: list[dict],
    *,
    tools: Sequence[Callable] | None = None,
    answering: bool = True,
    **options,
) -> str:
    """Return chat messages as the text that the model reads.

    tokenizer: a tokenizer with a chat template, or a processor.
    tools: functions that the policy may call.
    answering: end the text where the model's answer begins.
    options: keywords of the template, instead of those stored by `set_thinking`.

    Prints a note, once per tokenizer, if the template cuts earlier turns. Qwen3's template removes
    the reasoning between `<think>` and `</think>`, which spoils worked examples.
    """
    options = options or options_of(tokenizer)
    if tools:
        options = options | {"tools": list(tools)}
    text = tokenizer.apply_chat_template(
        messages, add_generation_prompt=answering, tokenize=False, **options
    )
    replies = [message.get("content") for message in messages if message["role"] == "assistant"]
    is_cut = any(isinstance(reply, str) and reply.strip() not in text for reply in replies)
    if is_cut and tokenizer not in _noted_as_cutting:
        _noted_as_cutting.add(tokenizer)
        print(
            "note: the chat template leaves out a part of the worked examples, as many do with "
            "reasoning between <think> and </think>. Other tags, such as tags=reasoning/answer, "
            "keep it."
        )
    return text


def encode(tokenizer, messages: list[dict] | str, **arguments) -> list[int]:
    """Return the token ids of chat messages, or of a text, which is not put into a template.

    arguments: passed to `render`.
    """
    text = messages if isinstance(messages, str) else render(tokenizer, messages, **arguments)
    # verbose=False: no warning about a text longer than the model's context
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def length(tokenizer, messages: list[dict] | str) -> int:
    """Return the number of tokens of chat messages or of a text."""
    return len(encode(tokenizer, messages))


def as_prompted(tags, tokenizer):
    """Return a `TagFormat` with `opened` set if this model's prompt ends with the opening reasoning
    tag.

    Prints a note if the prompt opens that block or another one. An empty block that the template
    also closes changes nothing.
    """
    opening = _OPENED.search(render(tokenizer, _PROBE))
    opened = opening is not None and opening[1] == tags.reasoning
    if opened:
        print(
            f"note: the chat template opens <{tags.reasoning}> in the prompt: a completion begins "
            "with its reasoning, and a completion that opens it again is not in the format"
        )
    elif opening:
        print(
            f"note: the chat template opens <{opening[1]}> in the prompt, and the format has "
            f"<{tags.reasoning}>: use tags={opening[1]}/{tags.answer}, or no completion is in the "
            "format"
        )
    return replace(tags, opened=opened)


def check_thinking(tokenizer, thinking: bool | None) -> None:
    """Print a note if the chat template cannot follow the setting `thinking`, because it always
    renders the same prompt.
    """
    on = render(tokenizer, _PROBE, **template_options(True))
    off = render(tokenizer, _PROBE, **template_options(False))
    if on != off:
        return
    if thinking:
        habit = "answers as it always does"
    elif thinking is False and _OPENED.search(off):
        habit = "thinks in any case"
    else:  # None asks for nothing, and a model that is told not to think does not
        return
    print(
        f"note: thinking={thinking} changes nothing: the chat template has no such choice, and "
        f"this model {habit}"
    )
