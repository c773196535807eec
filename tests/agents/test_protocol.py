"""What TRL requires: of environments, of a policy's calls, of the rows of a file, and of a chat
template.
"""

import functools
import json
import re
import sys
from typing import Literal

import pandas as pd
import pytest
import sick_environments as sick
from sick_environments import made
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from trl import chat_template_utils

from helpers.agents import Guarded, Guessing, check_environment, episodes, protocol
from helpers.agents.protocol import argument_check, episode_rows, prepare_template
from helpers.agents.trainer import episodes_fingerprint
from helpers.presets import PRESETS

JUDGED = made("Judged", object, get_reward=sick.Healthy.get_reward)


@pytest.mark.parametrize("kind", [Guessing, sick.Healthy, functools.partial(Guessing, span=8)])
def test_nothing_is_said_of_what_trl_can_use(kind):
    assert check_environment(kind) == check_environment(Guarded(kind)) == []


def test_a_missing_package_is_no_fault_of_a_tool(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.utils", None)
    with pytest.raises(ImportError, match="transformers"):
        check_environment(Guessing)


def test_an_import_that_fails_in_a_tool_is_that_tools_problem():
    def say(self, text: "__import__('no_such_package').Text") -> str:
        """Say something.

        Args:
            text: The words.
        """

    (said,) = check_environment(made("Importing", JUDGED, reset=sick.Healthy.reset, say=say))
    assert said.startswith("tool `say`: No module named 'no_such_package'.")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            made("NoReset", JUDGED, say=sick.Healthy.say),
            "NoReset has no method `reset`.* Write reset\\(self, \\*\\*columns\\)",
        ),
        (made("Unjudged", get_reward=None), "has no method `get_reward`.* Write get_reward\\(self"),
        (made("Demanding", __init__=lambda self, level: None), "without arguments, .*TypeError"),
        (made("NoTool", JUDGED, reset=sick.Healthy.reset), "NoTool has no tool"),
        (
            made("Silent", JUDGED, reset=sick.Healthy.reset, say=lambda self: ""),
            "tool `say`: .* no docstring.* under `Args:`.* name it `_say`",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_each_thing_wrong_is_said_with_the_way_out(kind, says):
    (said,) = check_environment(kind)
    assert re.search(says, said), said
    with pytest.raises(ValueError, match=says):
        Guarded(kind)


# --- A policy's calls -----------------------------------------------------------------------------


def tool(
    count: int,
    share: float = 0.5,
    name: str | None = None,
    kind: Literal["a", "b"] = "a",
    places: list[int | None] | None = None,
    weights: dict[str, float] | None = None,
    either: int | str = 1,
    several: Literal[1, "a"] | list[str] | None = None,
    perhaps: Literal["a"] | None = None,
    loud: bool = False,
    free: object = None,
) -> str:
    """A tool with an argument of every sort.

    Args:
        count: a
        share: b
        name: c
        kind: d
        places: e
        weights: f
        either: g
        several: h
        perhaps: i
        loud: j
        free: k
    """
    return ""


def tidy() -> str:
    """A tool without arguments."""


CHECK = argument_check(tool)


FITS = [
    *({}, {"share": 1}, {"name": None}, {"name": "x"}, {"kind": "b"}, {"places": None}),
    *({"places": [1, None]}, {"weights": {"a": 1, "b": 0.5}}, {"either": "x"}, {"either": 2}),
    *({"several": None}, {"several": ["a"]}, {"perhaps": None}, {"loud": True}),
    {"count": -(10**30)},
]


def test_what_fits_goes_through():
    assert [CHECK({"count": 1} | one) for one in FITS] == [""] * len(FITS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"count": "1"}, "count must be a whole number, not '1'."),
        ({"count": True}, "count must be a whole number, not True."),
        ({"count": 1.0}, "count must be a whole number, not 1.0."),
        ({"count": None}, "count must be a whole number, not None."),
        ({"share": "half"}, "share must be a valid number, not 'half'."),
        ({"share": float("nan")}, "share must be a finite number, not nan."),
        ({"weights": {"a": float("inf")}}, "weights must be a finite number, not inf."),
        ({"kind": "c"}, "kind must be 'a' or 'b', not 'c'."),
        ({"kind": None}, "kind must be 'a' or 'b', not None."),
        ({"places": [1, "2"]}, "places must be a whole number, not '2'."),
        ({"weights": {"a": "b"}}, "weights must be a valid number, not 'b'."),
        ({"either": 1.5}, "either must be a whole number or a valid string, not 1.5."),
        ({"several": [1]}, "several must be 1 or 'a' or a valid string, not [1]."),
        ({"free": [float("nan")]}, "every number must be finite."),
        ({"free": {"a": float("-inf")}}, "every number must be finite."),
        ({"loud": "yes"}, "loud must be a valid boolean, not 'yes'."),
        ({"colour": 2}, "takes no 'colour'; it takes count, share, name,"),
        # a value without end
        ({"count": functools.reduce(lambda deep, _: [deep], range(100_000), [])}, "not a list."),
        ({"count": "x" * 10**7}, "not '" + "x" * 59 + "…."),
        ({"x" * 10**7: 1}, "takes no '" + "x" * 59 + "…; it"),
    ],
)
def test_the_first_thing_that_does_not_fit_is_said(arguments, says):
    assert says in CHECK({"count": 1} | arguments)


