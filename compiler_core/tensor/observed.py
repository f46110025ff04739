"""Who sees every op that eager code runs on arrays: for those who count, in a block, in the thread that opened it.

In: a function of (op, arrays, attributes). Out: it is called for each op applied to Tensors or arrays, once the op has
run. An op that others make up counts as itself: what it calls inside is not told. Composites that hide products, which
eager code else computes whole (`ops/whole.py`), are composed meanwhile: the same mathematics in more ops, so results
may differ by rounding. Compiled code is not seen: it runs no ops.
Method: the function that runs an op is replaced, in the modules that call it, while somebody looks. Nothing is asked
otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeAlias

from compiler_core.ops import registry
from compiler_core.ops.registry import Array, Attrs, Op
from compiler_core.ops.whole import Composite
from compiler_core.tensor import tensor as tensors
from compiler_core.tensor.tensor import Tensor

Observer: TypeAlias = Callable[[Op, Sequence[Array], Attrs], None]

_HIDE_PRODUCTS = ("linear", "attention", "convolution")
_run, _whole = registry.run_eager, Tensor.__whole__
_lock = threading.Lock()
_observers: dict[int, list[Observer]] = {}  # by thread
_inside = threading.local()


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Within the block, in this thread, `observer` sees every op."""
    thread = get_ident()
    with _lock:
        _observers.setdefault(thread, []).append(observer)
        _look()
    try:
        yield
    finally:
        with _lock:
            _observers[thread].remove(observer)
            if not _observers[thread]:
                del _observers[thread]
            _look()


def _look() -> None:
    """Put the functions that tell in the place of the plain ones, or take them away."""
    run, whole = (_told, _composed) if _observers else (_run, _whole)
    registry.run_eager = tensors.run_eager = run  # type: ignore[attr-defined]
    Tensor.__whole__ = staticmethod(whole)  # type: ignore[method-assign]


def _told(op: Op, arrays: Sequence[Array], attrs: Attrs) -> Array:
    mine = _observers.get(get_ident())
    if mine is None or getattr(_inside, "op", None) is not None:
        return _run(op, arrays, attrs)
    _inside.op = op
    try:
        result = _run(op, arrays, attrs)
    finally:
        _inside.op = None
    for observer in mine:
        observer(op, arrays, attrs)
    return result


def _composed(composite: Composite, operands: Sequence[Any], attrs: Attrs) -> Tensor | None:
    if composite.name in _HIDE_PRODUCTS and get_ident() in _observers:
        return None
    return _whole(composite, operands, attrs)  # type: ignore[arg-type]
