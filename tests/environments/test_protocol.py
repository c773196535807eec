"""What is said of an environment and of a chat template before training, in TRL's own terms."""

import functools
import inspect

import pytest
import sick_environments as sick
from transformers import AutoTokenizer
from trl import chat_template_utils

from helpers.environments import Calculator, Guarded, Guessing, Table, check_environment, check_template
from helpers.environments.protocol import schema_of, seeded, tools_of
from helpers.presets import PRESETS

COLUMNS = ["prompt", "seed", "answer"]


@pytest.mark.parametrize("kind", [Calculator, Guessing, Table, sick.Healthy, functools.partial(Guessing, span=8)])
def test_nothing_is_said_of_what_trl_can_use(kind):
    assert check_environment(kind, COLUMNS) == []
    assert check_environment(Guarded(kind), COLUMNS) == []


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (sick.OtherColumns, ["reset needs `puzzle`, `level`, and the data has only", "reset does not take `answer`, `prompt`"]),
        (sick.NoReset, ["NoReset has no method `reset`", "Write reset(self, **columns)"]),
        (sick.AsyncReset, ["AsyncReset.reset is asynchronous", "write `def reset`"]),
        (sick.NoTool, ["NoTool has no tool"]),
        (sick.NoAnnotation, ["tool `say`: `word` has no annotation, such as `word: int`", "call it `_say`"]),
        (sick.NoDocstring, ["tool `say` has no docstring", "call it `_say`"]),
        (sick.ArgumentNotDescribed, ["tool `say`: no schema", "no description for the argument 'word'", "Under `Args:`"]),
        (sick.AnyArguments, ["tool `say` takes `**words: str`", "Name each"]),
        (sick.Closing, ["`close` is public, and so a tool", "Hide it: call it `_close`"]),
        (sick.Tidying, ["`tidy` is public, and so a tool, but it returns nothing", "call it `_tidy`"]),
        (sick.NeedsArguments, ["NeedsArguments() needs `host`", "functools.partial(NeedsArguments, host=…)"]),
        (sick.CannotBegin, ["CannotBegin() raised OSError: connection refused"]),
        (sick.RewardNeedsArguments, ["get_reward needs `completions`"]),
        (Guessing(), ["Guessing is an object, not a factory", "without brackets"]),
    ],
    ids=str,
)
def test_each_thing_wrong_is_said_with_the_way_out(kind, says):
    said = check_environment(kind, COLUMNS)
    for part in says:
        assert part in " ".join(said)
    assert all(sentence.endswith((".", "`", "refused")) and "\n" not in sentence for sentence in said)


@pytest.mark.parametrize("kind", [sick.NoDocstring, sick.Closing, sick.NeedsArguments, sick.NoReset])
def test_a_guard_refuses_what_trl_could_not_use_in_the_same_words(kind):
    with pytest.raises(ValueError) as refused:
        Guarded(kind)
    assert str(refused.value) == " ".join(check_environment(kind))


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
    trl = [name for name in members if name not in ("reset", "get_reward") and not name.startswith("_")]
    assert tools_of(Mixed) == trl == ["say", "shout"]
    guarded = Guarded(Mixed)()
    guarded.reset(seed=1)
    assert guarded.shout(word="a") == "A" and schema_of(guarded.shout) == schema_of(instance.shout)


@pytest.mark.parametrize("seed", [None, "3", 1.5, True])
def test_a_seed_that_is_no_number_is_refused(seed):
    with pytest.raises(ValueError, match="the members of a group must start alike"):
        seeded(seed)


# --- Templates ---------------------------------------------------------------------------------------------------------


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
        "{{ messages | length }}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
        "{{ message.tool_calls }}<|im_end|>\n{% endfor %}"
    )
    fresh.response_template = chat_template_utils.qwen3_template
    (said,) = check_template(fresh)
    assert "renders earlier messages differently" in said and "only append" in said
