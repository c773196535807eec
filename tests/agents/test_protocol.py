"""What is said of an environment and of a chat template before training, in TRL's own terms."""

import functools
import inspect

import pytest
import sick_environments as sick
from transformers import AutoTokenizer
from trl import chat_template_utils

from helpers.agents import (
    Calculator,
    Guarded,
    Guessing,
    Table,
    check_environment,
    check_template,
    episodes,
)
from helpers.agents.protocol import named, prepare_template, schema_of, seeded, tools_of
from helpers.presets import PRESETS

COLUMNS = ["prompt", "seed", "answer"]


@pytest.mark.parametrize(
    "kind", [Calculator, Guessing, Table, sick.Healthy, functools.partial(Guessing, span=8)]
)
def test_nothing_is_said_of_what_trl_can_use(kind):
    assert check_environment(kind, COLUMNS) == []
    assert check_environment(Guarded(kind), COLUMNS) == []


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            sick.OtherColumns,
            [
                "reset needs `puzzle`, `level`, and the data has only",
                "reset does not take `answer`, `prompt`",
            ],
        ),
        (sick.NoReset, ["NoReset has no method `reset`", "Write reset(self, **columns)"]),
        (sick.AsyncReset, ["AsyncReset.reset is asynchronous", "write `def reset`"]),
        (sick.NoTool, ["NoTool has no tool"]),
        (
            sick.NoAnnotation,
            ["tool `say`: `word` has no annotation, such as `word: int`", "call it `_say`"],
        ),
        (sick.NoDocstring, ["tool `say` has no docstring", "call it `_say`"]),
        (
            sick.ArgumentNotDescribed,
            ["tool `say`: no schema", "no description for the argument 'word'", "Under `Args:`"],
        ),
        (sick.AnyArguments, ["tool `say` takes `**words: str`", "Name each"]),
        (sick.Closing, ["`close` is public, and so a tool", "Hide it: call it `_close`"]),
        (
            sick.Tidying,
            ["`tidy` is public, and so a tool, but it returns nothing", "call it `_tidy`"],
        ),
        (
            sick.NeedsArguments,
            ["NeedsArguments() needs `host`", "functools.partial(NeedsArguments, host=…)"],
        ),
        (sick.CannotBegin, ["CannotBegin() raised OSError: connection refused"]),
        (sick.Ends, ["Ends() raised SystemExit: 3"]),
        (sick.RewardNeedsArguments, ["get_reward needs `completions`"]),
        (Guessing(), ["Guessing is an object, not a factory", "without brackets"]),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_each_thing_wrong_is_said_with_the_way_out(kind, says):
    said = check_environment(kind, COLUMNS)
    for part in says:
        assert part in " ".join(said)
    assert all(
        sentence.endswith((".", "`", "refused", "3")) and "\n" not in sentence for sentence in said
    )


@pytest.mark.parametrize(
    "kind", [sick.NoDocstring, sick.Closing, sick.NeedsArguments, sick.NoReset]
)
def test_a_guard_refuses_what_trl_could_not_use_in_the_same_words(kind):
    with pytest.raises(ValueError) as refused:
        Guarded(kind)
    assert str(refused.value) == " ".join(check_environment(kind))


@pytest.mark.parametrize(
    "check",
    [functools.partial(check_environment, seconds=0.25), functools.partial(Guarded, seconds=0.25)],
)
def test_an_environment_that_is_never_made_is_said(check):
    try:
        (said,) = check(sick.NeverBegins)
    except ValueError as error:
        said = str(error)
    assert (
        said.startswith("NeverBegins() did not return within 0.25 seconds")
        and "more `seconds`" in said
    )


def test_the_prompt_is_passed_too_so_a_reset_must_take_it():
    class Strict(sick.Healthy):
        def reset(self, seed: int):
            return None

    assert check_environment(Strict, ["seed"]) == [
        "Strict.reset does not take `prompt`, and TRL passes whole rows: end it with `**columns`."
    ]


def test_environments_that_are_mixed_are_checked_one_by_one():
    mixed = {"game": Guessing, "sick": sick.Closing}
    (said,) = check_environment(mixed, ["prompt", "seed", "environment"])
    assert said.startswith("sick: `close` is public")


