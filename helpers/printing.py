"""Prepare text that a policy wrote or a dataset holds for printing: escaped, on one line, quoted,
shortened, or as the transcript of an agent.

Printed as it is, such text could steer the terminal, or look like a line of the page around it.
"""

import json
import unicodedata
from contextlib import suppress


def escaped(text: str) -> str:
    r"""Return a text that is safe to print: control and format characters become escapes; line
    breaks and tabs stay.

    >>> print(escaped("red\x1b[31m, a mark\u200b"))
    red\x1b[31m, a mark\u200b
    """
    shown = ""
    for character in text:
        is_visible = character.isprintable() or unicodedata.category(character) == "Zs"
        if not is_visible and character not in "\n\t":
            character = character.encode("unicode_escape").decode()
        shown += character
    return shown


def on_one_line(text: str) -> str:
    r"""Return `escaped` text on one line: line breaks and tabs become escapes, too.

    >>> print(on_one_line("red: \x1b[31m, next\n"))
    red: \x1b[31m, next\n
    """
    return escaped(text).replace("\n", r"\n").replace("\t", r"\t")


def quoted(text: str, before: str = "  ") -> str:
    """Return `escaped` text with `before` in front of each line, so that no line of a completion
    looks like a line of the page that quotes it.

    >>> print(quoted("def f():\\n    return 5"))
      def f():
          return 5
    """
    return "\n".join(f"{before}{line}" for line in escaped(text).split("\n"))


def transcript(messages: list[dict]) -> str:
    """Return a completion as text to read: the policy's words, its tool calls and their results.

    Every line starts with its speaker, so the policy cannot forge another speaker's line.

    >>> call = {"type": "function", "function": {"name": "guess", "arguments": {"number": 5}}}
    >>> word = {"role": "assistant", "content": "5 to 7.\\ntool: Yes.", "tool_calls": [call]}
    >>> print(transcript([word, {"role": "tool", "content": "Higher than 5."}]))
    policy: 5 to 7.
    policy: tool: Yes.
    call:   guess(number=5)
    tool:   Higher than 5.
    """
    entries = []
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "tool":
            entries.append(("tool:   ", content))
        elif content:
            entries.append(("policy: ", content))
        calls = message.get("tool_calls")
        if calls is None:  # in a message read from a Parquet file
            calls = []
        for call in calls:
            arguments = call["function"].get("arguments")
            shown = repr(arguments)
            # Arguments may be JSON. Any other text of the policy is shown as its `repr`, and so are
            # thousands of brackets (RecursionError).
            with suppress(ValueError, RecursionError):
                if isinstance(arguments, str):
                    arguments = json.loads(arguments)
                    shown = repr(arguments)
                if isinstance(arguments, dict):
                    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            entries.append(("call:   ", f"{call['function'].get('name', '')}({shown})"))
    return "\n".join(quoted(str(text), speaker) for speaker, text in entries)


def shorten(text: object, most: int = 200) -> str:
    """Return the text for a message, with at most `most` of its characters, not `escaped`.

    >>> shorten("abcdef", 3)
    'abc… (6 characters)'
    """
    text = str(text).encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
