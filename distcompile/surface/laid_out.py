"""torch's import paths for what stands in other files here: `distributions.normal`, `nn.modules.conv`, ...

In: a package's name and a table: torch's file -> our modules. Out: a module for each, with their names, so that
`from distcompile.distributions.normal import Normal` finds it. They are made at once: the package has loaded ours.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType


def lay_out(package: str, source: str, files: Mapping[str, str]) -> dict[str, ModuleType]:
    """The modules `package.FILE`, for every file of `files`; each has the names of modules of `source`, the first's
    before the others'."""
    made = {}
    for file, ours in files.items():
        module = ModuleType(f"{package}.{file}", f"torch's file {file}: the names of {ours} in {source}.")
        for name in reversed(ours.split()):
            held = vars(importlib.import_module(f"{source}.{name}"))
            vars(module).update({key: value for key, value in held.items() if not key.startswith("__")})
            if "__all__" in held:
                vars(module)["__all__"] = held["__all__"]
        module.__spec__ = ModuleSpec(module.__name__, None)  # so that importlib finds it
        made[file] = sys.modules[module.__name__] = module
    return made
