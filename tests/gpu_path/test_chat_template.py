"""Importing Unsloth on a GPU makes `apply_chat_template(tokenize=True)` return bare ids, as it did
before Transformers 5, unless the call says what it wants.
"""

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from helpers.results import merging

PROMPT = [{"role": "user", "content": "What is 2 + 3?"}]


@pytest.fixture
def patched(monkeypatch):
    """Transformers' tokenizers as Unsloth's own patch leaves them on a GPU."""
    from unsloth_zoo.temporary_patches.misc import patch_apply_chat_template_return_dict

    plain = PreTrainedTokenizerBase.apply_chat_template
    monkeypatch.setattr(PreTrainedTokenizerBase, "apply_chat_template", plain)  # put back later
    patch_apply_chat_template_return_dict()
    assert PreTrainedTokenizerBase.apply_chat_template is not plain


def test_prompts_have_logits_beside_unsloths_patch(patched, model, tokenizer):
    """Notebook 05, before any merge."""
    assert isinstance(tokenizer.apply_chat_template(PROMPT), list), "the patch is in force"
    (logits,) = merging.prompt_logits(model, tokenizer, [PROMPT])
    text = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        assert torch.equal(logits, model(input_ids=ids).logits[0])
