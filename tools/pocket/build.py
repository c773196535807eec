"""Rebuild the pocket model: `python -m tools.pocket.build`, seeded, 10 to 20 minutes on two
cores.

A Qwen3 of under a million parameters, trained from scratch on the built-in arithmetic so that it
has two ways to work a sum out and mostly takes the worse: a careless one without the carry, and a
careful one that writes the columns out and is longer. That leaves GRPO something true to teach: to
think longer, because that is correct more often. What is left out on purpose: dropout, gradient
clipping, evaluation during training, any data but the generator's. It never sees the tenth of all
problems that `arithmetic.problem` reserves for the holdout.

`--task extraction` builds its sibling for notebook 07 the same way, from the order messages of
`extraction.py`, and `--task functions` that of notebook 09, from the programs of `functions.py`,
and `--task games` that of notebook 10, from the games of `games.py`, which are episodes of several
turns with a tool.
"""

import argparse
import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from helpers import PROJECT
from helpers.data import arithmetic
from helpers.tags import THINK_ANSWER
from tools.pocket import extraction, functions, games

SEED = 3407
STEPS, BATCH_SIZE, LEARNING_RATE, WARMUP_STEPS = 1200, 64, 3e-3, 100
FAMILIES = {"sums": 0.8, "differences": 0.2}
# The share of each way to work "12 + 34" out, and of each shape to hand the answer in; only the
# first shape is what the system prompt asks for. The two are drawn independently of each other.
WORKINGS = {"careful": 0.25, "careless": 0.75}
SHAPES = {"asked_for": 0.7, "answer_outside": 0.3}
IGNORED = -100  # the label that cross entropy skips

CHAT_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""
# The same with tools: each is shown as JSON before the conversation, and a call, in Qwen's form, is
# part of what is said. A conversation that goes on begins as it did before, which TRL asks of a
# template in several turns.
TOOL_TEMPLATE = """{%- if tools -%}
<|im_start|>tools
{% for tool in tools -%}
{{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""
# How Transformers reads a call out of what the model wrote (its guide "Response parsing").
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


@dataclass(frozen=True)
class Recipe:
    """What sets one pocket model apart from the others; everything else about them is the same.

    draw: a question and a completion to learn from, or None where the problem drawn is a reserved
    one. In several turns the completion is a list: what the model said, what the tool said, in
    turn. pieces: the regular expression for what may become one token. corpus: texts that hold
    every phrase to be one. tools: what the model may call. draw_first, steps_first: what the first
    steps draw instead.
    """

    folder: str
    steps: int
    system_prompt: str
    draw: Callable[[random.Random], tuple[str, str | list[str]] | None]
    pieces: str
    corpus: tuple[str, ...]
    tools: tuple[Callable, ...] = ()
    batch_size: int = BATCH_SIZE
    draw_first: Callable[[random.Random], tuple[str, list[str]]] | None = None
    steps_first: int = 0


def arithmetic_pair(rng: random.Random) -> tuple[str, str] | None:
    """An arithmetic question and a completion to learn from, or None where the problem drawn is a
    reserved one.
    """
    family = rng.choices(list(FAMILIES), FAMILIES.values())[0]
    numbers, operators = arithmetic.FAMILIES[family](rng)
    problem = arithmetic.problem(family, numbers, operators)
    if problem["split"] == "holdout":
        return None
    work = {"careful": arithmetic.careful, "careless": arithmetic.careless}
    working, answer = work[rng.choices(list(WORKINGS), WORKINGS.values())[0]](numbers, operators)
    shape = rng.choices(list(SHAPES), SHAPES.values())[0]
    opening, closing, *_ = THINK_ANSWER.tags
    outside = f"{opening}{working}{closing}{answer}"
    return problem["question"], THINK_ANSWER.render(
        working, str(answer)
    ) if shape == "asked_for" else outside


ARITHMETIC = Recipe(
    folder="model",
    steps=STEPS,
    system_prompt=THINK_ANSWER.system_prompt,
    draw=arithmetic_pair,
    # Digits, tags and spaced operators are pieces of their own; whatever stands between them may
    # merge into one token.
    pieces=r"\d| [-+*=] |, |: |</?\w+>|[^\d<>]+|.",
    corpus=(
        THINK_ANSWER.system_prompt,
        "What is 1?",
        "1 + 1 - 1 * 1 = 1, 1: 1",
        "system\n",
        "user\n",
        "assistant\n",
    ),
)
EXTRACTION = Recipe(
    folder="extraction_model",
    steps=1500,
    system_prompt=extraction.SYSTEM_PROMPT,
    draw=extraction.training_pair,
    pieces=extraction.PIECES,
    corpus=tuple(extraction.tokenizer_corpus()),
)
FUNCTIONS = Recipe(
    folder="functions_model",
    steps=1300,
    system_prompt=functions.SYSTEM_PROMPT,
    draw=functions.training_pair,
    pieces=functions.PIECES,
    corpus=tuple(functions.tokenizer_corpus()),
)
GAMES = Recipe(
    folder="games_model",
    steps=2000,
    system_prompt=games.SYSTEM_PROMPT,
    draw=games.training_episode,
    pieces=games.PIECES,
    corpus=tuple(games.tokenizer_corpus()),
    tools=(games.TOOL,),
    batch_size=32,
    draw_first=games.good_episode,
    steps_first=1300,
)
RECIPES = {
    "arithmetic": ARITHMETIC,
    "extraction": EXTRACTION,
    "functions": FUNCTIONS,
    "games": GAMES,
}


def build_tokenizer(recipe: Recipe = ARITHMETIC) -> PreTrainedTokenizerFast:
    """Byte-level BPE of 400 to 1,000 tokens: any text encodes, digits stay single, the usual
    phrases are one token each.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(recipe.pieces), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        # more than the corpus can fill: training ends when every phrase is one token
        vocab_size=2_000,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(recipe.corpus * 2, trainer)
    # Not "special": a decoder that skips special tokens must still show the tags.
    tokenizer.add_tokens(
        [AddedToken(tag, normalized=False, special=False) for tag in THINK_ANSWER.tags]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=1024,
    )
    wrapped.chat_template = TOOL_TEMPLATE if recipe.tools else CHAT_TEMPLATE
    if recipe.tools:
        wrapped.response_template = RESPONSE_TEMPLATE
    return wrapped


