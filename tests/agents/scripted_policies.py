"""Policies whose words are known, in a step of TRL's trainer."""

import json
import re

from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from helpers.presets import PRESETS

POCKET = PRESETS["pocket"].model_path
# The least that TRL asks of a template for tools: it lists them, renders calls and results, and
# only ever appends.
TEMPLATE = """{%- for tool in tools or [] -%}
<|im_start|>tool {{ tool.function.name }}({{
    tool.function.parameters.properties | join(", ") }})<|im_end|>
{% endfor -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{{
    call.function | tojson }}</tool_call>{% endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""
ROWS = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": "Let us play. "}], "seed": seed} for seed in range(4)]
)


class Scripted(GRPOTrainer):
    """TRL's trainer with a policy whose words are known: it answers what `play` makes of the
    conversation so far.
    """

    play = None

    def _generate_single_turn(
        self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False
    ):
        texts = [self.play(self.processing_class.decode(ids)) + "<|im_end|>" for ids in prompt_ids]
        ids = [self.processing_class(text, add_special_tokens=False)["input_ids"] for text in texts]
        return [one[: self.max_completion_length] for one in ids], None  # as an engine would


def trained(
    trainer_class, tokenizer, folder, guard, play=None, callbacks=(), reward_funcs=None, **options
) -> GRPOTrainer:
    """A trainer after one step on four questions, each asked twice."""
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=options.pop("max_steps", 1),
        num_generations=2,
        per_device_train_batch_size=8,
        max_completion_length=options.pop("max_completion_length", 800),
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        **options,
    )
    trainer = trainer_class(
        model=AutoModelForCausalLM.from_pretrained(POCKET, dtype="float32"),
        processing_class=tokenizer,
        args=config,
        train_dataset=ROWS,
        environment_factory=guard,
        reward_funcs=reward_funcs,
        callbacks=list(callbacks),
    )
    trainer.play = play
    trainer.train()
    return trainer


def called(name: str, **arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def halving(conversation: str) -> str:
    """The best strategy for Guessing, from the words of the conversation alone."""
    if "Yes" in conversation:
        return "Done."
    low = 1 + max(map(int, re.findall(r"Higher than (\d+)", conversation)), default=0)
    high = min(map(int, re.findall(r"Lower than (\d+)", conversation)), default=101) - 1
    return called("guess", number=(low + high) // 2)


def log(trainer: GRPOTrainer) -> dict:
    return trainer.state.log_history[0]
