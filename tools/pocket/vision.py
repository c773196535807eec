"""Rebuild the small model of notebook 11: `python -m tools.pocket.vision`, seeded, some 8 minutes
on two cores.

LLaVA's architecture: a CLIP tower, a projector and a Llama, 0.6 million parameters, trained from
scratch on the pictures of `helpers.data.pictures`. The model has two ways to answer. Mostly it
guesses: an answer as frequent as in the data. Seldom it looks: it writes down where the thing is
that the question names, and answers from there. Counting, it looks at the upper row alone. That
leaves GRPO something true to teach: to look. It never sees a picture that is reserved for the
holdout.

It learns in three stages, because a model of this size finds what stands in a picture only if it
is told so: the tower and the projector learn to give each patch the vector of its words, as CLIP
and LLaVA's own first stage do; then the language model learns to read them, from short captions and
from answers that look; last comes the mixture.
"""

import argparse
import itertools
import random
import time

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

from helpers import PROJECT
from helpers.data import pictures
from helpers.data.prompts import chat_prompt
from helpers.tags import THINK_ANSWER

SEED = 3407
FOLDER = PROJECT / "helpers" / "pocket" / "vision_model"
ALIGN_STEPS, READ_STEPS, MIX_STEPS = 400, 2200, 400
BATCH_SIZE, LEARNING_RATE, WARMUP_STEPS = 40, 3e-3, 50
LOOKS = 0.17  # how often the model looks
FACTS = 8  # in a caption
KINDS = {"left": 3, "color": 3, "count": 2}  # what it is asked here, counts more often
IGNORED = -100  # the label that cross entropy skips
CELLS = list(itertools.product(range(pictures.GRID), repeat=2))

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


# --- What it is taught to write -------------------------------------------------------------------


def cell_name(cell: tuple[int, int]) -> str:
    """The name of a cell as in a spreadsheet, from A1 at the top left to B2 at the bottom right."""
    row, column = cell
    return f"{'AB'[column]}{row + 1}"


def looked(problem: dict) -> str:
    """A completion that looks: where the thing is that the question names, and what is seen."""
    row, column = problem["asked"][0]
    answer, at = problem["answer"], f"I look: {problem['named']} at {cell_name((row, column))}"
    if problem["kind"] == "left":
        beside = cell_name((row, column - 1))
        return THINK_ANSWER.render(f"{at}, left of it {beside}: {answer}.", answer)
    if problem["kind"] == "color":
        return THINK_ANSWER.render(f"{at}: {answer}.", answer)
    seen = sorted(cell for cell in problem["asked"] if cell[0] == 0)
    said = ", ".join(map(cell_name, seen)) or "nothing"
    return THINK_ANSWER.render(f"I look: {problem['named']} at {said}.", str(len(seen)))


def guessed(problem: dict, rng: random.Random) -> str:
    """A completion that guesses: an answer as frequent as in the data, whatever the picture."""
    answers = {
        "left": dict.fromkeys(pictures.SHAPES, 1),
        "color": dict.fromkeys(pictures.COLORS, 1),
        "count": pictures.COUNTS,
    }[problem["kind"]]
    return THINK_ANSWER.render("I guess.", rng.choices(list(answers), answers.values())[0])


def caption(problem: dict, rng: random.Random) -> str:
    """Short facts about a picture: from a word to its cells, and from a cell to its words."""
    facts, scene = [], problem["scene"]
    for _ in range(FACTS):
        if rng.random() < 0.5:
            cell = rng.choice(list(scene) if rng.random() < 0.8 else CELLS)
            facts.append(
                f"{cell_name(cell)}: {rng.choice(scene.get(cell, ('nothing', 'nothing')))}"
            )
        else:
            place = rng.randrange(2)
            word = rng.choice(list(scene.values()))[place]
            there = sorted(cell for cell, thing in scene.items() if thing[place] == word)
            facts.append(f"{word} at {', '.join(map(cell_name, there))}")
    return "; ".join(facts)


# --- The model ------------------------------------------------------------------------------------

_NAMES = "|".join((*pictures.SHAPES, *pictures.COLORS, "[AB][12]", "nothing"))
PIECES = rf"</?\w+>|\d|{_NAMES}|(?:(?!{_NAMES})[^\d<>])+|."


