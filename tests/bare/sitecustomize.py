"""Hide every optional package, installed or not, from Python processes started with
`PYTHONPATH=tests/bare`, and from those that they start in turn.

To them, `import`, `find_spec` and `importlib.metadata` behave as on a machine after `make setup`.
"""

import runpy
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_needed = runpy.run_path(str(Path(__file__).parents[1] / "needed.py"))
_HIDDEN = _needed["OPTIONAL"] | _needed["BOOK"]


class _Bare(PathFinder):
    """The finder of installed modules, without those of `_HIDDEN`."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in _HIDDEN:
            return None
        return super().find_spec(fullname, path, target)

    @classmethod
    def find_distributions(cls, *args, **kwargs):
        for found in super().find_distributions(*args, **kwargs):
            if found.name.replace("_", "-") not in _HIDDEN.values():
                yield found


sys.meta_path[sys.meta_path.index(PathFinder)] = _Bare
