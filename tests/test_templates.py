"""Prompts in the chat templates of each preset's model family (TRL's copies), and how our parser reads
the completion that such a prompt asks for; thinking, worked examples and tools in other families'
templates. Nothing is downloaded: the pocket model's tokenizer gets each template.
"""

import ast
import json
import re
import runpy
from functools import cache
from importlib import metadata

import pytest
from transformers import AutoTokenizer
from trl.data_utils import apply_chat_template

from helpers import PROJECT, templates
from helpers.data.prompts import chat_prompt, example_turns
from helpers.data.tasks import prompt_token_counter
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import (
    format_reward,
    incremental_format_reward,
    substantial_format_reward,
)
from helpers.settings import grpo_keywords
from helpers.settling import settle
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training import sampling

TRL, UNSLOTH = (metadata.distribution(name) for name in ("trl", "unsloth"))
# The template of each preset's model: a file of trl/chat_templates.
TEMPLATES = {
    "unsloth/gemma-3-1b-it": "gemma3",
    "unsloth/Qwen3-1.7B": "qwen3",
    "unsloth/Qwen3-4B-Instruct-2507": "qwen3_instruct_2507",
    "unsloth/Qwen3.5-9B": "qwen3_5_think",
    "unsloth/Qwen3.5-27B": "qwen3_5_think",
    "unsloth/Qwen2.5-1.5B-Instruct": "qwen2_5",
    "unsloth/Qwen3-VL-2B-Instruct": "qwen3_vl",
    "unsloth/gemma-3-4b-it": "gemma3",
    "unsloth/Qwen3-VL-8B-Instruct": "qwen3_vl",
}
QUESTION = "What is 2 + 3?"
PROMPT = [
    {"role": "system", "content": THINK_ANSWER.system_prompt},
    {"role": "user", "content": QUESTION},
]
EMPTY_BLOCK = "<think>\n\n</think>\n\n"
real = pytest.mark.parametrize(
    "preset", [one for one in PRESETS.values() if one.needs_gb], ids=lambda preset: preset.name
)


@cache
def template(name: str) -> str:
    """Return a template of TRL, or, as `unsloth/NAME`, of Unsloth, read without importing it."""
    if not name.startswith("unsloth/"):
        return TRL.locate_file(f"trl/chat_templates/{name}.jinja").read_text(encoding="utf-8")
    source = UNSLOTH.locate_file("unsloth/chat_templates.py").read_text(encoding="utf-8")
    wanted = f"{name.removeprefix('unsloth/')}_template"
    assigned = (node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    (value,) = (node.value for node in assigned if ast.unparse(node.targets[0]) == wanted)
    return ast.literal_eval(value)


def with_template(name: str, thinking: bool | None):
    """Return the pocket model's tokenizer with another template and the setting `thinking`."""
    tokenizer = AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path)
    tokenizer.chat_template = template(name)
    tokenizer.bos_token = tokenizer.eos_token  # for templates that write one
    templates.set_thinking(tokenizer, thinking)
    return tokenizer


def rendered(tokenizer, **how) -> str:
    return templates.render(tokenizer, PROMPT, **how)


def judged(completion: str, tags: TagFormat = THINK_ANSWER) -> tuple[float, float, float, float]:
    """Return the scores of a completion: correctness, and the three rewards for the format."""
    rewards = (
        correctness_reward,
        format_reward,
        substantial_format_reward,
        incremental_format_reward,
    )
    return tuple(reward([completion], tags=tags, answer=["5"])[0] for reward in rewards)


# --- The families of the presets ------------------------------------------------------------------


@real
def test_no_preset_leaves_a_model_thinking_and_its_ideal_completion_is_right(preset):
    tokenizer = with_template(TEMPLATES[preset.model], preset.thinking)
    after_the_question = rendered(tokenizer).split(QUESTION)[1]
    thinks_by_default = TEMPLATES[preset.model] in ("qwen3", "qwen3_5_think")
    assert after_the_question.endswith(EMPTY_BLOCK) == thinks_by_default
    assert after_the_question.count("<think>") == after_the_question.count("</think>")
    assert preset.max_completion_length <= 2048  # Qwen3 takes 1,500 to 2,200 for GSM8K
    # a processor would take an unknown keyword for its own
    assert preset.thinking is (None if preset.name.startswith("vision_") else False)
    # the pre-filled empty block belongs to the prompt, so the completion has both blocks
    assert judged(THINK_ANSWER.render("2 + 3 = 5", "5")) == (1.0, 1.0, 1.0, 1.0)


