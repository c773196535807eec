"""The examples in the docstrings of helpers and tools: they hold, in whichever module they stand."""

import doctest
import importlib

import pytest

from helpers import PROJECT

MODULES = [
    ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("helpers", "tools")
    for path in sorted((PROJECT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_hold(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed
