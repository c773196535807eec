"""Sample completions from a policy.

    texts = sample(model, tokenizer, prompts, max_new_tokens=72, samples=8)

    with sampler(model, tokenizer, samples=8) as complete:
        groups = complete(prompt_ids, [72] * len(prompt_ids))

`sample` takes chat prompts and returns texts. `sampler` opens a context in which token ids can be
completed several times, such as once for each turn of an episode. Both sample through vLLM if
Unsloth has started an engine for the model, and through Transformers' `generate` otherwise.
"""

import gc
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakSet

import torch

from helpers.templates import encode, render
from helpers.training.stops import AtStop, length_to_stop, stop_of

Tokens = list[int]  # token ids

# Completions sampled at a time. `generate` holds a whole batch in memory, and a batch that does not
# fit is halved. vLLM queues the completions that it has no memory for.
BATCH = {"transformers": 256, "vllm": 1024}
_contiguous: WeakSet = WeakSet()  # the heads whose inputs a hook makes contiguous


def sample(
    model,
    tokenizer,
    prompts: list[list[dict]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    samples: int = 1,
    batch_size: int | None = None,
    seed: int = 3407,
    as_tokens: bool = False,
) -> list[list]:
    """Return `samples` completions for each chat prompt, in the order of the prompts.

    temperature: 0 is greedy decoding, for which one sample per prompt is enough.
    batch_size: completions sampled at a time; None: BATCH.
    as_tokens: return lists of token ids, for `lengths_of`, and not texts, in which special tokens
        are missing.

    vLLM samples with the adapter's current weights. Whether the model thinks before it answers is
    stored in the tokenizer (`templates.set_thinking`), as are the stop texts (`stops.set_stop`).

    Sampling during a training run does not change the run: the model's training mode, gradient
    checkpointing, cache setting and the random state are restored, and a vLLM engine gives its
    memory back.
    """
    texts = [render(tokenizer, prompt) for prompt in prompts]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    # batch prompts of similar length, so that there is little padding
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    prompts_at_a_time = max(1, (batch_size or BATCH[engine_of(model)]) // samples)
    completions: list[list] = [[] for _ in texts]
    with sampler(model, tokenizer, temperature=temperature, samples=samples, seed=seed) as complete:
        for start in range(0, len(order), prompts_at_a_time):
            batch = order[start : start + prompts_at_a_time]
            groups = complete([ids[i] for i in batch], [max_new_tokens] * len(batch))
            for i, group in zip(batch, groups, strict=True):
                texts_of_group = tokenizer.batch_decode(group, skip_special_tokens=True)
                completions[i] = group if as_tokens else texts_of_group
    return completions


def lengths_of(model, tokenizer, groups: list[list[Tokens]]) -> list[int]:
    """Return the tokens of each completion with its end token, also if it was cut off before it. A
    stop text ends a completion, too.
    """
    ends = ends_of(model, tokenizer)
    lengths = []
    for group in groups:
        for ids in group:
            has_end = not ends.isdisjoint(ids[-1:]) or length_to_stop(tokenizer, ids) is not None
            lengths.append(len(ids) if has_end else len(ids) + 1)
    return lengths


def ends_of(model, tokenizer) -> set[int]:
    """Return the tokens that end a completion; the generation config may list several."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = tokenizer.eos_token_id
    if isinstance(ends, int):
        return {ends}
    return set(ends or [])


def end_that_ends_nothing(model, tokenizer) -> str | None:
    """Return what the chat template writes after a reply if no token of it ends a completion. The
    policy then writes on, into turns of its own, to the limit. None if a token does.
    """
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "A reply."}]
    end = render(tokenizer, turns, answering=False).rpartition("A reply.")[2].strip()
    return end if ends_of(model, tokenizer).isdisjoint(encode(tokenizer, end)) else None


@contextmanager
def sampler(model, tokenizer, *, temperature: float = 1.0, samples: int = 1, seed: int = 3407):
    """Open a context whose value is a function `complete(prompts, room)`.

    prompts: lists of token ids.
    room: for each prompt, the most tokens of a completion.

    The function returns a list of `samples` completions for each prompt. A completion is a list of
    token ids, including the end token if there was room for one, or up to the end of a stop text.

    Calls within one context continue one stream of random numbers, so that all turns of an episode
    are drawn from the same seed.
    """
    with torch.random.fork_rng(random_devices(model)):
        torch.manual_seed(seed)
        if engine_of(model) == "vllm":
            # a generator of its own: vLLM, too, draws from the global random state (measured on a
            # CPU, where the second batch got other seeds)
            generator = torch.Generator().manual_seed(seed)
            with _adapter_in_vllm(model) as adapter:
                engine = VllmSampler(model, tokenizer, adapter, temperature, samples, generator)
                yield engine.complete
        else:
            with sampling_mode(model):
                yield TransformersSampler(model, tokenizer, temperature, samples).complete


def engine_of(model) -> str:
    """Return what samples from this model: "vllm" if it has an engine, else "transformers"."""
    has_engine = getattr(model, "vllm_engine", None) is not None
    return "vllm" if has_engine else "transformers"


def context_of(model) -> int | None:
    """Return the most tokens that a prompt and its completion may have together: the limit of the
    vLLM engine, or of the model; None if neither is known.
    """
    if engine_of(model) == "vllm":
        return model.vllm_engine.llm_engine.vllm_config.model_config.max_model_len
    return getattr(model.config, "max_position_embeddings", None)


def random_devices(model) -> list:
    """Return the devices besides the CPU on which a model draws random numbers, for torch's
    `fork_rng`.
    """
    return [model.device] if model.device.type == "cuda" else []


# --- Through Transformers -------------------------------------------------------------------------


@dataclass
class TransformersSampler:
    """Sample through the `generate` of a model in `sampling_mode`."""

    model: torch.nn.Module
    tokenizer: object
    temperature: float
    samples: int
    prompts_at_a_time: int = 10**9  # no limit at first; halved whenever the GPU runs out of memory

    def complete(self, prompts: list[Tokens], room: list[int]) -> list[list[Tokens]]:
        """Return the completions of each prompt (see `sampler`), in batches that fit in memory."""
        groups: list[list[Tokens]] = []
        while len(groups) < len(prompts):
            part = slice(len(groups), len(groups) + self.prompts_at_a_time)
            try:
                groups += self._complete_batch(prompts[part], room[part])
            except torch.OutOfMemoryError:
                if len(prompts[part]) == 1:
                    raise
                self.prompts_at_a_time = len(prompts[part]) // 2
        return groups

    def _complete_batch(self, prompts: list[Tokens], room: list[int]) -> list[list[Tokens]]:
        """Return the completions of each prompt, sampled in one call of `generate`."""
        # `generate` passes the head a slice: the last token of each prompt. For a 3-D input that is
        # not contiguous, torch multiplies batch by batch, and in bf16 it copies the head's weights
        # for each prompt: 19 GB for 64 prompts and 152,000 tokens (pytorch issue 186148). The hook
        # stays on the model, because TRL's own sampling needs it too.
        head = self.model.get_output_embeddings()
        if self.model.device.type == "cpu" and head not in _contiguous:
            _contiguous.add(head)
            head.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))

        # sample from all prompts at once
        inputs = _left_padded(self.model, self.tokenizer, prompts, self.samples)
        longest = inputs["input_ids"].shape[1]
        at_stop = [AtStop(self.tokenizer, longest)] if stop_of(self.tokenizer) else None
        output = self.model.generate(
            **inputs,
            max_new_tokens=max(1, *room),  # a tool's reply may have used up all the room
            num_return_sequences=self.samples,
            pad_token_id=self.tokenizer.pad_token_id,
            stopping_criteria=at_stop,
            **generation_options(self.temperature),
        )

        # cut each completion after its first end token or stop text, or where its room ends
        ends = ends_of(self.model, self.tokenizer)
        groups: list[list[Tokens]] = [[] for _ in prompts]
        for row, tokens in enumerate(output[:, longest:].tolist()):
            prompt = row // self.samples
            ended = tokens[: room[prompt]]
            length = next((at + 1 for at, token in enumerate(ended) if token in ends), None)
            ended = ended[:length]  # all of it without an end token
            groups[prompt].append(ended[: length_to_stop(self.tokenizer, ended)])
        return groups


# A shared prefix is computed once if that saves more than this many multiplications, about a second
# on a CPU. The pocket models' prompts stay below: each is then computed by itself.
PREFIX_PAYS = 1e11


def _left_padded(model, tokenizer, prompts: list[Tokens], samples: int) -> dict:
    """Return a batch of prompts as inputs of `generate`, padded on the left.

    Prompts often begin with the same tokens: the system prompt and the worked examples. On a CPU
    these are computed once and passed as a cache, if that saves enough.
    """
    # count the shared tokens; `generate` needs at least one token of each prompt beside the cache
    shared = 0
    for tokens in zip(*(ids[:-1] for ids in prompts), strict=False):
        if len(set(tokens)) > 1:
            break
        shared += 1
    saved = shared * (len(prompts) * samples - 1) * model.num_parameters()
    if model.device.type != "cpu" or saved <= PREFIX_PAYS:
        shared = 0

    # pad the rest of each prompt
    inputs = tokenizer.pad(
        {"input_ids": [ids[shared:] for ids in prompts]},
        padding_side="left",
        return_tensors="pt",
    ).to(model.device)

    # compute the shared tokens once, and give each completion a copy of their keys and values
    if shared:
        prefix = torch.tensor([prompts[0][:shared]] * len(prompts))
        cache = model(prefix[:1], use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(prompts) * samples)
        inputs["input_ids"] = torch.cat([prefix, inputs["input_ids"]], dim=1)
        inputs["attention_mask"] = torch.cat(
            [torch.ones_like(prefix), inputs["attention_mask"]], dim=1
        )
        inputs["past_key_values"] = cache
    return inputs


def generation_options(temperature: float) -> dict:
    """Return the sampling keywords of `generate`. All are explicit, because a model may ship other
    values in its generation config, such as a top_k or a repetition penalty.
    """
    options = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
    if temperature > 0:
        options |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    return options


@contextmanager
def sampling_mode(model):
    """Let a model sample in this context: no gradients, no dropout, and the key-value cache on. The
    model's modes are restored at the end.
    """
    was_training = model.training
    config = model.config.get_text_config()
    had_cache = config.use_cache
    with torch.no_grad():
        try:
            model.eval()
            config.use_cache = True
            yield
        finally:
            if was_training and hasattr(model, "for_training"):
                # Unsloth's `generate` turns gradient checkpointing off, and turns it on again only
                # if it was called in training mode.
                checkpointing = getattr(model, "_unsloth_gradient_checkpointing", None)
                model.for_training(use_gradient_checkpointing=checkpointing)
            else:
                model.train(was_training)
            config.use_cache = had_cache


# --- Through vLLM ---------------------------------------------------------------------------------


@dataclass
class VllmSampler:
    """Sample through the vLLM engine that Unsloth has started for a model.

    adapter: vLLM's request for the adapter, from `_adapter_in_vllm`.
    generator: draws the seed of each prompt's completions.
    """

    model: torch.nn.Module
    tokenizer: object
    adapter: object
    temperature: float
    samples: int
    generator: torch.Generator

    def complete(self, prompts: list[Tokens], room: list[int]) -> list[list[Tokens]]:
        """Return the completions of each prompt (see `sampler`). Raise ValueError if a prompt
        and its room exceed the engine's context.
        """
        from vllm import SamplingParams

        context = context_of(self.model)
        longest = max(len(ids) + left for ids, left in zip(prompts, room, strict=True))
        if longest > context:
            raise ValueError(
                f"a prompt of {max(map(len, prompts))} tokens and a completion of {max(room)} do "
                f"not fit into the engine's context of {context}: raise max_seq_length in notebook "
                "1, or sample with engine='transformers'."
            )
        parameters = [
            SamplingParams(
                n=self.samples,
                temperature=self.temperature,
                top_p=1.0,
                top_k=-1,
                max_tokens=max(1, left),
                stop=stop_of(self.tokenizer),
                # vLLM gives sample i of a request the seed `seed + i`. The seeds of two requests
                # are far apart, so that no two completions share random numbers.
                seed=torch.randint(2**62, (), generator=self.generator).item(),
            )
            for left in room
        ]
        outputs = self.model.fast_generate(
            # token ids: vLLM would add a second beginning-of-sequence token to a text
            [{"prompt_token_ids": ids} for ids in prompts],
            sampling_params=parameters,
            lora_request=self.adapter,
            use_tqdm=False,
        )
        groups = []
        for output, left in zip(outputs, room, strict=True):
            group = [list(completion.token_ids)[:left] for completion in output.outputs]
            groups.append([ids[: length_to_stop(self.tokenizer, ids)] for ids in group])
        return groups


@contextmanager
def _adapter_in_vllm(model):
    """Give the adapter's current weights to the model's vLLM engine, and open a context whose value
    is vLLM's request for the adapter; None if the model has no adapter.

    If the model is in training mode, the engine's memory is freed at the end of the context.
    """
    request = None
    with tempfile.TemporaryDirectory() as folder:
        if getattr(model, "peft_config", None):
            model.save_pretrained(folder, selected_adapters=["default"])
            if hasattr(model, "load_lora"):  # only on adapters that Unsloth made
                request = model.load_lora(folder)
            else:
                from unsloth_zoo.vllm_utils import load_lora

                request = load_lora(model, folder)  # ty: ignore[too-many-positional-arguments]
        try:
            yield request
        finally:
            if model.training:
                release(model)  # the next optimiser step needs the memory


def release(model=None) -> None:
    """Free the GPU memory that sampling holds: the cache of the model's vLLM engine, if any, and
    torch's unused blocks.

    The engine shares the model's weights. They are freed once nothing refers to the model.
    """
    engine = getattr(model, "vllm_engine", None)
    if (
        engine is not None
        and engine.llm_engine.vllm_config.model_config.enable_sleep_mode
        and not engine.llm_engine.is_sleeping()  # vLLM warns if it sleeps already
    ):
        engine.sleep(level=1)
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU
