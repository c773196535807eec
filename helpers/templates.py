"""What a chat template is told besides the messages: whether the model thinks before it answers.

The one place that knows the keyword. Qwen3's template thinks unless `enable_thinking` is False, and
then begins the answer with an empty `<think></think>`; templates that do not know the word ignore
it (trl/chat_templates/*.jinja). A processor, which reads pictures, takes a word that its template
does not know for one of its own, so it must not get one (`fitting.for_model`).
"""


def template_options(thinking: bool | None) -> dict[str, bool]:
    """The keywords that `apply_chat_template` gets for the setting `thinking`; none for None, the
    model's own default.

    >>> template_options(False)
    {'enable_thinking': False}
    """
    return {} if thinking is None else {"enable_thinking": thinking}


def set_thinking(tokenizer, thinking: bool | None) -> None:
    """Let a tokenizer or processor carry the setting, for all that renders prompts with it here."""
    tokenizer.template_options = template_options(thinking)


def options_of(tokenizer) -> dict[str, bool]:
    """The keywords that a tokenizer carries since `set_thinking`."""
    return getattr(tokenizer, "template_options", {})
