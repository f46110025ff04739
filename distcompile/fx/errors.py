"""Errors of torch.fx's graphs and tracers, which are also the built-in exceptions that torch raises there.

In: facts. Out: exceptions.
"""

from __future__ import annotations

from compiler_core.errors import GraphError


class FxError(GraphError, RuntimeError):
    """A graph of nodes, or a tracer, is used in a way that would break it."""


class FxPlaceError(FxError, NotImplementedError):
    """`wrap` was called inside a function."""


class TraceError(FxError, ValueError):
    """The program needs a value that only running it would give."""