@real
def test_trl_the_counter_and_the_proof_render_the_same_prompt(preset, tmp_path, model):
    tokenizer = with_template(TEMPLATES[preset.model], preset.thinking)
    text = rendered(tokenizer)
    told = grpo_keywords(preset)["chat_template_kwargs"]
    assert apply_chat_template({"prompt": PROMPT}, tokenizer, **told)["prompt"] == text
    length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    tokenizer.save_pretrained(tmp_path)
    assert prompt_token_counter(str(tmp_path), preset.thinking)(PROMPT) == length
    (logits,) = merging.prompt_logits(model, tokenizer, [PROMPT])
    assert len(logits) == length


@pytest.mark.parametrize("thinking", [None, False, True])
def test_the_policy_samples_after_the_prompt_that_the_setting_asks_for(
    thinking, model, monkeypatch
):
    asked = []

    def recording(_, prompts, room):
        asked.extend(prompts)
        return [[[]] for _ in prompts]

    monkeypatch.setattr(sampling.TransformersSampler, "complete", recording)
    tokenizer = with_template("qwen3", thinking)
    sampling.sample(model, tokenizer, [PROMPT], max_new_tokens=1)
    (ids,) = asked
    assert tokenizer.decode(ids) == rendered(tokenizer, enable_thinking=thinking is not False)
    assert tokenizer.decode(ids).endswith(EMPTY_BLOCK) == (thinking is False)


# --- The families ---------------------------------------------------------------------------------

# Which end the prompt has by default, told to think and told not to; whether worked examples keep
# their reasoning, and whether tools are shown. "nothing" is a prompt that opens no block.
ENDS = {"nothing": "", "open": "<think>\n", "empty": EMPTY_BLOCK}
FAMILIES = {
    "unsloth/chatml": ("nothing", "nothing", "nothing", True, False),  # SmolLM2's, too
    "qwen2_5": ("nothing", "nothing", "nothing", True, True),
    "qwen3": ("nothing", "nothing", "empty", False, True),
    "qwen3_instruct_2507": ("nothing", "nothing", "nothing", True, True),
    "unsloth/qwen3_thinking": ("open", "open", "open", False, True),
    "qwen3_5_nothink": ("empty", "open", "empty", False, True),
    "qwen3_5_think": ("open", "open", "empty", False, True),
    "qwen3_6": ("open", "open", "empty", False, True),
    "qwen3_vl": ("nothing", "nothing", "nothing", True, True),
    "gemma3": ("nothing", "nothing", "nothing", True, False),
    "llama3": ("nothing", "nothing", "nothing", True, False),
    "llama3_1": ("nothing", "nothing", "nothing", True, True),
    "gptoss": ("nothing", "nothing", "nothing", True, True),
    "deepseek_r1_distill": ("open", "open", "open", False, False),
    "lfm2_2_5": ("nothing", "nothing", "nothing", False, True),
}


