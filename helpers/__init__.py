"""The code behind the notebooks: one folder per stage, which imports only from folders above it.

| folder | what for | used by notebooks | tests |
|---|---|---|---|
| `helpers/judging/` | is an answer correct? Usable alone. | 09 | `tests/judging/` |
| `helpers/data/` | 01, data preparation | 00, 01, 04 to 11 | `tests/data/` |
| `helpers/rewards/` | 02, reward functions | 00, 02, 03, 05 to 09, 11 | `tests/rewards/` |
| `helpers/training/` | 03, GRPO training | 00, 02 to 11 | `tests/training/` |
| `helpers/metrics/` | 04, training metrics | 00, 03, 04, 07 to 11 | `tests/metrics/` |
| `helpers/results/` | 05, merge and inference | 00, 05 to 11 | `tests/results/` |
| `helpers/agents/` | 10, agents in environments | 10 | `tests/agents/` |
| `helpers/laboratory/` | does cheating pay? | 02, 03, 07, 10 | `tests/laboratory/` |
| `helpers/commands/` | `python -m helpers COMMAND` | | `tests/commands/` |
| `helpers/pocket/` | the pocket models | | `tests/tools/` |

The modules that stand directly in `helpers/` serve every stage:

- `environment`: this machine. `runs`: the run folder. `session`: how a notebook begins.
- `parameters`: of notebooks, on a command line.
- `settings`: each setting and what it may be. `presets`: their values for each card.
- `settling`: the road of a run's settings, with all rules.
- `families`: the families of models. `smollm2`: a model from PyPI. `templates`: of a chat.
- `tags`: the tags of a completion. `own_code`: a user's code. `processes`: that train together.
- `printing`: of text that others wrote. `figures`: the palette, and how a figure is shown.

Notebooks take names from here and from the stages, and of these modules `figures` and `templates`.
Importing this package imports nothing heavy: no torch, no pandas. Each folder offers the names that
notebooks use, and imports their modules when they are first used (see `door`).
"""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

# the checkout, with notebooks/, requirements.txt and runs/
PROJECT = Path(__file__).resolve().parent.parent


def door(package: str, names: dict[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a package, which imports its public names when they are first
    used. So importing the package imports nothing heavy, and Unsloth can be imported before
    Transformers.

        names = {"sampling": "sample", "memory": "check_memory=check"}
        __getattr__ = door("helpers.training", names)

    With this, `helpers.training.sample` is `sample` of `helpers.training.sampling`, and
    `helpers.training.check_memory` is `check` of `helpers.training.memory`. The modules themselves
    are offered, too.

    names: for each module, the names that it offers, separated by spaces. A module that begins with
        "helpers." is one of another package.
    """
    offered = {}  # public name -> module, name in the module
    for module, public_names in names.items():
        path = module if module.startswith("helpers.") else f"{package}.{module}"
        for name in public_names.split():
            public, _, name_in_module = name.partition("=")
            offered[public] = path, name_in_module or public

    def __getattr__(name: str) -> object:
        if name in offered:
            module, name_in_module = offered[name]
            return getattr(importlib.import_module(module), name_in_module)
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
        "printing": "escaped on_one_line quoted transcript",
        "runs": "Run atomic_folder atomic_write check_seed",
        "session": "open_run",
        "settings": "SETTINGS",
        "settling": "settle",
        "templates": "template_options",
        "tags": "THINK_ANSWER TagFormat completion_text",
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
# started it. CUDA reads these variables at its first use, not when torch is imported.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # count GPUs as nvidia-smi does
_sixteen = ",".join(map(str, range(16)))  # CUDA ignores numbers beyond the GPUs that it has
_visible = os.environ.get("CUDA_VISIBLE_DEVICES", _sixteen)
_launched = "LOCAL_RANK" in os.environ or os.environ.get("WORLD_SIZE", "1") != "1"
if not _launched and "," in _visible:
    # Keep the first GPU, and note all of them; `environment.say_which_gpu` says which is kept.
    os.environ["GRPO_ALL_GPUS"] = _visible
    os.environ["CUDA_VISIBLE_DEVICES"] = _visible.split(",")[0]
elif _launched:
    # A launcher that was started from such a process, as by a notebook's `!torchrun`, inherits its
    # one GPU. Give its processes the others back, unless the user chose that one for them.
    _all = os.environ.pop("GRPO_ALL_GPUS", "")
    if _all and _visible == _all.split(",")[0]:
        os.environ["CUDA_VISIBLE_DEVICES"] = _all
