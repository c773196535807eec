"""The parameters of notebooks as words of a command line, read and written.

    read_parameters(["max_steps=20"])  # {'max_steps': 20}
    command_line("demo", ["03"], {"max_steps": 20})
    # python -m helpers run --run demo --only 03 -p max_steps=20

What `command_line` writes, `read_parameters` reads back. This module imports no installed package,
so `doctor` can read parameters before the installation.
"""

import ast
import json
import os
import re
import shlex

from helpers.runs import PIPELINE


def read_parameters(texts: list[str]) -> dict:
    """Return KEY=VALUE texts as a dictionary. If a key is repeated, its last value counts.

    Raise ValueError if a text has another form, or if a key is `run`.

    >>> read_parameters(["max_steps=20", "source=arithmetic/sums"])
    {'max_steps': 20, 'source': 'arithmetic/sums'}
    """
    values = {}
    for parameter in texts:
        key, equals, text = parameter.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise ValueError(f"-p {parameter}: write it as KEY=VALUE, for example -p max_steps=20.")
        if key == "run":
            raise ValueError("-p run=…: name the run with --run NAME.")
        values[key] = read_value(text.strip())
    return values


def read_value(text: str) -> object:
    """Return the value of a JSON or Python literal, and any other text as it is.

    The path of an existing file or model is made absolute, because the notebooks run in another
    folder than the command.

    >>> read_value("1e-3"), read_value("null"), read_value("{'question': 'q'}"), read_value("text")
    (0.001, None, {'question': 'q'}, 'text')
    """
    value = _literal(text)
    if value != text:
        return value
    if ".py:" not in text:
        return absolute(text)
    # a list of functions, such as one.py:first*0.5, correctness
    functions = []
    for function in text.split(","):
        file, colon, name = function.strip().rpartition(":")
        functions.append(f"{absolute(file) if file else ''}{colon}{name}")
    return ",".join(functions)


def _literal(text: str) -> object:
    """Return the value of a JSON or Python literal, and any other text as it is."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError):
            continue
    return text


def absolute(path: str) -> str:
    """Return the absolute path of a file or a model's folder, and any other text as it is."""
    if os.path.isfile(path) or os.path.isfile(os.path.join(path, "config.json")):
        return os.path.abspath(path)
    return path


def command_line(run: str, numbers: list[str], parameters: dict) -> str:
    """Return the command, quoted for a shell, that executes these notebooks with these parameters.

    >>> print(command_line("demo", ["01"], {"source": "my sums.csv", "columns": {"answer": "a"}}))
    python -m helpers run --run demo --only 01 -p 'source=my sums.csv' -p 'columns={"answer": "a"}'
    """
    words = ["python", "-m", "helpers", "run", "--run", run]
    if tuple(numbers) != PIPELINE:
        words += ["--only", ",".join(numbers)]
    for name, value in parameters.items():
        text = value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
        if name == "preset":
            words += ["--preset", text]
        else:
            words += ["-p", f"{name}={text}"]
    return shlex.join(words)


def _is_plain(value: object) -> bool:
    """Return whether `read_value` reads a value as this text if it is written without quotes.

    A text that begins like a word or a path needs none, and a path must have none: `read_value`
    looks for a file only if the value is no JSON. But `true`, `None` and `.5` are literals.

    >>> [_is_plain(value) for value in ("my sums.csv", "true", ".5", 0.5)]
    [True, False, False, False]
    """
    if not isinstance(value, str) or not re.fullmatch(r"[^\W\d_/.~].*\S|[/.~].*", value):
        return False
    return _literal(value) == value
