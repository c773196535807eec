"""Decoding, in bfloat16 and float16: with a cache against one forward pass, merged against adapter.

What is compared is the log probability of each token that was drawn, in nats: GRPO's ratio is e to
the power of such a difference.
"""

import torch

from benchmarks.gpu import common

LARGEST = 0.3  # a mean difference of this many nats is more than rounding
ADAPTER = 1e-2  # of the entries of B


@torch.inference_mode()
def measure(result: common.Result) -> None:
    """A random model, four rows, a prompt of half their length."""
    length = 32 if result.rehearse else 256
    torch.manual_seed(1)
    ids = torch.randint(3, 300, (4, length), device=common.device())
    for dtype in (torch.bfloat16, torch.float16):
        model = common.random_model(common.shape(result), dtype=dtype)
        whole = log_probs(model(input_ids=ids).logits[:, :-1], ids)
        note(result, f"{dtype}, cached against whole", cached(model, ids), whole, LARGEST)
        policy = common.adapted(model, ADAPTER)
        beside = log_probs(policy(input_ids=ids).logits[:, :-1], ids)
        moved = (beside - whole).abs().mean().item()
        result.found[f"{dtype}, what the adapter does: mean, nats"] = moved
        merged = log_probs(policy.merge_and_unload()(input_ids=ids).logits[:, :-1], ids)
        note(result, f"{dtype}, merged against adapter", merged, beside, moved / 2)


def cached(model, ids: torch.Tensor) -> torch.Tensor:
    """The log probabilities of the second half, one token at a time after the first half."""
    half = ids.shape[1] // 2
    output = model(input_ids=ids[:, :half], use_cache=True)
    logits = [output.logits[:, -1:]]
    for at in range(half, ids.shape[1] - 1):
        cache = output.past_key_values
        output = model(input_ids=ids[:, at : at + 1], past_key_values=cache, use_cache=True)
        logits.append(output.logits)
    return log_probs(torch.cat(logits, dim=1), ids)


def log_probs(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """log pi of the second half of each row's tokens, [rows, length / 2], by the last logits."""
    half = ids.shape[1] - ids.shape[1] // 2
    logits = logits[:, -half:].float().log_softmax(dim=-1)
    return logits.gather(-1, ids[:, -half:, None]).squeeze(-1)


def note(result: common.Result, name: str, one, other, largest: float) -> None:
    """Note the mean and the largest difference; a problem if the mean is too large."""
    apart = (one - other).abs()
    result.found[f"{name}: mean, nats"] = apart.mean().item()
    result.found[f"{name}: largest, nats"] = apart.max().item()
    result.expect(apart.mean() < largest, f"{name}: {apart.mean():.2g} nats apart on average.")


if __name__ == "__main__":
    common.main(measure)
