"""What is typed for a run, as values."""

import pytest

from helpers.commands import arguments

LITERALS = {
    "20": 20,
    "1e-3": 1e-3,
    "[1, 2]": [1, 2],
    "True": True,
    "true": True,
    "null": None,
    "None": None,
    '"20"': "20",
    "'text'": "text",
    '{"a": "b"}': {"a": "b"},
    "{'a': 'b'}": {"a": "b"},
}
TEXTS = ["text", "arithmetic/sums", "What is 1 + 2?", "2026-08-01", "007", "C:\\data\\mine.csv", ""]
TEXTS += ["{x", "{{}}", "{[1]: 2}", "long? " * 1000]  # keys that cannot be hashed, a name too long


@pytest.mark.parametrize(("text", "value"), [*LITERALS.items(), *((text, text) for text in TEXTS)])
def test_a_value_is_a_literal_where_it_is_one_and_else_the_text_itself(text, value):
    read = arguments.value(text)
    assert read == value and type(read) is type(value)


def test_a_file_or_a_function_in_one_is_found_again_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    for text in ("mine.py", "mine.py:mine_reward"):
        assert arguments.value(text) == str(tmp_path / text)


def test_parameters_are_split_at_the_first_equals_sign_and_trimmed():
    given = ["max_steps=20", " beta = 0.1 ", "question=1 + 1 = ?", "source=", "max_steps=30"]
    assert arguments.parameters(given) == {
        "max_steps": 30,
        "beta": 0.1,
        "question": "1 + 1 = ?",
        "source": "",
    }
    assert arguments.parameters([]) == {}
