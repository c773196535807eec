"""Sample from a policy that reads pictures, and measure whether it looks at them."""

from collections.abc import Callable

import torch
from trl.data_utils import prepare_multimodal_messages

from helpers.templates import render
from helpers.training import sampling
from helpers.training.checkpoints import BeforeHistory


def image_token_ban(processor, engine: str = "transformers") -> dict:
    """Return the `generation_kwargs` that keep a policy from sampling the placeholder tokens of
    pictures and videos.

    A base model may sample such a token; the text then contains more placeholders than there are
    pictures (huggingface/trl issues 3847 and 4488). Transformers has `suppress_tokens` for this.
    vLLM's `SamplingParams` raises a TypeError for that keyword (and Unsloth silently drops it from
    `vllm_sampling_params`); its own is `logit_bias`, of at least -100.
    """
    tokens = [processor.image_token_id, getattr(processor, "video_token_id", None)]
    tokens = [token for token in tokens if token is not None]
    if engine == "vllm":
        return {"logit_bias": dict.fromkeys(tokens, -100.0)}
    return {"suppress_tokens": tokens}


def prompts_as_text(processor, prompts: list[list[dict]], pictures: list) -> list[str]:
    """Return chat prompts as text for the processor. As in TRL, each has a placeholder for its
    picture.
    """
    return [
        render(processor, prepare_multimodal_messages(list(prompt), [picture]))
        for prompt, picture in zip(prompts, pictures, strict=True)
    ]


def sample(
    model,
    processor,
    prompts: list[list[dict]],
    pictures: list,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    batch_size: int = 64,
    seed: int = 3407,
) -> list[str]:
    """Return one completion for each chat prompt and its picture (a PIL image), in their order,
    sampled through Transformers.

    temperature: 0 is greedy decoding.

    The model's training mode and the global random state are restored afterwards.
    """
    completions = []
    with torch.random.fork_rng(sampling.random_devices(model)), sampling.sampling_mode(model):
        torch.manual_seed(seed)
        for start in range(0, len(prompts), batch_size):
            part = slice(start, start + batch_size)
            inputs = processor(
                images=[[picture] for picture in pictures[part]],
                text=prompts_as_text(processor, prompts[part], pictures[part]),
                padding=True,
                padding_side="left",
                return_tensors="pt",
            ).to(model.device)
            written = model.generate(
                **inputs,
                max_new_tokens=max_new_tokens,
                pad_token_id=processor.tokenizer.pad_token_id,
                **image_token_ban(processor) | sampling.generation_options(temperature),
            )[:, inputs["input_ids"].shape[1] :]
            completions += processor.tokenizer.batch_decode(written, skip_special_tokens=True)
    return completions


class Looking(BeforeHistory):
    """A callback that shows during training whether the policy looks at its pictures. It logs the
    holdout accuracy with pictures (`holdout/sighted`) and without (`holdout/blind`).

    measure: returns both accuracies, sighted and blind. It is called after the first step and after
        every `every` steps, if TRL logs that step.

    Put this callback before `History`, which records the logged values.
    """

    def __init__(self, measure: Callable[[], tuple[float, float]], every: int):
        self.measure = measure
        self.every = every

    def on_log(self, args, state, control, logs, **kwargs):
        """Measure when due, and add both accuracies to the row of the step."""
        # only the log of a training step has a reward; the summary at the end of the run has none
        due = state.global_step == 1 or state.global_step % self.every == 0
        if due and "reward" in logs:
            logs["holdout/sighted"], logs["holdout/blind"] = self.measure()
