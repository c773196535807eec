"""End completions at stop texts: the setting `stop`.

    set_stop(tokenizer, settings.stop)     # once, when the tokenizer is loaded
    end_at_stop(trainer, tokenizer)        # once, before `trainer.train()`

A model that no end token stops writes on after its answer, often into a question of its own. Such a
completion is ended here by the first token with which it contains a stop text. It keeps that token,
because it was sampled and is trained on. Both samplers end at the same token: Transformers' own
`stop_strings` would also end where a text begins in the prompt, and vLLM's `stop` would not.
"""

from bisect import bisect_left
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch

_stops: WeakKeyDictionary = WeakKeyDictionary()  # by tokenizer


def set_stop(tokenizer, stop: Sequence[str] | None) -> None:
    """Remember the stop texts for a tokenizer; all sampling with it follows them."""
    _stops[tokenizer] = list(stop or ())


def stop_of(tokenizer) -> list[str]:
    """Return the texts that `set_stop` has stored for a tokenizer; [] by default."""
    return _stops.get(tokenizer, [])


def length_to_stop(tokenizer, ids: list[int]) -> int | None:
    """Return the number of tokens with which a completion first contains a stop text; None if it
    contains none.
    """

    def contains(length: int) -> bool:
        text = tokenizer.decode(ids[:length])
        return any(stop in text for stop in stop_of(tokenizer))

    if not stop_of(tokenizer) or not contains(len(ids)):
        return None
    return bisect_left(range(len(ids)), True, key=contains)


class AtStop:
    """Tell Transformers' `generate` which completions of a batch contain a stop text.

    prompt: the length in tokens of the prompts with their padding.

    It is called like a StoppingCriteria and is none, because sampling must not import Transformers
    before Unsloth.
    """

    def __init__(self, tokenizer, prompt: int):
        self.tokenizer = tokenizer
        self.prompt = prompt
        # A new stop text is at the end, and every token of it has at least a byte.
        self.window = max(len(stop.encode()) for stop in stop_of(tokenizer)) + 4

    def __call__(self, input_ids, scores, **kwargs) -> torch.Tensor:
        last = input_ids[:, max(self.prompt, input_ids.shape[1] - self.window) :]
        texts = self.tokenizer.batch_decode(last)
        found = [any(stop in text for stop in stop_of(self.tokenizer)) for text in texts]
        return torch.tensor(found, device=input_ids.device)


def end_at_stop(trainer, tokenizer) -> None:
    """End the completions of a GRPOTrainer at the stop texts, and let TRL count them as ended.

    TRL 1.15 passes `generate` no tokenizer, keeps the padding behind a completion that ended
    without an end token, and calls one cut off unless its last token is an end token
    (`_generate`, `mask_truncated_completions`). So for each round, the last tokens of the stopped
    completions count as end tokens, and a completion that was cut off at such a token loses it.
    """
    if not stop_of(tokenizer):
        return
    single_turn = trainer._generate_single_turn
    generate = trainer.model.generate
    ends = list(trainer.eos_token_ids)

    def stopping(*args, **inputs):
        criteria = [AtStop(tokenizer, inputs["input_ids"].shape[1])]
        return generate(*args, **inputs, stopping_criteria=criteria)

    def until_stop(*args, **options):
        # 1. Sample a round. Only here does `generate` stop at the texts.
        trainer.eos_token_ids = ends
        trainer.model.generate = stopping
        try:
            completions, logprobs = single_turn(*args, **options)
        finally:
            trainer.model.generate = generate

        # 2. Find where completions contain a stop text, and with which tokens they then end.
        lengths = [length_to_stop(tokenizer, ids) for ids in completions]
        stop_tokens = {
            ids[length - 1] for ids, length in zip(completions, lengths, strict=True) if length
        }.difference(ends)

        # 3. Shorten the completions, and their log-probabilities if vLLM has given any.
        for number, (ids, length) in enumerate(zip(completions, lengths, strict=True)):
            if length is None:
                # without a stop text: one that was cut off at such a token would count as ended
                length = len(ids)
                while length > 1 and ids[length - 1] in stop_tokens:
                    length -= 1
            completions[number] = ids[:length]
            if logprobs is not None:
                logprobs[number] = logprobs[number][:length]

        # 4. Let TRL count the stopped completions as ended, until the next round.
        trainer.eos_token_ids = [*ends, *stop_tokens]
        return completions, logprobs

    trainer._generate_single_turn = until_stop
