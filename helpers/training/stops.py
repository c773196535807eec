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

_stops: WeakKeyDictionary = WeakKeyDictionary()  # tokenizer -> its stop texts


def set_stop(tokenizer, stop: Sequence[str] | None) -> None:
    """Remember the stop texts for a tokenizer; all sampling with it follows them."""
    _stops[tokenizer] = list(stop or ())


def stop_of(tokenizer) -> list[str]:
    """Return the texts that `set_stop` has stored for a tokenizer; [] by default."""
    return _stops.get(tokenizer, [])


def _has_stop(tokenizer, text: str) -> bool:
    """Return whether a text contains one of the tokenizer's stop texts."""
    return any(stop in text for stop in stop_of(tokenizer))


def length_to_stop(tokenizer, ids: list[int]) -> int | None:
    """Return how many tokens of a completion it takes to contain a stop text; None if the whole
    completion contains none.
    """
    if not stop_of(tokenizer) or not _has_stop(tokenizer, tokenizer.decode(ids)):
        return None

    def is_enough(length: int) -> bool:
        return _has_stop(tokenizer, tokenizer.decode(ids[:length]))

    # If some tokens are enough, so are more of them: bisection finds the smallest number.
    return bisect_left(range(len(ids)), True, key=is_enough)


class AtStop:
    """Tell Transformers' `generate` which completions of a batch contain a stop text.

    prompt_length: that of the prompts with their padding, in tokens.

    `generate` calls it after each token, like a StoppingCriteria. It is not a subclass of that,
    because sampling must not import Transformers before Unsloth.
    """

    def __init__(self, tokenizer, prompt_length: int):
        self.tokenizer = tokenizer
        self.prompt_length = prompt_length
        # Only the last tokens are read, because a stop text that has just been completed is at the
        # end. A token has at least one byte, so a stop text has at most as many tokens as bytes. 4
        # more, because the first tokens may read otherwise without those before them.
        self.window = max(len(stop.encode()) for stop in stop_of(tokenizer)) + 4

    def __call__(self, input_ids, scores, **kwargs) -> torch.Tensor:
        """Return a boolean for each completion: whether its last tokens contain a stop text."""
        start = max(self.prompt_length, input_ids.shape[1] - self.window)
        texts = self.tokenizer.batch_decode(input_ids[:, start:])
        found = [_has_stop(self.tokenizer, text) for text in texts]
        return torch.tensor(found, device=input_ids.device)


def _length_without(end_tokens: set[int], ids: list[int]) -> int:
    """Return how many tokens of a completion are left if no end token may be the last, except the
    first token.
    """
    length = len(ids)
    while length > 1 and ids[length - 1] in end_tokens:
        length -= 1
    return length


def end_at_stop(trainer, tokenizer) -> None:
    """End the completions of a GRPOTrainer at the stop texts, and let TRL count them as ended.

    Three things in TRL 1.15 are in the way (`_generate`, `mask_truncated_completions`): it passes
    `generate` no tokenizer, it keeps the padding behind a completion that ended without an end
    token, and it takes a completion for cut off unless its last token is an end token.

    So for each round, the last tokens of the stopped completions count as end tokens. A completion
    that reached the limit of length may by chance end with one of these tokens, too. It would count
    as ended, so the token is removed from it.
    """
    if not stop_of(tokenizer):
        return
    sample_round = trainer._generate_single_turn
    generate = trainer.model.generate
    end_tokens = list(trainer.eos_token_ids)

    def generate_to_stop(*args, **inputs):
        criteria = [AtStop(tokenizer, inputs["input_ids"].shape[1])]
        return generate(*args, **inputs, stopping_criteria=criteria)

    def sample_round_to_stop(*args, **options):
        # 1. Sample a round. Only here does `generate` stop at the texts.
        trainer.eos_token_ids = end_tokens
        trainer.model.generate = generate_to_stop
        try:
            completions, logprobs = sample_round(*args, **options)
        finally:
            trainer.model.generate = generate

        # 2. Find how long each completion is to its stop text, and the tokens that end them there.
        lengths = [length_to_stop(tokenizer, ids) for ids in completions]
        stop_tokens = set()
        for ids, length in zip(completions, lengths, strict=True):
            if length is not None and ids[length - 1] not in end_tokens:
                stop_tokens.add(ids[length - 1])

        # 3. Shorten the completions, and their log-probabilities if vLLM has given any.
        for number, (ids, length) in enumerate(zip(completions, lengths, strict=True)):
            if length is None:
                length = _length_without(stop_tokens, ids)
            completions[number] = ids[:length]
            if logprobs is not None:
                logprobs[number] = logprobs[number][:length]

        # 4. Let TRL count the stopped completions as ended, until the next round.
        trainer.eos_token_ids = [*end_tokens, *stop_tokens]
        return completions, logprobs

    trainer._generate_single_turn = sample_round_to_stop
