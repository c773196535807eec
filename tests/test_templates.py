"""What prompts look like in the family of each preset, with TRL's own copies of the chat templates,
and what our parser makes of the completion that such a prompt asks for. Nothing is downloaded: the
embedded model's tokenizer gets each template.
"""

import ast
import json
import re
import runpy
from contextlib import contextmanager
from importlib import metadata

import pytest
from transformers import AutoTokenizer
from trl.data_utils import apply_chat_template

from helpers import PROJECT, presets, templates
from helpers.data.tasks import prompt_token_counter
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import format_reward, substantial_format_reward
from helpers.tags import THINK_ANSWER
from helpers.training import policy

TRL, UNSLOTH = (metadata.distribution(name) for name in ("trl", "unsloth"))
# The file of trl/chat_templates that is the template of each preset's model.
TEMPLATES = {
    "unsloth/gemma-3-1b-it": "gemma3",
    "unsloth/Qwen3-1.7B": "qwen3",
    "unsloth/Qwen3-4B-Instruct-2507": "qwen3_instruct_2507",
    "unsloth/Llama-3.1-8B-Instruct": "llama3_1",
    "unsloth/Qwen3-8B": "qwen3",
    "unsloth/Qwen3-14B": "qwen3",
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


def with_template(name: str, thinking: bool | None):
    """The embedded model's tokenizer with a template of TRL's, told whether to think."""
    tokenizer = AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path)
    path = TRL.locate_file(f"trl/chat_templates/{name}.jinja")
    tokenizer.chat_template = path.read_text(encoding="utf-8")
    templates.set_thinking(tokenizer, thinking)
    return tokenizer


def rendered(tokenizer, **how) -> str:
    how = how or templates.options_of(tokenizer)
    return tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, tokenize=False, **how)


def judged(completion: str) -> tuple[float, float, float]:
    """What the rewards of 00 and 03 give a completion, and the strict one of the format."""
    columns = {"answer": ["5"]}
    return (
        correctness_reward([completion], **columns)[0],
        format_reward([completion])[0],
        substantial_format_reward([completion])[0],
    )


# --- The families of the presets ------------------------------------------------------------------


@real
def test_no_preset_leaves_a_model_thinking_and_its_ideal_completion_is_right(preset):
    tokenizer = with_template(TEMPLATES[preset.model], preset.thinking)
    after_the_question = rendered(tokenizer).split(QUESTION)[1]
    thinks_by_default = TEMPLATES[preset.model] == "qwen3"
    assert after_the_question.endswith(EMPTY_BLOCK) == thinks_by_default
    assert after_the_question.count("<think>") == after_the_question.count("</think>")
    assert preset.max_completion_length <= 2048  # Qwen3 takes 1,500 to 2,200 for GSM8K
    # a processor would take a word that its template does not know for its own
    assert preset.thinking is (None if preset.name.startswith("vision_") else False)
    # what is pre-filled is the prompt's: the completion has both blocks, as the system prompt asks
    assert judged(THINK_ANSWER.render("2 + 3 = 5", "5")) == (1.0, 1.0, 1.0)


@real
def test_trl_the_counter_and_the_proof_render_the_same_prompt(preset, tmp_path, model):
    tokenizer = with_template(TEMPLATES[preset.model], preset.thinking)
    text = rendered(tokenizer)
    told = presets.grpo_keywords(preset)["chat_template_kwargs"]
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

    @contextmanager
    def recording(*_):
        yield lambda prompts, room: asked.extend(prompts) or [[[]] for _ in prompts]

    monkeypatch.setattr(policy, "_with_transformers", recording)
    tokenizer = with_template("qwen3", thinking)
    policy.sample(model, tokenizer, [PROMPT], max_new_tokens=1, progress=False)
    (ids,) = asked
    assert tokenizer.decode(ids) == rendered(tokenizer, enable_thinking=thinking is not False)
    assert tokenizer.decode(ids).endswith(EMPTY_BLOCK) == (thinking is False)


# --- Other families -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3_5_think", "qwen3_6", "deepseek_r1_distill"])
def test_where_the_template_opens_the_block_the_answer_counts_and_the_format_does_not(family):
    """No preset names such a model. The format rewards do not know yet that the prompt opened it."""
    assert rendered(with_template(family, None)).endswith("<think>\n")
    assert judged("2 + 3 = 5</think><answer>5</answer>") == (1.0, 0.0, 0.0)
    closed = rendered(with_template(family, False))
    assert closed.endswith("<think>\n" if family.startswith("deepseek") else EMPTY_BLOCK)


@pytest.mark.parametrize("name", ["pocket", "pocket-extraction", "pocket-functions"])
def test_the_embedded_models_read_the_same_prompt_whatever_they_are_told(name):
    preset = presets.override(PRESETS["pocket"], model=name)
    assert presets.grpo_keywords(preset)["chat_template_kwargs"] == {} and preset.thinking is None
    tokenizer = AutoTokenizer.from_pretrained(preset.model_path)
    assert rendered(tokenizer, enable_thinking=False) == rendered(tokenizer)


# --- Everywhere -----------------------------------------------------------------------------------


def test_whoever_renders_a_prompt_tells_the_template_what_the_setting_says():
    sources = [path.read_text(encoding="utf-8") for path in PROJECT.glob("helpers/**/*.py")]
    for path in PROJECT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
    rendering = [call for call in calls if re.match(r"[\w.]+\.apply_chat_template\(", call)]
    assert len(rendering) >= 8 and all("**" in call for call in rendering), rendering
    counting = [call for call in calls if call.startswith("prompt_token_counter(")]
    assert len(counting) >= 5 and all(call.count(",") == 1 for call in counting), counting


@real
def test_each_model_is_one_that_unsloth_knows_in_4_bits(preset):
    mapper = runpy.run_path(str(UNSLOTH.locate_file("unsloth/models/mapper.py")))
    assert preset.model.lower() in mapper["FLOAT_TO_INT_MAPPER"]