def build_processor() -> LlavaProcessor:
    """A byte-level BPE in which each phrase of the task is one token, and CLIP's image processor,
    the one that needs no torchvision.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    rng, corpus = random.Random(SEED), [THINK_ANSWER.system_prompt, "What is there?"]
    corpus += ["system\n", "user\n", "assistant\n", "\n"]
    for _ in range(400):
        problem = pictures.picture_problem(rng, rng.choices(list(KINDS), KINDS.values())[0])
        corpus += [problem["question"], looked(problem), guessed(problem, rng)]
        corpus.append(caption(problem, rng))
    trainer = trainers.BpeTrainer(
        vocab_size=2_000,  # more than the corpus can fill
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus * 2, trainer)
    # Not "special": a decoder that skips special tokens must still show the tags.
    tokenizer.add_tokens(
        [AddedToken(tag, normalized=False, special=False) for tag in THINK_ANSWER.tags]
    )
    side = pictures.GRID * pictures.CELL
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"height": side, "width": side}, crop_size={"height": side, "width": side}
        ),
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            extra_special_tokens={"image_token": "<image>"},
            model_max_length=512,
        ),
        patch_size=pictures.CELL,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def build_model(processor: LlavaProcessor) -> LlavaForConditionalGeneration:
    """The model before training: its weights come from the global seed."""
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
        hidden_size=128,  # on a CPU, bitsandbytes 0.50 spoils widths that are no multiple of 64
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
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlavaForConditionalGeneration(config)


# --- Its training ---------------------------------------------------------------------------------


def drawn(processor, rng: random.Random) -> tuple[list[dict], torch.Tensor]:
    """A batch of problems, none of them of a reserved picture, and their pictures as pixels."""
    problems, found = [], []
    while len(problems) < BATCH_SIZE:
        problem = pictures.picture_problem(rng, rng.choices(list(KINDS), KINDS.values())[0])
        picture = pictures.draw_scene(problem["scene"])
        if not pictures.is_reserved(picture):
            problems.append(problem)
            found.append(picture)
    return problems, processor.image_processor(found, return_tensors="pt")["pixel_values"]


def align(model, processor, rng: random.Random) -> None:
    """Teach the tower and the projector to give each patch the sum of its words' vectors: color,
    shape and cell. Then the tower is frozen.
    """
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    position = next(w for name, w in tower.named_parameters() if "position_embedding" in name)
    position.data.mul_(25)  # beside the pixels, CLIP's beginning would be lost
    words = model.get_input_embeddings().weight.detach()
    optimizer = torch.optim.AdamW([*tower.parameters(), *projector.parameters()], lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=ALIGN_STEPS)
    for _ in range(ALIGN_STEPS):
        problems, pixels = drawn(processor, rng)
        seen = projector(tower(pixels).last_hidden_state[:, 1:]).flatten(0, 1)
        there = [
            (*problem["scene"].get(cell, ("nothing", "nothing")), cell_name(cell))
            for problem in problems
            for cell in CELLS
        ]
        ids = [processor.tokenizer.convert_tokens_to_ids(list(named)) for named in there]
        meant = words[torch.tensor(ids)].sum(1)
        loss = (seen - meant).square().mean() / meant.var()
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(f"a patch's vector is its words', but for {loss.item():.2%} of the variance", flush=True)
    tower.requires_grad_(False)


def batch(processor, rng: random.Random, looks: float | None) -> dict[str, torch.Tensor]:
    """Conversations about a picture each, right-padded; only the completions carry labels.

    looks: the share that looks; None for captions.
    """
    tokenizer, rows = processor.tokenizer, []
    problems, pixels = drawn(processor, rng)
    for problem in problems:
        question = problem["question"]
        if looks is None:
            question, text = "What is there?", caption(problem, rng)
        else:
            text = looked(problem) if rng.random() < looks else guessed(problem, rng)
        system, user = chat_prompt(THINK_ANSWER.system_prompt, question)
        user["content"] = [{"type": "image"}, {"type": "text", "text": question}]
        prompt = processor.apply_chat_template(
            [system, user], add_generation_prompt=True, tokenize=False
        ).replace("<image>", "<image>" * len(CELLS))
        ids, learned = (tokenizer(one)["input_ids"] for one in (prompt, text + tokenizer.eos_token))
        rows.append((ids + learned, [IGNORED] * len(ids) + learned))
    shape = (len(rows), max(len(ids) for ids, _ in rows))
    input_ids, labels = torch.full(shape, tokenizer.pad_token_id), torch.full(shape, IGNORED)
    for i, (ids, learned) in enumerate(rows):
        input_ids[i, : len(ids)], labels[i, : len(ids)] = torch.tensor(ids), torch.tensor(learned)
    return {"input_ids": input_ids, "labels": labels, "pixel_values": pixels}


def train(model, processor) -> None:
    """The three stages; prints the loss now and then."""
    rng, total = random.Random(SEED), READ_STEPS + MIX_STEPS
    align(model, processor, rng)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=WARMUP_STEPS)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total, eta_min=2e-5)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [WARMUP_STEPS])
    started = time.monotonic()
    model.train()
    for step in range(1, total + 1):
        if step > READ_STEPS:
            looks = LOOKS
        else:  # captions and looking in turn, at the end only looking
            looks = None if step % 2 and step <= READ_STEPS - 300 else 1.0
        loss = model(**batch(processor, rng, looks), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == 1 or step % 100 == 0:
            seconds = time.monotonic() - started
            print(f"step {step}/{total}  loss {loss.item():.4f}  {seconds:.0f} s", flush=True)
    model.eval()


def main() -> None:
    """Build the processor and the model, and save both where notebook 11 looks for them."""
    torch.manual_seed(SEED)
    processor = build_processor()
    model = build_model(processor)
    print(f"{model.num_parameters():,} parameters, {len(processor.tokenizer)} tokens")
    train(model, processor)
    model.generation_config.update(
        do_sample=True,
        temperature=1.0,
        pad_token_id=processor.tokenizer.pad_token_id,
        eos_token_id=processor.tokenizer.eos_token_id,
    )
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    processor.save_pretrained(FOLDER)
    print(f"saved to {FOLDER}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
