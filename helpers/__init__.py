"""What the notebooks share: a folder a stage, each importing only from those before it.

| notebook | folder | tests |
|---|---|---|
| 01 Data preparation | `helpers/data/` | `tests/data/` |
| 02 Reward functions | `helpers/rewards/` | `tests/rewards/` |
| 10 Agents | `helpers/agents/` | `tests/agents/` |
| 03 GRPO training | `helpers/training/` | `tests/training/` |
| 04 Training metrics | `helpers/metrics/` | `tests/metrics/` |
| 05 Merge and inference | `helpers/results/` | `tests/results/` |
| `python -m helpers COMMAND` | `helpers/commands/` | `tests/commands/` |
| the embedded models | `helpers/pocket/` | `tests/tools/` |

Every stage uses `environment` (the machine), `own_code` (a user's), `runs` (the run folder),
`smollm2` (a model from PyPI), `presets` (the settings of a run), `setting_rules` (what they may
be), `templates` (of a chat), `tags` (of a completion), `figures` (the palette, and how a figure is
shown). The quickstart and the lessons, notebooks 00 and
06 to 11, take from all stages. Importing this package imports nothing heavy: no torch, no pandas.
"""

import os
from pathlib import Path

# the checkout: notebooks/, requirements.txt, runs/
PROJECT = Path(__file__).resolve().parent.parent

# torch's threads wait for one another by spinning. With another program on the same cores the
# default spin (300,000 turns) makes the small steps of the pocket model many times slower; 10,000
# costs nothing on idle cores. Read when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Where CI is set, torch 2.13 raises for its own compiled code (inductor::_alloc_from_pool, with the
# memory planning of Unsloth on a GPU), and only there: _functorch/config.py,
# error_on_custom_op_aliasing. Read when torch is imported.
os.environ.setdefault("TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING", "0")

# A relative GRPO_RUNS_DIR, or one with a literal `~`, means one folder to a command and another to
# the kernels that it starts in notebooks/. It is made absolute here, once, for this process and for
# all that it starts.
if os.environ.get("GRPO_RUNS_DIR"):
    os.environ["GRPO_RUNS_DIR"] = str(
        Path(os.path.expanduser(os.environ["GRPO_RUNS_DIR"])).resolve()
    )