def test_the_tools_are_those_that_trl_would_list():
    class Mixed(sick.Healthy):
        @staticmethod
        def shout(word: str) -> str:
            """Shout a word.

            Args:
                word: The word.
            """
            return word.upper()

        @classmethod
        def made(cls) -> str:
            return "no tool: a method of the class is no function"

        @property
        def length(self) -> int:
            return 0

        def _hidden(self) -> str:
            return ""

    instance = Mixed()
    # The loop of grpo_trainer.py, 668 to 674.
    members = [name for name, _ in inspect.getmembers(type(instance), predicate=inspect.isfunction)]
    trl = [
        name for name in members if name not in ("reset", "get_reward") and not name.startswith("_")
    ]
    assert tools_of(Mixed) == trl == ["say", "shout"]
    guarded = Guarded(Mixed)()
    guarded.reset(seed=1)
    assert guarded.shout(word="a") == "A" and schema_of(guarded.shout) == schema_of(instance.shout)


@pytest.mark.parametrize("seed", [None, "3", 1.5, True])
def test_a_seed_that_is_no_number_is_refused(seed):
    with pytest.raises(ValueError, match="the members of a group must start alike"):
        seeded(seed)


# --- Named by a parameter -------------------------------------------------------------------------

GAME = """
from dataclasses import dataclass

LIMIT = 3


@dataclass
class MyGame:
    left: int = LIMIT

    def reset(self, **columns):
        return f"{LIMIT} left"


def reward(completions, **columns):
    return [MyGame().left] * len(completions)
"""


def named_game(where: object):
    return named("environment", where, "my_game.py:MyGame")


def test_a_class_of_a_file_or_of_a_module_is_found_with_what_it_needs_of_its_file(
    tmp_path, monkeypatch
):
    (tmp_path / "a game.py").write_text(GAME)
    kind = named_game(tmp_path / "a game.py:MyGame")
    assert kind().reset() == "3 left" and check_environment(kind) == [
        "MyGame has no tool: " + NO_TOOL
    ]
    assert named("reward", f"{tmp_path / 'a game.py'}:reward", "my_rewards.py:reward")(
        ["", ""]
    ) == [3, 3]
    assert named_game("helpers.agents:Guessing") is Guessing
    monkeypatch.chdir(tmp_path)
    assert named_game("a game.py:MyGame")().left == 3


