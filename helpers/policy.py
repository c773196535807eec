"""Loading a policy, through Unsloth or through plain Transformers, and sampling completions from it."""

from __future__ import annotations

import torch
from tqdm.auto import tqdm

from helpers.presets import Preset

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def load(settings: Preset):
    """The model and the tokenizer of the settings, in 4 bits if they say so, without an adapter.

    Through Unsloth, or with `backend="transformers"` through Transformers and bitsandbytes, quantised the same way: NF4 with
    double quantisation, computing in the card's 16 bits. TRL's loss is a Triton kernel, which a CPU runs only as Unsloth
    replaces it, so without a GPU Unsloth is imported for either.
    """
    on_gpu = torch.cuda.is_available()
    if settings.backend == "unsloth" or not on_gpu:
        from unsloth import FastLanguageModel
    if settings.backend == "unsloth":
        return FastLanguageModel.from_pretrained(
            settings.model_path, max_seq_length=settings.max_seq_length, load_in_4bit=settings.load_in_4bit
        )
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    dtype = torch.float16 if on_gpu and not torch.cuda.is_bf16_supported(including_emulation=False) else torch.bfloat16
    nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": dtype}
    model = AutoModelForCausalLM.from_pretrained(
        settings.model_path,
        dtype=dtype,
        device_map="cuda" if on_gpu else "cpu",
        quantization_config=BitsAndBytesConfig(load_in_4bit=True, **nf4) if settings.load_in_4bit else None,
    )
    for module in model.modules():
        # On a CPU with AVX-512 bf16, bitsandbytes 0.50 repacks its weights at the first evaluation, and the backward pass of
        # what is repacked is wrong (measured: gradients of three quarters the norm). Unsloth's layers do not ask.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model, AutoTokenizer.from_pretrained(settings.model_path)


def add_adapter(model, settings: Preset):
    """The model with fresh LoRA matrices on all its linear layers, through PEFT alone; seed the random numbers before."""
    from peft import LoraConfig, get_peft_model

    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    rank = {"r": settings.lora_rank, "lora_alpha": settings.lora_alpha}
    return get_peft_model(model, LoraConfig(**rank, target_modules=LORA_TARGETS, task_type="CAUSAL_LM"))


def sample(
    model,
    tokenizer,
    prompts: list[list[dict]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    samples: int = 1,
    batch_size: int = 128,
    seed: int = 3407,
    progress: bool = True,
) -> list[list[str]]:
    """Completions for chat prompts: for each prompt, in the order given, a list of `samples` texts.

    temperature: 0 is greedy decoding (then one sample a prompt says it all). Prompts are batched by length, so little is
    padded; batch_size counts prompts times samples. The model's training mode, caching and the global random state are
    put back afterwards, so sampling in the middle of a training changes nothing about it.
    """
    if not temperature >= 0 or samples < 1:  # not >=: false for nan too
        raise ValueError(f"temperature={temperature} must be 0 or more and samples={samples} 1 or more.")
    texts = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) for prompt in prompts]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    step = max(1, batch_size // samples)
    completions: list[list[str]] = [[] for _ in texts]
    was_training, had_cache, side = model.training, model.config.use_cache, tokenizer.padding_side
    # Said aloud, so that what a model ships in its generation config (top_k, a repetition penalty) does not bend the result.
    decoding = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
    if temperature > 0:
        decoding |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.inference_mode(), tqdm(total=len(texts), disable=not progress) as bar:
        torch.manual_seed(seed)
        try:
            model.eval()
            model.config.use_cache = True
            tokenizer.padding_side = "left"
            for start in range(0, len(order), step):
                chosen = order[start : start + step]
                batch = tokenizer([texts[i] for i in chosen], return_tensors="pt", padding=True, add_special_tokens=False)
                batch = batch.to(model.device)
                output = model.generate(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    max_new_tokens=max_new_tokens,
                    num_return_sequences=samples,
                    pad_token_id=tokenizer.pad_token_id,
                    **decoding,
                )
                decoded = tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
                for position, i in enumerate(chosen):
                    completions[i] = decoded[position * samples : (position + 1) * samples]
                bar.update(len(chosen))
        finally:
            model.train(was_training)
            model.config.use_cache, tokenizer.padding_side = had_cache, side
    return completions
