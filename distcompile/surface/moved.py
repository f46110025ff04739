"""Where files of ours lay before 2026-11-25, so that pickles of whole modules, optimizers and Generators can be read.

In: a module's old name. Out: its name now (`moved`); and `install`, by which the old name can be imported: as a module
that gives the new one's names, which is all that a pickle asks for. Modules that are found are never asked about here.
Limits: the old names are known once distcompile has been imported; named tuples of linalg lay in one file, are in four,
and are not found.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_ROOMS = {"distcompile.nn": "layers", "distcompile.optim": "update_rules", "compiler_core.tensor": "making"}
_ROOMS |= {"compiler_core.tensor.handles": "autograd", "compiler_core.tensor.copying": "memory"}
_ROOMS |= {"compiler_core.tensor.derived": "methods", "distcompile.limits": "surface"}
_RENAMED = {  # named tuples that operations give
    "compiler_core.ops.composite_reduction": "compiler_core.ops.composites.reduction",
    "compiler_core.ops.composite_eigen": "compiler_core.ops.linear_algebra.eigenvalues",
}


def moved(module: str) -> str:
    """Where that module of ours is now, if a file from before 2026-11-25 names it: layers lay in nn itself."""
    if module in _RENAMED:
        return _RENAMED[module]
    folder, _, file = module.rpartition(".")
    room = _ROOMS.get(module) or _ROOMS.get(folder)
    return f"{folder}.{room}.{file}" if room else module


class MovedModules(MetaPathFinder, Loader):
    """The last finder: it is asked for what no other has found."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Of an old name whose file lies in a room now."""
        now = moved(fullname)
        if now == fullname or now.startswith(f"{fullname}."):  # the room itself
            return None
        return ModuleSpec(fullname, self) if find_spec(now) is not None else None

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        """It has no names of its own."""
        module.__getattr__ = partial(getattr, import_module(moved(module.__name__)))  # type: ignore[method-assign]


def install() -> None:
    """Once a process."""
    sys.meta_path.append(MovedModules())
