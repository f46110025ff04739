"""What an engine is: somebody else's compiler or runtime, that takes graphs of core ops.

In: nothing. Out: the protocol that an engine's file follows, and `require_package`, for what it imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Protocol, TypeAlias

from compiler_core.errors import MissingPackageError
from compiler_core.graph.ir import Call, Graph
from compiler_core.ops.registry import Array

Places: TypeAlias = Sequence[Array | None]


class Program(Protocol):
    """A graph as an engine made it ready.

    inputs: arrays of the graph's shapes and dtypes, perhaps not contiguous; they are not written, nor kept. outs[i], if
    given, is contiguous memory for output i that no input shares: who can writes it there and gives it back. Other
    results are arrays of their own, which the engine does not use again.
    """

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]: ...


class Engine(Protocol):
    """An engine. name: of the backend. devices: those whose graphs it takes, as `Graph.on_gpu` says: False, True.

    any_sizes: whether it builds graphs whose sizes are symbols. whole: names of ops that are not decomposed for it,
    though it would take what they become, and why: our own routines are much faster.
    """

    @property
    def name(self) -> str: ...
    @property
    def devices(self) -> frozenset[bool]: ...
    @property
    def any_sizes(self) -> bool: ...
    @property
    def whole(self) -> Mapping[str, str]: ...

    def refuses(self, call: Call) -> str:
        """Why it does not take a call, of these dtypes, sizes and attributes; "" if it does."""

    def build(self, graph: Graph) -> Program:
        """A program of a graph of which it takes every call. Raises BackendError where the engine fails."""


def require_package(module: str, extra: str) -> ModuleType:
    """An optional package. Raises MissingPackageError, which names what to install, where it cannot be imported."""
    try:
        found = import_module(module)
        if hasattr(found, "__path__") and getattr(found, "__file__", None) is None:
            raise ImportError(f"{module} is a folder of that name, {[*found.__path__]}")
        return found
    except ImportError as error:
        raise MissingPackageError(
            f"backend {extra!r} needs the package {module.partition('.')[0]}, which cannot be imported",
            got=str(error),
            remedy=f'pip install "distcompile[{extra}]"',
        ) from error
