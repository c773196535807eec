"""Find the question in a row: in a text, in chat messages, or in an already rendered chat template.

verl, ms-swift and ShareGPT store chat messages: {"role": "user", "content": "1 + 1?"}. In ShareGPT,
the fields are `from` and `value`, and the user is "human". A value without one clear question is
`Dropped`.
"""

import re

import regex

from helpers.data.files import Dropped, parse_literal
from helpers.tags import completion_text

# A picture's place in a text: `<image>` at its beginning or end, `<image 1>` anywhere.
_PLACEHOLDER = re.compile(r"\A\s*<(?:image|video|audio)>|<(?:image|video|audio)>\s*\Z|<image \d+>")
# A user's turn in a rendered chat template: `<|im_start|>user\nWhat is 1 + 1?<|im_end|>`.
_USER_TURN = re.compile(
    r"""(?:  # begins
          <\|im_start\|>user                                    # ChatML
        | <\|start_header_id\|>user<\|end_header_id\|>          # Llama 3
        | <start_of_turn>user | <\|turn>user                    # Gemma
        | <\|start\|>user<\|message\|>                          # gpt-oss
        | [<[]\|user\|[>\]]                                     # Phi, EXAONE
        | <｜User｜>                                             # DeepSeek
        | \[INST\](?:\s*<<SYS>>.*?<</SYS>>)?                    # Mistral, Llama 2
        | \#\#\#\ Instruction:                                  # Alpaca
    )
    \s*(.*?)\s*
    (?:  # ends
          <\|im_end\|> | <\|eot_id\|> | <end_of_turn> | <turn\|> | <\|end\|> | </s>
        | [<[]\|assistant\|[>\]] | \[\|endofturn\|\] | <｜Assistant｜> | \[/INST\]
        | \#\#\#\ Response:
    )""",
    re.DOTALL | re.VERBOSE,
)
# A mark before the first question, and the role after it: `<|im_start|>system`, `<<SYS>>`.
_MARK_AND_ROLE = re.compile(
    r"(?:<+[^<>\s]+>+|\[/?INST\]|\[\|\w+\|\]|### Instruction:)\s*(?:(?:system|developer|user)\b)?"
)
# A mark such as `<|eot_id|>` at the start of a line or at the end of the text, or `Assistant:` at
# the end. Anywhere else, the question may be about the mark: `What does [INST] mean?` The module
# `regex` is needed for `(?&mark)`, which repeats the pattern of that name; `re` has no such thing.
_TEMPLATE_MARK = regex.compile(
    r"""^(?P<mark>[<[][|｜][a-zA-Z_▁]{2,}[|｜][>\]] | <(?:start|end)_of_turn> | \[/?INST\])
    | (?: (?&mark) | \b(?:Assistant|ASSISTANT): ) (?= \s* (?:<think>\s*)? \Z)""",
    regex.MULTILINE | regex.VERBOSE,
)


def question_in(value: object, has_picture: bool = False) -> tuple[object, str]:
    r"""Return the question in a value, and the format it was found in.

    If the value is the question itself, the second element is "".

    has_picture: whether the row has a picture in a column of its own.

    Raise Dropped if chat messages have no user's message, if a text contains a mark of an unknown
    chat template, or if a question is about a picture or a sound that would not be read.

    >>> question_in([{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}])
    ('1 + 1?', 'chat messages')
    >>> question_in("<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n")
    ('1 + 1?', 'a chat template')
    """
    found_in = ""

    # 1. Chat messages: the user's last one.
    messages = _messages_in(value)
    if messages:
        questions = [_content(turn) for turn in messages if _role(turn) in ("user", "human")]
        if not questions:
            raise Dropped(
                "question is a list of messages, none from the user",
                'Name the field that is meant: columns={"question": "column.field"}.',
            )
        value = completion_text([{"content": questions[-1]}])
        found_in = "chat messages, the last user's" if len(questions) > 1 else "chat messages"
    if not isinstance(value, str):
        return value, found_in

    # 2. A rendered chat template: the user's last turn. In Alpaca's, it may have an input.
    turns = _USER_TURN.findall(value)
    if turns:
        value = re.sub(r"\s*### Input:\s*", "\n\n", turns[-1])
        found_in = "a chat template"

    # 3. Any other chat template. Its marks would otherwise stay in the prompt.
    if mark := _TEMPLATE_MARK.search(value):
        raise Dropped(
            f"question has {mark[0]}, a marker of a chat template",
            "Give the question alone: the model's own chat template is put around it.",
        )

    # 4. Pictures and sounds. If the row has a picture, the message only marks its place.
    beyond_text = _parts_beyond_text(messages) + _PLACEHOLDER.findall(value)
    if beyond_text and not has_picture:
        raise Dropped(
            f"question contains more than text: {beyond_text[0]}",
            "A model that reads only text cannot answer it. Notebook 11 trains with images, from "
            'a column of their own: columns={"image": "…"}.',
        )
    return value, found_in


def system_message_in(value: object) -> str:
    r"""Return the system message beside the question in a value, or "" if there is none.

    value: one that `question_in` accepts.

    >>> system_message_in([{"role": "system", "content": "Add."}, {"role": "user", "content": "1"}])
    'Add.'
    >>> system_message_in("<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n1 + 1?<|im_end|>")
    'Add.'
    """
    # 1. In a rendered chat template, it is what comes before the first question, without the marks.
    first_turn = _USER_TURN.search(value) if isinstance(value, str) else None
    if first_turn:
        before_the_question = value[: first_turn.start(1)]
        return _MARK_AND_ROLE.sub("", before_the_question).strip()

    # 2. In chat messages, it has a role of its own.
    system_messages = []
    for turn in _messages_in(value):
        if _role(turn) in ("system", "developer"):
            system_messages.append({"content": _content(turn)})
    return completion_text(system_messages).strip()


def _messages_in(value: object) -> list[dict]:
    """Return the chat messages in a value, which may be JSON; [] if it is anything else."""
    turns = parse_literal(value)
    if not isinstance(turns, list):
        return []
    are_messages = [isinstance(turn, dict) and ("role" in turn or "from" in turn) for turn in turns]
    return turns if all(are_messages) else []


def _role(message: dict) -> object:
    return message.get("role", message.get("from"))


def _content(message: dict) -> object:
    return message.get("content", message.get("value"))


def _parts_beyond_text(messages: list[dict]) -> list[str]:
    """Return the types of the parts of chat messages that are not text.

    A part is {"type": "image_url", "image_url": …}; Qwen's {"image": …} has no type, so its name is
    taken.
    """
    types = []
    for message in messages:
        content = _content(message)
        if not isinstance(content, list):
            continue
        for part in content:
            is_text = not isinstance(part, dict) or isinstance(part.get("text"), str)
            if not is_text:
                types.append(str(part.get("type") or next(iter(part), "text")))
    return types
