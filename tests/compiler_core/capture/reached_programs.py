"""What the tests of reached functions share: a function kept out of graphs, and what says how it is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.ops.registry import current_trace
from compiler_core.runtime.frames import _missing
from distcompile import Tensor, compiler

SEEN: list[str] = []
needs_frames = pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is nothing missing")


@compiler.disallow_in_graph
def outside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    SEEN.append("outside")
    return function(*args, **kwargs)


def mark() -> None:
    """Say how this call is run: a captured call's is said again at each replay."""
    SEEN.append("captured" if current_trace() is not None else "plain")


def double(x: Tensor) -> Tensor:
    mark()
    return x * 2


def compiled(function: Any, **options: Any) -> Any:
    return dc.compile(function, backend="eager", **options)


def entries(run: Any) -> dict[str, int]:
    return {found.name: len(found.entries) for found in run.explain().reached}


def x(*values: float) -> Tensor:
    return dc.tensor(list(values or (1.0, 2.0)))