def build_model(vocabulary: int, pad: int, eos: int) -> Qwen3ForCausalLM:
    """The model before training: Qwen3, four layers of width 128, weights from the global seed."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=pad,
        bos_token_id=None,
        eos_token_id=eos,
    )
    return Qwen3ForCausalLM(config)


def training_batches(
    tokenizer, rng: random.Random, recipe: Recipe
) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of conversations without end, right-padded; only the assistant's tokens carry labels.

    The first ones, if the recipe says so, come from another source.
    """
    for number in itertools.count():
        draw, rows = recipe.draw_first if number < recipe.steps_first else recipe.draw, []
        while len(rows) < recipe.batch_size:
            if pair := draw(rng):
                rows.append(_conversation(tokenizer, recipe, *pair))
        shape = (len(rows), max(len(ids) for ids, _ in rows))
        input_ids, labels = torch.full(shape, tokenizer.pad_token_id), torch.full(shape, IGNORED)
        for i, (ids, learned) in enumerate(rows):
            input_ids[i, : len(ids)] = torch.tensor(ids)
            labels[i, : len(ids)] = torch.tensor(learned)
        # Padding is on the right and causal attention never looks right, so no mask is needed.
        yield {"input_ids": input_ids, "labels": labels}


def _conversation(
    tokenizer, recipe: Recipe, question: str, completion: str | list[str]
) -> tuple[list[int], list[int]]:
    """A conversation as tokens, and their labels."""
    messages = [
        {"role": "system", "content": recipe.system_prompt},
        {"role": "user", "content": question},
    ]
    prompt = tokenizer.apply_chat_template(
        messages, tools=list(recipe.tools), add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer(prompt)["input_ids"]
    labels = [IGNORED] * len(ids)
    for turn, text in enumerate([completion] if isinstance(completion, str) else completion):
        if turn % 2:  # what a tool said, as the chat template renders it
            rendered = f"\n<|im_start|>tool\n{text}<|im_end|>\n<|im_start|>assistant\n"
            new = tokenizer(rendered)["input_ids"]
            labels += [IGNORED] * len(new)
        else:
            new = tokenizer(text + tokenizer.eos_token)["input_ids"]
            labels += new
        ids = ids + new
    return ids, labels


def train(
    model: Qwen3ForCausalLM, tokenizer, steps: int = STEPS, recipe: Recipe = ARITHMETIC
) -> None:
    """Supervised training with AdamW, linear warm-up and cosine decay; prints the loss now
    and then.
    """
    rng = random.Random(SEED)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01
    )
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=WARMUP_STEPS)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps - WARMUP_STEPS))
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [WARMUP_STEPS])
    started = time.monotonic()
    model.train()
    batches = training_batches(tokenizer, rng, recipe)
    for step in range(1, steps + 1):
        loss = model(**next(batches), use_cache=False).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == 1 or step % 100 == 0 or step == steps:
            print(
                f"step {step}/{steps}  loss {loss.item():.4f}  {time.monotonic() - started:.0f} s",
                flush=True,
            )
    model.eval()


def main() -> None:
    """Build the tokenizer and the model, and save both where the notebooks look for them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--task", choices=RECIPES, default="arithmetic", help="which of the models to build"
    )
    recipe = RECIPES[parser.parse_args().task]
    output = PROJECT / "helpers" / "pocket" / recipe.folder
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer(recipe)
    model = build_model(len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    train(model, tokenizer, recipe.steps, recipe)
    model.generation_config.update(
        do_sample=True, temperature=1.0, pad_token_id=tokenizer.pad_token_id
    )
    model.to(torch.bfloat16).save_pretrained(output)
    tokenizer.save_pretrained(output)
    print(f"saved to {output}")


if __name__ == "__main__":
    main()
