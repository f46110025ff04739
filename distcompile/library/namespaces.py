"""torch.ops: a namespace for each first name, in it the operators of this name.

In: names. Out: `OpOverloadPacket`s, as attributes: this is where operators.py keeps what the program defined. `aten`,
which has what we have of torch's own, is put in its place by aten.py.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from distcompile.errors import SharedObjectError


class OpNamespace(ModuleType):
    """torch.ops.ns."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self.name = name
        self.__file__ = "torch.ops"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")


class Ops(ModuleType):
    """torch.ops."""

    def __init__(self) -> None:
        super().__init__("torch.ops")
        self.__file__ = "_ops.py"
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = vars(self)[name] = OpNamespace(name)
        return made

    def load_library(self, path: str) -> NoReturn:
        """Operators in a shared object are written against torch's own C++ library."""
        raise SharedObjectError(f"the operators of {path} need torch's C++ library", remedy="register Python functions")


ops = Ops()
