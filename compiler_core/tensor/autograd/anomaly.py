"""Anomaly mode: a backward pass ends where a gradient becomes NaN, and says which op of which line made it.

In: `detect_anomaly`, `set_detect_anomaly`, for the whole process, as in torch. Out: AutogradError from `check`, which
the engine calls after each node. While the mode is on, nodes remember the user's line that recorded them. A compiled
call is one node; gradients that it puts into DDP's buckets itself are not looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.ops import functional as F
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.tensor.autograd.tape import GradNode
from compiler_core.tensor.autograd.watching import watch


class _State:
    enabled = False
    check_nan = True


state = _State()
_places: WeakKeyDictionary[GradNode, str] = WeakKeyDictionary()


def is_anomaly_enabled() -> bool:
    """Whether backward passes are looked at."""
    return state.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether they end at a gradient of NaN."""
    return state.check_nan


class set_detect_anomaly:
    """Turn anomaly mode on or off, from now on, or inside `with`. check_nan: whether NaN in a gradient is an error."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if current_trace() is not None:
            raise GraphBreak("anomaly mode is changed: it is for the backwards that follow")
        self.before = state.enabled, state.check_nan
        _set(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _set(*self.before)


def _set(mode: bool, check_nan: bool) -> None:
    if mode and not state.enabled:
        watch.enter(note)
    elif state.enabled and not mode:
        watch.leave(note)
    state.enabled, state.check_nan = mode, check_nan


class detect_anomaly:
    """Anomaly mode inside `with`. check_nan: whether NaN in a gradient is an error."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self.inner: list[set_detect_anomaly] = []
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for"
            " debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.inner.append(set_detect_anomaly(True, self.check_nan))

    def __exit__(self, *error: Any) -> None:
        self.inner.pop().__exit__(None, None, None)


def note(node: GradNode) -> None:
    """Remember where `node` is recorded."""
    _places[node] = user_location()


def check(node: GradNode, grads: Sequence[Any]) -> None:
    """Raise AutogradError if one of the gradients that `node` gave has a NaN."""
    for k, grad in enumerate(grads):
        if hasattr(grad, "dtype") and meta_of(grad).dtype.kind in "fc" and bool(F.any(F.isnan(grad))):
            where = _places.get(node, "")
            raise AutogradError(
                f"Function '{node.name()}' returned nan values in its {k}th output.",
                where=where,
                remedy="" if where else "to see the forward's line, turn anomaly mode on before the forward",
            )
