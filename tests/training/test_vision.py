"""Sampling and adapting the small vision model."""

import pytest
import torch
from transformers import AutoProcessor, TrainerState

from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.results import looking
from helpers.settling import settle
from helpers.training import policy, vision

SETTINGS = settle(
    PRESETS["pocket"],
    model="pocket-vision",
    backend="transformers",
    max_completion_length=20,
)


@pytest.fixture(scope="module")
def loaded():
    return policy.load(SETTINGS, sees=True)


@pytest.fixture(scope="module")
def rows():
    return load_task("pictures/shapes", train_size=8, holdout_size=96, seed=7).holdout


def test_the_vision_model_beats_guessing(loaded, rows):
    texts = looking.completions(*loaded, rows, SETTINGS, seed=1)
    entry = looking.score_conditions(texts, rows)
    looks = [text.startswith("<think>I look") for text in texts["sighted"]]
    assert entry["in_format"] > 0.95 and 0.05 < sum(looks) / len(looks) < 0.3
    assert entry["accuracy"] < 0.5
    again = looking.completions(*loaded, rows, SETTINGS, seed=1, conditions=("blind",))
    assert again["blind"] == texts["blind"] != texts["sighted"], "seeded; the picture matters"


def test_sampling_never_produces_the_picture_token(loaded, rows):
    model, processor = loaded
    bias = torch.zeros(model.config.text_config.vocab_size)
    bias[processor.image_token_id] = 1e4  # the likeliest token by far
    hook = model.lm_head.register_forward_hook(lambda module, given, logits: logits + bias)
    model.train()
    before = torch.random.get_rng_state()
    try:
        (text,) = vision.sample(
            model,
            processor,
            [rows["prompt"][0]],
            [looking.open_picture(rows["image"][0])],
            max_new_tokens=4,
        )
    finally:
        hook.remove()
    assert text and "<image>" not in text
    assert model.training and torch.equal(torch.random.get_rng_state(), before)


def test_the_adapter_covers_only_the_language_part_and_the_projector():
    model, _ = policy.load(SETTINGS, sees=True)
    layers = {
        name.rsplit(".lora_A", 1)[0]
        for name, _ in policy.add_adapter(model, SETTINGS, seed=0, sees=True).named_parameters()
        if "lora_A" in name
    }
    assert len(layers) == 3 * 7 + 2 and not any("vision_tower" in name for name in layers)


def test_the_processor_writes_one_token_per_picture_vector(rows):
    processor = AutoProcessor.from_pretrained(SETTINGS.model_path)
    picture = looking.open_picture(rows["image"][0]).resize((300, 200))  # it resizes what it gets
    (text,) = vision.prompts_as_text(processor, [rows["prompt"][0]], [picture])
    ids = processor(text=[text], images=[picture])["input_ids"][0]
    assert text.count("<image>") == 1 and list(ids).count(processor.image_token_id) == 4


def test_looking_adds_both_accuracies_to_the_logs_of_the_first_step_and_every_fourth():
    callback = vision.Looking(lambda: (0.9, 0.4), every=4)
    measured = []
    for step in range(1, 9):
        logs = {"reward": 0.5}
        callback.on_log(None, TrainerState(global_step=step), None, logs=logs)
        if (logs.get("holdout/sighted"), logs.get("holdout/blind")) == (0.9, 0.4):
            measured.append(step)
    assert measured == [1, 4, 8]
    summary = {"train_runtime": 1.0}
    callback.on_log(None, TrainerState(global_step=8), None, logs=summary)
    assert summary == {"train_runtime": 1.0}
