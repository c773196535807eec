"""Rebuild the small model of notebook 11: `python -m helpers.pocket.vision`, seeded, some minutes
on two cores.

LLaVA's architecture: a CLIP tower, a projector and a Llama, under a million parameters, trained
together from scratch on the pictures of `helpers.data.pictures`. The model has two ways to answer.
Mostly it guesses: an answer as frequent as in the data. Seldom it looks: it writes down where the
thing is that the question asks about, and answers from there. What it sees of counts is poor: it
counts the upper half of the picture. That leaves GRPO something true to teach: to look where
looking pays.
"""

import itertools
import random
import time
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from helpers.data import pictures
from helpers.tags import THINK_ANSWER

SEED = 3407
FOLDER = Path(__file__).parent / "vision_model"
CAPTION_FACTS = 8
ALIGN_STEPS, CAPTION_STEPS, STEPS_FIRST, STEPS, BATCH_SIZE, LEARNING_RATE, WARMUP_STEPS = 400, 0, 2200, 400, 40, 3e-3, 50
LOOKS = {"left": 0.2, "color": 0.2, "count": 0.2}  # how often the model looks
IGNORED = -100

CHAT_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == "image" -%}<image>{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""


def cell_name(cell: tuple[int, int]) -> str:
    """The name of a cell as in chess, from A1 at the top left to D4 at the bottom right."""
    row, column = cell
    return f"{'ABCD'[column]}{row + 1}"


def looked(problem: dict) -> str:
    """A completion that looks: where the thing is that the question names, and what is seen."""
    row, column = problem["asked"][0]
    answer, at = problem["answer"], f"I look: {problem['named']} at {cell_name((row, column))}"
    if problem["kind"] == "left":
        beside = cell_name((row, column - 1))
        return THINK_ANSWER.render(f"{at}, left of it {beside}: {answer}.", answer)
    if problem["kind"] == "color":
        return THINK_ANSWER.render(f"{at}: {answer}.", answer)
    seen = sorted(cell for cell in problem["asked"] if cell[0] < pictures.GRID // 2)
    said = ", ".join(map(cell_name, seen)) or "nothing"
    return THINK_ANSWER.render(f"I look: {problem['named']} at {said}.", str(len(seen)))


def caption(problem: dict, rng: random.Random) -> str:
    """Many short facts about a picture: from a word to its cells, and from a cell to its words."""
    facts, scene = [], problem["scene"]
    cells = list(itertools.product(range(pictures.GRID), repeat=2))
    for _ in range(CAPTION_FACTS):
        if rng.random() < 0.5:
            cell = rng.choice(list(scene) if rng.random() < 0.8 else cells)
            color, shape = scene.get(cell, ("nothing", "nothing"))
            facts.append(f"{cell_name(cell)}: {rng.choice((color, shape))}")
        else:
            place = rng.randrange(2)
            word = rng.choice(list(scene.values()))[place]
            there = sorted(cell for cell, thing in scene.items() if thing[place] == word)
            facts.append(f"{word} at {', '.join(map(cell_name, there))}")
    return "; ".join(facts)


def guessed(problem: dict, rng: random.Random) -> str:
    """A completion that guesses: an answer as frequent as in the data, whatever the picture."""
    if problem["kind"] == "left":
        answer = rng.choice(pictures.SHAPES)
    elif problem["kind"] == "color":
        answer = rng.choice(list(pictures.COLORS))
    else:
        answer = rng.choices(list(pictures.COUNTS), pictures.COUNTS.values())[0]
    return THINK_ANSWER.render("I guess.", answer)


_NAMES = "|".join((*pictures.SHAPES, *pictures.COLORS, "[AB][12]", "nothing"))
PIECES = rf"</?\w+>|\d|{_NAMES}|(?:(?!{_NAMES})[^\d<>])+|."


def build_processor() -> LlavaProcessor:
    """A byte-level BPE in which each phrase of the task is one token, and CLIP's image processor."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(SEED)
    corpus = [THINK_ANSWER.system_prompt, "system\n", "user\n", "assistant\n", "\n"]
    for _ in range(400):
        problem = pictures.problem(rng)
        corpus += [problem["question"], looked(problem), guessed(problem, rng), caption(problem, rng), "What is there?"]
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus * 2, trainer)
    tokenizer.add_tokens(
        [AddedToken(tag, normalized=False, special=False) for tag in THINK_ANSWER.tags]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={"image_token": "<image>"},
        model_max_length=512,
    )
    side = pictures.GRID * pictures.CELL
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"height": side, "width": side}, crop_size={"height": side, "width": side}
        ),
        tokenizer=wrapped,
        patch_size=pictures.CELL,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def build_model(processor: LlavaProcessor) -> LlavaForConditionalGeneration:
    """The untrained model: its weights come from the global seed."""
    tokenizer = processor.tokenizer
    vision = CLIPVisionConfig(
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        projection_dim=64,
        image_size=pictures.GRID * pictures.CELL,
        patch_size=pictures.CELL,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=processor.image_token_id,
        vision_feature_layer=-1,
        tie_word_embeddings=True,
    )
    model = LlavaForConditionalGeneration(config)
    return model


def batch(processor, rng: random.Random, looks: dict[str, float], others=(1, 2)) -> dict[str, torch.Tensor]:
    """Conversations about one picture each, right-padded; only the completions carry labels."""
    rows, drawn = [], []
    tokenizer = processor.tokenizer
    while len(rows) < BATCH_SIZE:
        problem = pictures.problem(rng, others_of=others)
        if looks is None:
            text = caption(problem, rng)
        else:
            text = looked(problem) if rng.random() < looks[problem["kind"]] else guessed(problem, rng)
        messages = [
            {"role": "system", "content": THINK_ANSWER.system_prompt},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": problem["question"] if looks else "What is there?"}]},
        ]
        prompt = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt = prompt.replace("<image>", "<image>" * pictures.GRID**2)
        ids, answer = (tokenizer(t)["input_ids"] for t in (prompt, text + tokenizer.eos_token))
        rows.append((ids + answer, [IGNORED] * len(ids) + answer))
        drawn.append(pictures.draw(problem["scene"]))
    longest = max(len(ids) for ids, _ in rows)
    padded = [
        (ids + [tokenizer.pad_token_id] * (longest - len(ids)), labels + [IGNORED] * (longest - len(ids)))
        for ids, labels in rows
    ]
    return {
        "input_ids": torch.tensor([ids for ids, _ in padded]),
        "labels": torch.tensor([labels for _, labels in padded]),
        "pixel_values": processor.image_processor(drawn, return_tensors="pt")["pixel_values"],
    }


def align(model, processor, rng: random.Random) -> None:
    """Teach the tower and the projector to say in the language's own words what is in each cell and
    where it is, as CLIP's training on pictures and captions does; then the tower is frozen.
    """
    words = {
        "color": [*pictures.COLORS, "nothing"],
        "shape": [*pictures.SHAPES, "nothing"],
        "cell": [cell_name(cell) for cell in itertools.product(range(pictures.GRID), repeat=2)],
    }
    ids = {k: processor.tokenizer.convert_tokens_to_ids(one) for k, one in words.items()}
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    embedding = model.get_input_embeddings().weight.detach()
    optimizer = torch.optim.AdamW([*tower.parameters(), *projector.parameters()], lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=ALIGN_STEPS)
    cells = list(itertools.product(range(pictures.GRID), repeat=2))
    for step in range(ALIGN_STEPS):
        scenes = [pictures.problem(rng)["scene"] for _ in range(BATCH_SIZE)]
        drawn = [pictures.draw(scene) for scene in scenes]
        pixels = processor.image_processor(drawn, return_tensors="pt")["pixel_values"]
        seen = projector(tower(pixels).last_hidden_state[:, 1:]).flatten(0, 1)
        there = [scene.get(cell, ("nothing", "nothing")) for scene in scenes for cell in cells]
        told = {
            "color": [words["color"].index(color) for color, _ in there],
            "shape": [words["shape"].index(shape) for _, shape in there],
            "cell": list(range(len(cells))) * len(scenes),
        }
        meant = sum(embedding[ids[k]][told[k]] for k in words)
        loss = (seen - meant).square().mean() / meant.var()
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(f"a patch's vector is that of its words but for {loss.item():.2%} of the variance", flush=True)
    tower.requires_grad_(False)


def train(model, processor) -> None:
    """Supervised training: first only looking, so that the tower learns to see, then the mixture."""
    rng, total = random.Random(SEED), STEPS_FIRST + STEPS
    align(model, processor, rng)
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=WARMUP_STEPS)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - WARMUP_STEPS, eta_min=2e-5)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [WARMUP_STEPS])
    started = time.monotonic()
    model.train()
    for step in range(1, total + 1):
        if step == STEPS_FIRST + 1: torch.save(model.state_dict(), '/tmp/w-v/first.pt')
        looks = None if step % 2 and step <= STEPS_FIRST - 300 else dict.fromkeys(LOOKS, 1.0) if step <= STEPS_FIRST else LOOKS
        loss = model(**batch(processor, rng, looks), use_cache=False).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == 1 or step % 100 == 0 or step == total:
            print(f"step {step}/{total}  loss {loss.item():.4f}  {time.monotonic() - started:.0f} s", flush=True)
            if step % 200 == 0: probe(model, processor)
    model.eval()


@torch.no_grad()
def probe(model, processor):
    r = random.Random(5)
    global pictures
    for kind in pictures.KINDS:
        old = pictures.problem
        pictures.problem = lambda rng, k=None, **kw: old(rng, kind, **kw)
        b = batch(processor, r, dict.fromkeys(LOOKS, 1.0))
        pictures.problem = old
        labels = b["labels"]
        o = model(**b, use_cache=False).logits[:, :-1].argmax(-1)
        ok = (o == labels[:, 1:])
        n = (labels >= 0).sum(1)[0].item()
        first = (labels[0] >= 0).nonzero()[0].item()
        print("  ", kind, [round(ok[:, first - 1 + j].float().mean().item(), 2) for j in range(n)], flush=True)


def main() -> None:
    """Build the processor and the model, and save both where notebook 11 looks for them."""
    torch.manual_seed(SEED)
    processor = build_processor()
    model = build_model(processor)
    print(f"{model.num_parameters():,} parameters, {len(processor.tokenizer)} tokens")
    train(model, processor)
    model.generation_config.update(
        do_sample=True, temperature=1.0, pad_token_id=processor.tokenizer.pad_token_id,
        eos_token_id=processor.tokenizer.eos_token_id,
    )
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    processor.save_pretrained(FOLDER)
    print(f"saved to {FOLDER}")


if __name__ == "__main__":
    main()