def test_what_is_needed_is_named_and_a_tool_without_arguments_takes_none():
    assert CHECK({"share": 1}) == "tool needs count."
    assert argument_check(tidy)({"at": 1}) == "tidy takes no 'at'; it takes nothing."


# --- Rows of a file -------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    """Return a function that writes lines, each a JSON object or a text, and returns the file."""

    def write(*lines):
        path = tmp_path / "rows.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts), encoding="utf-8")
        return path

    return write


def test_rows_come_once_in_an_order_drawn_from_the_seed_and_the_rest_is_counted(written, tmp_path):
    row = {"seed": 1, "board": [[1, 2], [3, 4]], "player": {"name": "a"}}
    lines = row, row | {"seed": 2}, "{", row, "[3]", row
    rows, dropped = episode_rows(written(*lines), seed=0)
    assert sorted(rows, key=lambda one: one["seed"]) == [row, row | {"seed": 2}]
    assert dropped == {"duplicate": 2, "not a JSON object": 2}
    pd.DataFrame([row]).to_parquet(tmp_path / "rows.parquet")
    assert episode_rows(tmp_path / "rows.parquet", seed=0)[0] == [row]
    path = written(*({"seed": number} for number in range(100)))
    orders = [[row["seed"] for row in episode_rows(path, seed)[0]] for seed in (0, 0, 1)]
    assert list(range(100)) != orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"seed": 1}, {"sead": 2}], "row 2: every row needs the columns seed, and a value"),
        ([{"seed": 1}, {"seed": 2, "level": 1}], "row 2: every row needs the columns seed"),
        ([{"seed": 1}, "{", {"seed": None}], "row 3: every row needs"),
        (['{"seed": 1}', '{"seed": NaN}'], "row 2: every row needs"),
        ([{"seed": 1, "question": "Which?"}], "notebook 10 writes the column 'question' itself"),
    ],
)
def test_rows_that_no_reset_could_take_are_named(written, lines, says):
    with pytest.raises(ValueError, match=rf"rows\.jsonl.*{says}"):
        episode_rows(written(*lines), seed=0)


# --- Templates ------------------------------------------------------------------------------------

CALL_OF_QWEN = '<tool_call>\n{"name": "guess", "arguments": {"number": 50}}\n</tool_call><|im_end|>'
CALL_OF_LLAMA = '{"name": "guess", "parameters": {"number": 50}}<|eot_id|>'
# By TRL's name of a model's own template: the call in its form, and the token that ends a turn.
READY = {
    "qwen3": (CALL_OF_QWEN, "<|im_end|>"),
    "qwen2_5": (CALL_OF_QWEN, "<|im_end|>"),
    "llama3_2": (CALL_OF_LLAMA, "<|eot_id|>"),
}