def weather(city: str) -> str:
    """Look the weather up.

    Args:
        city: where.
    """


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_renders_as_the_table_says_and_its_ideal_completion_is_right(family, capsys):
    *ends, keeps, shows_tools = FAMILIES[family]
    for thinking, end in zip((None, True, False), ends, strict=True):
        tokenizer = with_template(family, thinking)
        tail = rendered(tokenizer).split(QUESTION)[1]
        assert tail[tail.index("<think>") if "<think>" in tail else len(tail) :] == ENDS[end]
        # the ideal completion after this prompt, and one that opens the reasoning again
        tags = templates.as_prompted(THINK_ANSWER, tokenizer)
        assert tags.opened == (end == "open") and TagFormat.parse(tags.spec) == tags
        assert ("opens <think> in the prompt" in capsys.readouterr().out) == tags.opened
        assert judged(tags.render("2 + 3 = 5", "5"), tags) == (1.0, 1.0, 1.0, 1.0)
        again = judged(f"<think>{tags.render('2 + 3 = 5', '5')}", tags)
        assert again[:3] == (1.0, 0.0, 0.0) and again[3] < 1
        # the setting that the template cannot follow is named
        templates.check_thinking(tokenizer, thinking)
        ignored = (thinking and ends[1] == ends[2]) or (thinking is False and end == "open")
        assert (f"thinking={thinking} changes nothing" in capsys.readouterr().out) == bool(ignored)
    tokenizer = with_template(family, None)
    assert ("weather" in rendered(tokenizer, tools=[weather])) == shows_tools
    for tags, shown in ((THINK_ANSWER, keeps), (TagFormat("reasoning", "answer"), True)):
        example = {"question": "What is 1 + 1?", "completion": tags.render("seen before", "2")}
        tokenizer = with_template(family, None)
        prompt = chat_prompt("Add.", QUESTION, example_turns([example]))
        for _ in range(2):
            text = templates.render(tokenizer, prompt)
        assert ("seen before" in text) == shown and "<answer>2</answer>" in text
        said = capsys.readouterr().out
        assert said.count("leaves out a part of the worked examples") == (not shown), "once"
        # TRL gives the policy the same prompt
        assert apply_chat_template({"prompt": prompt}, tokenizer)["prompt"] == text


def test_a_block_that_the_format_does_not_have_is_named(capsys):
    tags = TagFormat("reasoning", "final")
    assert templates.as_prompted(tags, with_template("qwen3_6", None)) == tags
    assert "tags=think/final" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("final", "earned"),
    [("<think>2 + 3</think><answer>5</answer>", (1.0, 0.0, 0.0, 1.0)), ("5", (0.0,) * 4)],
)
def test_gpt_oss_is_right_and_never_in_the_whole_format(final, earned):
    """Its channels are special tokens, of which decoding leaves the names."""
    assert judged(f"analysisWe add 2 and 3.assistantfinal{final}") == earned


@pytest.mark.parametrize("name", ["pocket", "pocket-extraction", "pocket-functions"])
def test_the_embedded_models_read_the_same_prompt_whatever_they_are_told(name):
    preset = settle(PRESETS["pocket"], model=name)
    assert grpo_keywords(preset)["chat_template_kwargs"] == {} and preset.thinking is None
    tokenizer = AutoTokenizer.from_pretrained(preset.model_path)
    assert rendered(tokenizer, enable_thinking=False) == rendered(tokenizer)
    # to the byte: the published numbers come from this prompt
    assert rendered(tokenizer) == (
        f"<|im_start|>system\n{THINK_ANSWER.system_prompt}<|im_end|>\n"
        f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert templates.as_prompted(THINK_ANSWER, tokenizer) == THINK_ANSWER


# --- Everywhere -----------------------------------------------------------------------------------


def test_whoever_renders_a_prompt_tells_the_template_what_the_setting_says():
    sources = [path.read_text(encoding="utf-8") for path in PROJECT.glob("helpers/**/*.py")]
    for path in PROJECT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
    rendering = [call for call in calls if re.match(r"[\w.]+\.apply_chat_template\(", call)]
    # one function; and notebook 06, from scratch, with the pocket model alone
    assert len(rendering) == 2 and all("**" in call for call in rendering), rendering
    loads = r"(?:data\.)?(?:prompt_token_counter|tokenizer_of)\("
    loading = [call for call in calls if re.match(loads, call)]
    assert len(loading) >= 6 and all(call.count(",") == 1 for call in loading), loading


@pytest.mark.parametrize(
    "preset", [one for one in PRESETS.values() if one.needs_gb and one.load_in_4bit]
)
def test_each_model_in_4_bits_is_one_that_unsloth_knows(preset):
    mapper = runpy.run_path(str(UNSLOTH.locate_file("unsloth/models/mapper.py")))
    assert preset.model.lower() in mapper["FLOAT_TO_INT_MAPPER"]
