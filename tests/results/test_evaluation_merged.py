"""evaluation.json, worked out again from the merged folder with plain Transformers and regular
expressions alone.
"""

import json
import re

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def greedy_texts(folder, prompts: list[list[dict]], max_new_tokens: int) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tokenizer.apply_chat_template(
        prompts, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    return tokenizer.batch_decode(
        output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )


def answers_given(text: str) -> set[str]:
    """Everything in an answer block that does not stand in the reasoning."""
    return set(
        re.findall(
            r"<answer>\s*([^<]*?)\s*</answer>",
            re.sub(r"<think>.*?(</think>|$)", "", text, flags=re.DOTALL),
        )
    )


def test_the_numbers_agree_with_plain_transformers(executed):
    holdout = pd.read_parquet(executed.folder / "data" / "holdout.parquet")
    manifest = json.loads((executed.folder / "manifest.json").read_text())
    limit = manifest["training"]["settings"]["max_completion_length"]
    texts = greedy_texts(
        executed.folder / "merged", [list(messages) for messages in holdout["prompt"]], limit
    )
    right = [
        answers_given(text) == {gold} for text, gold in zip(texts, holdout["answer"], strict=True)
    ]
    shaped = [
        re.fullmatch(r"\s*<think>[^<]*</think>\s*<answer>[^<]*</answer>\s*", text) is not None
        for text in texts
    ]
    reported = json.loads((executed.folder / "evaluation.json").read_text())["merged"]["greedy"]
    assert reported["n"] == len(holdout) == 128
    assert reported["accuracy"] == sum(right) / 128
    assert reported["in_format"] == sum(shaped) / 128
    assert 0 < sum(right) < 128, "all or none right would agree with many a wrong evaluation"
