"""Errors of running under torch's name: the name that is missing, the user's line, what to do.

In: facts. Out: exceptions that are also what Python raises in the same place, so that `try: import torch.x` and
`hasattr(torch, "x")` mean what they mean with torch.
"""

from __future__ import annotations

from compiler_core.errors import DistCompileError
from compiler_core.location import user_location

_REMEDY = "write around it, or tell us: docs/reference/as_torch.md lists what stands in for torch's own names"


class AsTorchError(DistCompileError, ImportError):
    """distcompile cannot take torch's name here: the real torch is loaded, or the script was started twice."""


class MissingNameError(DistCompileError, AttributeError):
    """`torch.x.name`, of a module that is here, is a name that distcompile does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"distcompile has no {name}", where=user_location(), remedy=_REMEDY)


class NameImportError(DistCompileError, ImportError):
    """`from torch.x import name`, of a module that is here, asks for a name that distcompile does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"distcompile has no {name} to import", where=user_location(), remedy=_REMEDY)
        self.name = name.rpartition(".")[0]


class MissingModuleError(DistCompileError, ModuleNotFoundError):
    """`import torch.x` of a module that distcompile does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"distcompile has no module {name}", where=user_location(), remedy=_REMEDY)
        self.name = name
