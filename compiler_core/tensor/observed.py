"""Who sees every op that eager code runs on arrays: for those who count, in a block, in the thread that opened it.

In: a function of (op, arrays, attributes, result). Out: it is called for each op applied to Tensors or arrays, once the
op has run; or of (op, arrays, attributes), asked `instead`: a result that it gives is taken, and told to those who look
from further inside; the op does not run, and those outside are told nothing.
An op that others make up counts as itself: what it calls inside is not told. Composites that hide products, which
eager code else computes whole (`ops/whole.py`), are composed meanwhile, or all of them (`composes`): the same
mathematics in more ops, so results may differ by rounding. Who runs code a second time composes as the first time
(`composing_as`). Compiled code is not seen: it runs no ops.
Method: the function that runs an op is replaced, in the modules that call it, while somebody looks. Nothing is asked
otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import get_ident
from typing import Any, TypeAlias

from compiler_core.ops import registry
from compiler_core.ops.registry import Array, Attrs, Op
from compiler_core.ops.whole import Composite
from compiler_core.records import dataclass
from compiler_core.tensor import tensor as tensors
from compiler_core.tensor.tensor import Tensor

Observer: TypeAlias = Callable[[Op, Sequence[Array], Attrs, Array], None]
Instead: TypeAlias = Callable[[Op, Sequence[Array], Attrs], Array | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    observer: Observer | None
    instead: Instead | None
    composes: int
    is_all: bool  # what those before it compose does not count


NONE, PRODUCTS, ALL = range(3)  # which composites are composed
_HIDE_PRODUCTS = (
    *("linear", "lowered_linear", "affine", "lowered_affine", "attention", "convolution", "lowered_convolution"),
    "recurrent_layer",
)
_run, _whole = registry.run_eager, Tensor.__whole__
_lock = threading.Lock()
_observers: dict[int, list[_Look]] = {}  # by thread
_inside = threading.local()


@contextmanager
def observed(
    observer: Observer | None = None, *, instead: Instead | None = None, composes: int = PRODUCTS, is_all: bool = False
) -> Iterator[None]:
    """Within the block, in this thread, `observer` sees every op, and `instead` is asked before it."""
    thread, look = get_ident(), _Look(observer, instead, composes, is_all)
    with _lock:
        _observers.setdefault(thread, []).append(look)
        _look()
    try:
        yield
    finally:
        with _lock:
            _observers[thread].remove(look)
            if not _observers[thread]:
                del _observers[thread]
            _look()


def composed_now() -> int:
    """Which composites this thread composes."""
    found = NONE
    for look in reversed(_observers.get(get_ident(), ())):
        found = max(found, look.composes)
        if look.is_all:
            break
    return found


def composing_as(which: int) -> AbstractContextManager[None]:
    """Within the block, in this thread, these composites are composed; and those that who looks in it wants."""
    return nullcontext() if which == composed_now() else observed(composes=which, is_all=True)


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
        inner: list[Observer] = []
        for look in reversed(mine):
            result = None if look.instead is None else look.instead(op, arrays, attrs)
            if result is not None:
                break
            inner += [look.observer] if look.observer is not None else []
        else:
            result = _run(op, arrays, attrs)
        for observer in reversed(inner):
            observer(op, arrays, attrs, result)
        return result
    finally:
        _inside.op = None


def _composed(composite: Composite, operands: Sequence[Any], attrs: Attrs) -> Tensor | None:
    which = composed_now()
    if which == ALL or (which == PRODUCTS and composite.name in _HIDE_PRODUCTS):
        return None
    return _whole(composite, operands, attrs)  # type: ignore[arg-type]