@pytest.fixture
def fresh():
    return AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path)


@pytest.mark.parametrize("name", READY)
def test_templates_that_trl_knows_come_out_ready_and_their_calls_are_answered(fresh, name):
    call, end = READY[name]
    fresh.add_special_tokens({"eos_token": end})
    fresh.chat_template = getattr(chat_template_utils, f"{name}_chat_template")
    prepare_template(fresh)
    assert chat_template_utils.is_chat_template_prefix_preserving(fresh)
    ready = fresh.chat_template, fresh.response_template
    prepare_template(fresh)
    assert (fresh.chat_template, fresh.response_template) == ready, "what is ready stays as it is"

    says = iter([call, "Done." + end])
    row = {"prompt": [{"role": "user", "content": "Let us play. "}], "seed": 7}
    one = episodes.begin(fresh, Guessing(), row)
    episodes.play_to_end(
        lambda prompts, room: [fresh(next(says))["input_ids"]],
        fresh,
        [one],
        max_completion_length=2000,
        turns=4,
    )
    assert one.calls == [{"name": "guess", "arguments": {"number": 50}}] and one.finished
    assert [message["content"] for message in one.completion] == ["", "Lower than 50.", "Done."]


def test_a_turn_whose_calls_cannot_be_read_in_time_is_plain_text(fresh, monkeypatch):
    fresh.chat_template = chat_template_utils.qwen3_5_think_chat_template
    prepare_template(fresh)
    monkeypatch.setattr(protocol, "_SECONDS", 0.1)
    protocol.read_calls_safely()
    text = "<tool_call><function=guess><parameter=number>" + " " * 20_000 + "</tool_call>"
    turn = chat_template_utils.parse_response(fresh, fresh(text)["input_ids"], prefix=[])
    assert turn == {"role": "assistant", "content": text}


def test_the_method_that_reads_calls_is_wrapped_once_whoever_else_wrapped_it(fresh, monkeypatch):
    protocol.read_calls_safely()
    safe = PreTrainedTokenizerBase.parse_response
    protocol.read_calls_safely()
    assert PreTrainedTokenizerBase.parse_response is safe

    @functools.wraps(safe)  # as another library would
    def fails(self, *arguments, **options):
        raise RecursionError

    monkeypatch.setattr(PreTrainedTokenizerBase, "parse_response", fails)
    protocol.read_calls_safely.cache_clear()  # as in a new process
    protocol.read_calls_safely()
    with pytest.raises(ValueError, match="the calls cannot be read: RecursionError"):
        fresh.parse_response("text")


REWRITING = (
    "{{ messages | length }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}{{ message.tool_calls }}<|im_end|>\n{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "parser", "says"),
    [
        (None, None, "does not render tool calls .* instruct model with tools"),
        (chat_template_utils.qwen3_chat_template + "{# ours #}", None, "response.*parsing"),
        (REWRITING, chat_template_utils.qwen3_template, "prefix-preserv"),
    ],
    ids=["no tools", "no parser", "rewrites"],
)
def test_a_template_that_cannot_be_prepared_is_refused(fresh, template, parser, says):
    fresh.chat_template, fresh.response_template = template or fresh.chat_template, parser
    with pytest.raises(ValueError, match=says):
        prepare_template(fresh)


def test_the_fingerprint_of_episodes_is_of_their_rows_their_limits_and_the_environments_file():
    rows = [{"question": "Game 1.", "seed": 1}]
    given = rows, Guessing, "16 turns"
    others = [
        ([{"question": "Game 1.", "seed": 2}], Guessing, "16 turns"),
        (rows, sick.Healthy, "16 turns"),
        (rows, Guessing, "8 turns"),
    ]
    same = episodes_fingerprint(*given)
    assert same == episodes_fingerprint(rows, functools.partial(Guessing, span=8), "16 turns")
    assert all(episodes_fingerprint(*other) != same for other in others)
