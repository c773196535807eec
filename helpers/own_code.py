"""A user's own class or function, named by a parameter such as `environment=game.py:Game`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

# What `_module_of_file` has executed, by the module that came of it. It is kept here and not in the
# module, where it could overwrite a global of the user's.
_executed: dict[ModuleType, bytes] = {}


def load_own(parameter: str, value: object, example: str) -> Callable:
    """Import the class or function named by `file.py:name` or `package.module:name`, and return it.
    A file may import modules from its own folder.

    parameter, example: the name of the notebook's parameter and a valid value, for error messages.
    Raise ValueError if the file, module, class or function does not exist or cannot be imported.
    """
    # 1. Split the text. A name such as rewards.txt could be that of a module; if there is a file of
    # this name, it is refused.
    where, _, name = str(value).rpartition(":")
    is_file = where.endswith(".py")
    is_module = where.replace(".", "").isidentifier() and not Path(where).is_file()
    if not (is_file or is_module) or not name.isidentifier():
        raise ValueError(
            f"{parameter}={value!r}: write it as file.py:Class or file.py:function, such as "
            f"{example}."
        )

    # 2. Import the file or the module. Until that is done, its folder is searched for imports. The
    # name of a module has no folder in it, so its folder is the current directory.
    folder = str(Path(where).resolve().parent)
    sys.path.insert(0, folder)
    try:
        module = _module_of_file(where) if is_file else importlib.import_module(where)
    except Exception as error:  # a user's file may raise anything
        raise ValueError(
            f"{parameter}={value!r}: {where} cannot be read ({type(error).__name__}: {error})."
        ) from error
    finally:
        sys.path.remove(folder)

    # 3. Find the class or function in it.
    own = getattr(module, name, None)
    if not callable(own):
        raise ValueError(f"{parameter}={value!r}: {where} has no class or function {name}.")
    return own


def _module_of_file(path: str) -> ModuleType:
    """Return a file as a module. The file is executed again only if its text has changed, so two
    functions of one file share its objects, such as a client or a semaphore.
    """
    # pickle looks this name up in sys.modules, and would take a dot for a package's
    name = str(Path(path).resolve()).replace(".", "_")
    source = Path(path).read_bytes()
    module = sys.modules.get(name)
    if _executed.get(module) != source:
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module
        exec(compile(source, path, "exec"), vars(module))
        _executed[module] = source
    return module
