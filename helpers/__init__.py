"""The code behind the notebooks: one folder per stage, which imports only from earlier stages.

| notebook | folder | tests |
|---|---|---|
| is it right? usable alone | `helpers/judging/` | `tests/judging/` |
| 01 Data preparation | `helpers/data/` | `tests/data/` |
| 02 Reward functions | `helpers/rewards/` | `tests/rewards/` |
| 10 Agents | `helpers/agents/` | `tests/agents/` |
| does cheating pay? 02, 07, 10 | `helpers/laboratory/` | `tests/laboratory/` |
| 03 GRPO training | `helpers/training/` | `tests/training/` |
| 04 Training metrics | `helpers/metrics/` | `tests/metrics/` |
| 05 Merge and inference | `helpers/results/` | `tests/results/` |
| `python -m helpers COMMAND` | `helpers/commands/` | `tests/commands/` |
| the embedded models | `helpers/pocket/` | `tests/tools/` |

Every stage uses `environment` (the machine), `own_code` (a user's), `runs` (the run folder),
`smollm2` (a model from PyPI), `settings` (each setting and what it may be), `presets` (their values
for a card), `session` (how a notebook begins), `families` (of models), `processes` (that train
together), `templates` (of a chat), `tags` (of a completion), `figures` (the palette, and how a
figure is shown). The quickstart and the lessons, notebooks 00 and 06 to 11, take from all stages.
Importing this package imports nothing heavy: no torch, no pandas. Each folder is a door: it offers
the names that notebooks use, and imports their modules when they are first used.
"""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

# the checkout, with notebooks/, requirements.txt and runs/
PROJECT = Path(__file__).resolve().parent.parent


def door(package: str, names: dict[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: its public names, each imported when it is first used.

    So importing a package imports nothing heavy, and Unsloth can be imported before Transformers.

    names: by module of the package, or by full name of another one, the names that it offers;
        `public=own` if a name is another one in its module. The package's modules are offered, too.
    """
    found = {}
    for module, offered in names.items():
        for name in offered.split():
            public, _, own = name.partition("=")
            path = module if module.startswith("helpers.") else f"{package}.{module}"
            found[public] = path, own or public

    def __getattr__(name: str) -> object:
        if name in found:
            module, own = found[name]
            return getattr(importlib.import_module(module), own)
        if name in names:  # a module of the package, such as `metrics.plots`
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__


# What notebooks take from here; each stage has such a door, too.
__getattr__ = door(
    __name__,
    {
        "environment": "gpu_obstacle quiet this_machine",
        "figures": "view",
        "presets": "settle",
        "runs": "Run atomic_folder atomic_write check_seed",
        "session": "open_run",
        "settings": "SETTINGS",
        "templates": "template_options",
        "tags": "THINK_ANSWER TagFormat completion_text escaped on_one_line quoted transcript",
    },
)

# torch's threads wait for one another by spinning. If another program uses the same cores, the
# default of 300,000 turns makes the small steps of the pocket model many times slower. 10,000 turns
# cost nothing on idle cores. torch reads this when it is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# If the environment variable CI is set, torch 2.13 raises an error about its own compiled code
# (inductor::_alloc_from_pool, which Unsloth's memory planning uses on a GPU); see
# error_on_custom_op_aliasing in _functorch/config.py. torch reads this when it is imported.
os.environ.setdefault("TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING", "0")

# Kernels run in notebooks/, not in the working directory of the command that starts them, so they
# would find a relative GRPO_RUNS_DIR elsewhere. Make it absolute, for this process and for them.
if os.environ.get("GRPO_RUNS_DIR"):
    os.environ["GRPO_RUNS_DIR"] = str(
        Path(os.path.expanduser(os.environ["GRPO_RUNS_DIR"])).resolve()
    )

# TRL's GRPOTrainer refuses a process that sees several GPUs, unless a launcher, such as torchrun,
# started it. So keep the first GPU; `environment.this_machine` says which. A launcher started from
# here, as by a notebook's `!torchrun`, inherits this: its processes get the other GPUs back. CUDA
# reads these variables at its first use, not when torch is imported. It counts as nvidia-smi does
# only if told to, and ignores numbers from the first that names no GPU.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
_visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(16))))
if "LOCAL_RANK" in os.environ or os.environ.get("WORLD_SIZE", "1") != "1":
    _all = os.environ.pop("GRPO_ALL_GPUS", "")
    if _all and _visible == _all.split(",")[0]:
        os.environ["CUDA_VISIBLE_DEVICES"] = _all
elif "," in _visible:
    os.environ["GRPO_ALL_GPUS"] = _visible
    os.environ["CUDA_VISIBLE_DEVICES"] = _visible.split(",")[0]
