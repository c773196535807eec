"""From chat messages to the text and the tokens that a model reads; nothing else renders them.

It alone knows the model's chat template, its tools, and what the template is told besides the
messages: whether the model thinks before it answers. Qwen3's template thinks unless
`enable_thinking` is False, and then begins the answer with an empty `<think></think>`; templates
that do not know the word ignore it (trl/chat_templates/*.jinja). A processor, which reads pictures,
takes a word that its template does not know for one of its own, so it must not get one
(`run_settings.for_model`). TRL renders for itself, with the same words (`presets.grpo_keywords`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

_PROBE = [{"role": "user", "content": "?"}]
_OPENED = re.compile(r"<([A-Za-z][\w-]*)>\s*\Z")  # a prompt that ends so has opened a block


def template_options(thinking: bool | None) -> dict[str, bool]:
    """Return the keywords that `apply_chat_template` gets for the setting `thinking`; none for
    None, the model's own default.

    >>> template_options(False)
    {'enable_thinking': False}
    """
    return {} if thinking is None else {"enable_thinking": thinking}


def set_thinking(tokenizer, thinking: bool | None) -> None:
    """Let a tokenizer or processor carry the setting, for all that renders prompts with it here."""
    tokenizer.template_options = template_options(thinking)


def options_of(tokenizer) -> dict[str, bool]:
    """Return the keywords that a tokenizer carries since `set_thinking`."""
    return getattr(tokenizer, "template_options", {})


def render(
    tokenizer,
    messages: list[dict],
    *,
    tools: Sequence[Callable] | None = None,
    answering: bool = True,
    **options,
) -> str:
    """Return chat messages as the model reads them.

    tokenizer: with its chat template, and the setting of `set_thinking`; or a processor.
    tools: functions that the policy may call.
    answering: end where the model's answer begins.
    options: keywords of the template in place of those that the tokenizer carries.

    A template that leaves out the reasoning of earlier turns, as Qwen3's does with what is between
    `<think>` and `</think>`, spoils worked examples; that is printed once.
    """
    options = options or options_of(tokenizer)
    if tools:
        options = options | {"tools": list(tools)}
    text = tokenizer.apply_chat_template(
        messages, add_generation_prompt=answering, tokenize=False, **options
    )
    replies = [message.get("content") for message in messages if message["role"] == "assistant"]
    is_cut = any(isinstance(reply, str) and reply.strip() not in text for reply in replies)
    if is_cut and not getattr(tokenizer, "has_warned_of_cut_turns", False):
        tokenizer.has_warned_of_cut_turns = True
        print(
            "note: the chat template leaves out a part of the worked examples, as many do with "
            "reasoning between <think> and </think>. Other tags, such as tags=reasoning/answer, "
            "keep it."
        )
    return text


def encode(tokenizer, messages: list[dict] | str, **arguments) -> list[int]:
    """Return the tokens of chat messages, rendered by `render` with these arguments, or of a text
    without a template.
    """
    text = messages if isinstance(messages, str) else render(tokenizer, messages, **arguments)
    # verbose: it would warn of a text that is longer than the model's context
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def length(tokenizer, messages: list[dict] | str) -> int:
    """Return the number of tokens that `encode` gives."""
    return len(encode(tokenizer, messages))


def as_prompted(tags, tokenizer):
    """Return a `TagFormat` as a completion has it after this model's prompt: without the opening
    reasoning tag where the prompt ends with it. If it does, or opens another block, print so.

    An empty block that the template has closed again is the prompt's, and changes nothing.
    """
    opening = _OPENED.search(render(tokenizer, _PROBE))
    opened = opening is not None and opening[1] == tags.reasoning
    if opened:
        print(
            f"note: the chat template opens <{tags.reasoning}> in the prompt: a completion begins "
            "with its reasoning, and to open it again is no longer the format"
        )
    elif opening:
        print(
            f"note: the chat template opens <{opening[1]}> in the prompt, and the format has "
            f"<{tags.reasoning}>: take tags={opening[1]}/{tags.answer}, or no completion is in it"
        )
    return replace(tags, opened=opened)


def check_thinking(tokenizer, thinking: bool | None) -> None:
    """Print it if the setting asks for what the chat template does not do: to think where the
    template has no choice, or not to think where it opens the reasoning all the same.
    """
    on, off = (render(tokenizer, _PROBE, **template_options(choice)) for choice in (True, False))
    if on == off and (thinking or (thinking is False and _OPENED.search(off))):
        print(
            f"note: thinking={thinking} changes nothing: the chat template has no such choice, and "
            f"this model {'answers as it always does' if thinking else 'thinks in any case'}"
        )
