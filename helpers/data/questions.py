"""The question of a row: a text, chat messages, or a prompt that is already in a chat template.

verl, ms-swift and ShareGPT have messages. If there is one right reading, it is taken and counted in
the report; if not, `Dropped` says what was found, and what to do about it.
"""

import re

import regex

from helpers.data.files import Dropped, parse_literal
from helpers.tags import completion_text


def question_in(value: object) -> tuple[object, str]:
    r"""Return the question in a value, and what it was in; "" if it is the value itself.

    Dropped for messages without one, and for what is left of a chat template.

    >>> question_in([{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}])
    ('1 + 1?', 'chat messages')
    >>> question_in("<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n")
    ('1 + 1?', 'a chat template')
    """
    shape = ""

    # 1. of chat messages, the user's last
    messages = parse_literal(value)
    is_chat = isinstance(messages, list) and all(
        isinstance(turn, dict) and turn.keys() & {"role", "from"} for turn in messages
    )
    if is_chat and messages:
        questions = [
            turn.get("content", turn.get("value"))
            for turn in messages
            if turn.get("role", turn.get("from")) in ("user", "human")
        ]
        if not questions:
            raise Dropped(
                "question is a list of messages, none of the user's",
                'Name the field that is meant: columns={"question": "column.field"}.',
            )
        value = completion_text([{"content": questions[-1]}])
        shape = "chat messages, the last user's" if len(questions) > 1 else "chat messages"
    if not isinstance(value, str):
        return value, shape

    # 2. of a chat template, the user's last turn
    turns = _USER_TURN.findall(value)
    if turns:
        value = re.sub(r"\s*### Input:\s*", "\n\n", turns[-1])
        shape = "a chat template"

    # 3. the marks of any other template would be in the prompt
    mark = _TEMPLATE_MARK.search(value)
    if mark:
        raise Dropped(
            f"question has {mark[0]}, a mark of a chat template",
            "Give the question alone: the model's own chat template is put around it.",
        )
    return value, shape


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
# It begins a line or ends the text; elsewhere, the question is about such a mark.
_TEMPLATE_MARK = regex.compile(
    r"""^(?P<mark>[<[][|｜][a-zA-Z_▁]{2,}[|｜][>\]] | <(?:start|end)_of_turn> | \[/?INST\])
    | (?: (?&mark) | \b(?:Assistant|ASSISTANT): ) (?= \s* (?:<think>\s*)? \Z)""",
    regex.MULTILINE | regex.VERBOSE,
)