NO_TOOL = "a tool is a public method other than `reset` and `get_reward`."


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("MyGame", "write it as file.py:Class, for example my_game.py:MyGame"),
        (":MyGame", "write it as file.py:Class"),
        ("game.py:", "write it as file.py:Class"),
        ("game.py:My Game", "write it as file.py:Class"),
        (7, "environment=7: write it as file.py:Class"),
        ("absent.py:MyGame", "absent.py cannot be read (FileNotFoundError"),
        ("no.such.module:MyGame", "no.such.module cannot be read (ModuleNotFoundError"),
        ("game.py:YourGame", "game.py has no class or function YourGame"),
        ("game.py:LIMIT", "game.py has no class or function LIMIT"),
        ("wrong.py:MyGame", "wrong.py cannot be read (SyntaxError"),
        ("leaving.py:MyGame", "leaving.py cannot be read (SystemExit: 0)"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_parameter_and_the_reason(
    tmp_path, monkeypatch, where, says
):
    for name, text in {
        "game.py": GAME,
        "wrong.py": "def",
        "leaving.py": "raise SystemExit(0)",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as refused:
        named_game(where)
    assert str(refused.value).startswith(f"environment={where!r}: ") and says in str(refused.value)


def test_where_a_function_is_asked_for_the_rule_says_so():
    with pytest.raises(
        ValueError,
        match=r"^judge='fair': write it as file.py:function, for example my_rewards.py:reward\.$",
    ):
        named("judge", "fair", "my_rewards.py:reward")


# --- Templates ------------------------------------------------------------------------------------


@pytest.fixture
def fresh():
    return AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path)


def test_a_template_without_tools_is_named_with_what_to_do(fresh):
    (said,) = check_template(fresh)
    assert "does not render tool calls" in said and "instruct model with tools" in said
    assert not chat_template_utils.supports_tool_calling(fresh)


def test_a_template_that_trl_knows_is_fine_and_the_tokenizer_is_left_as_it_was(fresh):
    fresh.chat_template = chat_template_utils.qwen3_chat_template
    before = dict(vars(fresh))
    assert check_template(fresh) == [] and dict(vars(fresh)) == before


def test_a_template_of_ones_own_must_declare_how_calls_are_parsed(fresh):
    fresh.chat_template = chat_template_utils.qwen3_chat_template + "{# ours #}"
    (said,) = [sentence for sentence in check_template(fresh) if "response_template" in sentence]
    assert "word for word" in said
    fresh.response_template = chat_template_utils.qwen3_template
    assert not [sentence for sentence in check_template(fresh) if "response_template" in sentence]


def test_a_template_that_rewrites_what_was_said_before_is_named(fresh):
    fresh.chat_template = (
        "{{ messages | length }}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ "
        "message.content }}"
        "{{ message.tool_calls }}<|im_end|>\n{% endfor %}"
    )
    fresh.response_template = chat_template_utils.qwen3_template
    (said,) = check_template(fresh)
    assert "renders earlier messages differently" in said and "only append" in said


# --- Templates made ready -------------------------------------------------------------------------

CALL_OF_QWEN = '<tool_call>\n{"name": "guess", "arguments": {"number": 50}}\n</tool_call><|im_end|>'
CALL_OF_LLAMA = '{"name": "guess", "parameters": {"number": 50}}<|eot_id|>'
# By TRL's name of a model's own template: the call in its form, and the token that ends a turn.
READY = {
    "qwen3": (CALL_OF_QWEN, "<|im_end|>"),
    "qwen2_5": (CALL_OF_QWEN, "<|im_end|>"),
    "qwen3_instruct_2507": (CALL_OF_QWEN, "<|im_end|>"),
    "llama3_1": (CALL_OF_LLAMA, "<|eot_id|>"),
    "llama3_2": (CALL_OF_LLAMA, "<|eot_id|>"),
}


@pytest.mark.parametrize("name", READY)
def test_templates_that_trl_knows_come_out_ready_and_their_calls_are_answered(fresh, name):
    call, end = READY[name]
    fresh.add_special_tokens({"eos_token": end})
    fresh.chat_template = getattr(chat_template_utils, f"{name}_chat_template")
    prepare_template(fresh)
    assert (
        chat_template_utils.is_chat_template_prefix_preserving(fresh)
        and fresh.response_template is not None
    )
    assert check_template(fresh) == []
    ready = fresh.chat_template, fresh.response_template
    prepare_template(fresh)
    assert (fresh.chat_template, fresh.response_template) == ready, "what is ready stays as it is"

    says = iter([call, "Done." + end])
    limits = {"max_completion_length": 2000, "turns": 4}
    row = {"prompt": [{"role": "user", "content": "Let us play. "}], "seed": 7}
    (one,) = episodes.play(
        lambda prompts, room: [fresh(next(says))["input_ids"]], fresh, Guessing, [row], **limits
    )
    assert (
        one.calls == [{"name": "guess", "arguments": {"number": 50}}]
        and one.failed == 0
        and one.finished
    )
    assert [message["content"] for message in one.said] == ["", "Lower than 50.", "Done."]
    text = fresh.decode(one.prompt_ids + one.ids)
    assert "Lower than 50." in text and "from 1 to 100" in text and text.count(end) >= 3
    # As TRL writes it, whose constructor is handed this tokenizer.
    whole = one.prompt + one.said[:2]
    rendered = fresh.apply_chat_template(
        whole, tools=[Guessing().guess], add_generation_prompt=True, tokenize=False
    )
    after = fresh.decode([token for token, own in zip(one.ids, one.mask, strict=True) if not own])
    assert rendered.endswith(after)


def test_a_template_that_cannot_be_prepared_is_refused_in_the_words_of_the_check(fresh):
    for template in (fresh.chat_template, chat_template_utils.qwen3_chat_template + "{# ours #}"):
        fresh.chat_template = template
        problems = check_template(fresh)
        with pytest.raises(ValueError) as refused:
            prepare_template(fresh)
        assert problems and str(refused.value) == " ".join(problems)
        assert fresh.chat_template == template and getattr(fresh, "response_template", None) is None


def test_a_way_to_read_calls_that_was_declared_is_kept(fresh):
    fresh.chat_template = chat_template_utils.qwen3_chat_template
    fresh.response_template = ours = dict(chat_template_utils.qwen3_template)
    prepare_template(fresh)
    assert (
        fresh.response_template is ours
        and fresh.chat_template == chat_template_utils.qwen3_training_chat_template
    )
