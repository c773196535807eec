"""A user's own class or function, named by a parameter such as `environment=`."""

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path


def named(parameter: str, value: object, example: str) -> Callable:
    """Return the class or function that `file.py:name` or `package.module:name` names, given as a
    parameter. A file may import what is beside it.

    Raise ValueError, with the parameter and an example, if there is no such file, module, class or
    function.
    """
    where, _, name = str(value).rpartition(":")
    is_module = where.replace(".", "").isidentifier() and not Path(where).is_file()
    if not (where.endswith(".py") or is_module) or not name.isidentifier():
        raise ValueError(
            f"{parameter}={value!r}: write it as file.py:Class or file.py:function, such as "
            f"{example}."
        )
    beside = str(Path(where).resolve().parent)
    sys.path.insert(0, beside)
    try:
        if where.endswith(".py"):
            found = runpy.run_path(where).get(name)
        else:
            found = getattr(importlib.import_module(where), name, None)
    except Exception as error:  # whatever a user's file may raise
        raise ValueError(
            f"{parameter}={value!r}: {where} cannot be read ({type(error).__name__}: {error})."
        ) from error
    finally:
        sys.path.remove(beside)
    if not callable(found):
        raise ValueError(f"{parameter}={value!r}: {where} has no class or function {name}.")
    return found
