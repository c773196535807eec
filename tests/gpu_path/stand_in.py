"""Stand in for a GPU, so that a notebook runs on a CPU the way it does on a card: through Unsloth's
GPU classes, its patches of Transformers, PEFT and TRL, and the trainer that it writes.

`import stand_in` is the first cell of each notebook's copy; UNSLOTH_ALLOW_CPU=1 must be set. It
imports no library: each of the following is done when a notebook has imported the module.

What is replaced:
- `helpers.environment.this_machine` names an NVIDIA L4, and for the helpers `torch.cuda` is
  available. So their branches and those of the notebooks for a GPU run. No library is told so:
  tensors stay on the CPU. Any who ask for the card's name or for bfloat16 get an L4's answer.
- `device_map="cuda"` loads to the CPU, and a trainer's configuration has `use_cpu=True`.
- `FastLanguageModel.from_pretrained` and `FastVisionModel.from_pretrained` load through Transformers
  and bitsandbytes, and give the model what Unsloth's do. Theirs ask the card for its memory.
- `FastLlamaModel.patch_peft_model` does the same without its fused Triton kernels.
  `get_peft_model`, which calls it, is Unsloth's.
- UNSLOTH_ALLOW_CPU makes Unsloth leave TRL alone. `PatchFastRL` is called again without it, for
  GRPO's trainer only: to write the others takes half a minute.
- TRL's Triton kernel for the log-probabilities is the same in plain torch.

What cannot be executed so, and why:
- Unsloth's forward passes and fused LoRA (`models/llama.py`, `models/qwen3.py`, `kernels/`), and TRL's
  own kernel: Triton.
- Autocasting to bfloat16: Unsloth asks for it on "cuda", where torch turns it off without a card.
- Unsloth's training loop, which its loader writes: Transformers' with another banner.
- What torch.compile makes of Unsloth's loss: TORCHDYNAMO_DISABLE is set, for compiling on a CPU takes
  a C++ compiler. The functions run as they are written.
- vLLM beside a policy (`fast_inference=True`), standby and sleeping: vLLM's build for CUDA.
- fp16 and its gradient scaler, for a card without bfloat16: a CPU has none.
- Running out of memory, the size of a batch that fits, and the peak that the trial step prints:
  they are read from the card.
- Which device a tensor is on: whatever is forgotten on the CPU is found on a card only.
- GGUF: Unsloth compiles llama.cpp, which it downloads.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from dataclasses import replace
from functools import partial
from types import MethodType

_NAME = "NVIDIA L4 (a stand-in)"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Change a module as soon as it has been imported."""

    def find_spec(self, name, path, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            CHANGES[name](module)

        spec.loader.exec_module = execute_and_change
        return spec


# --- The card -------------------------------------------------------------------------------------


def _card(environment):
    found = environment.this_machine()
    card = replace(found, gpu=_NAME, gpu_memory_gb=24.0, compute_capability=8.9)
    environment.this_machine = lambda: card


def _has_bf16(including_emulation=True) -> bool:
    return True


def _cuda(cuda):
    here = cuda.is_available

    def is_available() -> bool:
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return asking.startswith("helpers.") or here()

    cuda.is_available = is_available
    cuda.is_bf16_supported = _has_bf16
    cuda.get_device_name = lambda device=None: _NAME  # Unsloth's merge asks whether it is a T4


def _on_cpu(modeling):
    """`device_map="cuda"` of Transformers."""
    load = modeling.PreTrainedModel.from_pretrained.__func__

    def from_pretrained(cls, *args, device_map=None, **options):
        device_map = "cpu" if device_map == "cuda" else device_map
        return load(cls, *args, device_map=device_map, **options)

    modeling.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def _use_cpu(training_args):
    check = training_args.TrainingArguments.__post_init__

    def post_init(self):
        self.use_cpu = True
        check(self)

    training_args.TrainingArguments.__post_init__ = post_init


# --- TRL's kernel ---------------------------------------------------------------------------------


class _LogProbabilities:
    """The first two results of trl.kernels.ChunkedLogProbFunction, which GRPO asks for."""

    @staticmethod
    def apply(hidden, weight, bias, labels, temperature, chunk, softcap, scale, outputs):
        from torch.nn import functional

        assert softcap is None and set(outputs) <= {"log_probs", "entropy"}
        logits = functional.linear(hidden, weight, bias).float() * scale / temperature
        every = logits.log_softmax(-1)
        chosen = every.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        entropy = -(every.exp() * every).sum(-1).detach() if "entropy" in outputs else None
        return chosen, entropy, None, None, None


def _kernel(utils):
    utils._ChunkedLogProbFunction = _LogProbabilities


# --- Unsloth --------------------------------------------------------------------------------------


def _unsloth(unsloth):
    import torch
    from unsloth import trainer
    from unsloth.models import rl
    from unsloth.models.llama import FastLlamaModel

    os.environ["UNSLOTH_ALLOW_CPU"] = "0"
    rl.patch_trl_rl_trainers = lambda: rl._patch_trl_rl_trainers("grpo_trainer")
    rl.PatchFastRL(FastLanguageModel=FastLlamaModel)
    trainer._patch_trl_trainer()
    os.environ["UNSLOTH_ALLOW_CPU"] = "1"
    torch.cuda.is_bf16_supported = _has_bf16  # Unsloth has replaced it, and found no card
    FastLlamaModel.patch_peft_model = staticmethod(_patch_peft_model)
    unsloth.FastLanguageModel.from_pretrained = staticmethod(partial(_load, sees=False))
    unsloth.FastVisionModel.from_pretrained = staticmethod(partial(_load, sees=True))


def _load(model_name, max_seq_length, load_in_4bit, *, sees):
    """What Unsloth's loaders return: of a folder with an adapter, the adapter on its base."""
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoProcessor,
        AutoTokenizer,
        Trainer,
    )
    from unsloth.models._utils import patch_gradient_accumulation_fix
    from unsloth.models.llama import FastLlamaModel, unsloth_fast_generate
    from unsloth.models.vision import FastBaseModel, unsloth_base_fast_generate
    from unsloth.save import patch_saving_functions

    from helpers.training.policy import nf4

    adapter = model_name if os.path.exists(f"{model_name}/adapter_config.json") else None
    base = PeftConfig.from_pretrained(adapter).base_model_name_or_path if adapter else model_name
    model = (AutoModelForImageTextToText if sees else AutoModelForCausalLM).from_pretrained(
        base,
        dtype=torch.bfloat16,
        quantization_config=nf4(torch.bfloat16) if load_in_4bit else None,
    )
    tokenizer = (AutoProcessor if sees else AutoTokenizer).from_pretrained(model_name)
    tokenizer.padding_side = "left"
    fast, generate = FastLlamaModel, unsloth_fast_generate
    if sees:
        fast, generate = FastBaseModel, unsloth_base_fast_generate
    model.max_seq_length, model._saved_temp_tokenizer = max_seq_length, tokenizer
    model.for_training = partial(fast.for_training, model)
    model.for_inference = partial(fast.for_inference, model)
    model._old_generate, model.generate = model.generate, MethodType(generate, model)
    patch_saving_functions(model)
    patch_saving_functions(tokenizer)
    patch_gradient_accumulation_fix(Trainer)
    if sees:  # FastBaseModel.get_peft_model asks whether its training loop is there
        Trainer._inner_training_loop.__name__ = "_fast_inner_training_loop"
    if adapter:
        model = _patch_peft_model(PeftModel.from_pretrained(model, adapter, is_trainable=True))
    return model, tokenizer


def _patch_peft_model(model, use_gradient_checkpointing="unsloth"):
    from unsloth.models import llama

    model._unsloth_gradient_checkpointing = use_gradient_checkpointing
    model = llama.prepare_model_for_kbit_training(
        model, use_gradient_checkpointing=use_gradient_checkpointing, use_reentrant=True
    )
    llama.patch_saving_functions(model)
    model.for_training = partial(llama.FastLlamaModel.for_training, model)
    model.for_inference = partial(llama.FastLlamaModel.for_inference, model)
    return model


CHANGES = {
    "helpers.environment": _card,
    "torch.cuda": _cuda,
    "transformers.modeling_utils": _on_cpu,
    "transformers.training_args": _use_cpu,
    "trl.trainer.utils": _kernel,
    "unsloth": _unsloth,
}
early = [name for name in CHANGES if name in sys.modules]
assert not early, f"imported before the stand-in: {early}"
sys.meta_path.insert(0, _AfterImport())
