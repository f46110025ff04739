"""Who overrides what: which classes have a `__torch_function__` of their own, the thread's modes, what is switched off.

In: types, modes that are entered and left. Out: `overrides(kind)`; `plain`, the types that certainly do not override,
so that a call whose arguments are all of such types needs no look at any; `thread_overrides`, the thread's own state;
`other_layouts`, who computes a call that nobody took, for tensors that are not strided.
Invariant: `plain` is empty while a mode is on in any thread, and holds only types that were looked at; so one test of
membership tells both. What is added to a class later is not seen.
"""

from __future__ import annotations

import threading
from types import EllipsisType, NoneType
from typing import Any, NamedTuple

import numpy as np

from compiler_core.device import Device
from compiler_core.dtype import DType


class Now(NamedTuple):
    """modes: those that are on in a thread, the innermost last. off: nothing is handed over. subclasses_off: nothing is
    handed to classes of arguments, only to modes."""

    modes: tuple[Any, ...] = ()
    off: bool = False
    subclasses_off: bool = False


IDLE = Now()


class ThreadOverrides(threading.local):
    """The thread's state. skips: the next call is computed, whoever overrides."""

    now: Now = IDLE
    skips: bool = False


thread_overrides = ThreadOverrides()
_lock = threading.Lock()
_modes_on = 0
_seen: set[type] = {
    *(bool, int, float, complex, str, bytes, NoneType, EllipsisType, slice, range, type, DType, Device),
    *(np.ndarray, np.float32, np.float64, np.int64, np.bool_),
}
plain: set[type] = set(_seen)
NOT_CONVERTED: set[Any] = set()  # functions whose results stay plain Tensors for instances of subclasses
other_layouts: dict[type, Any] = {}  # classes of Tensors that no strided code computes with, and what does


def disabled(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """A class whose `__torch_function__` is this does not override: what functions give is a plain Tensor."""
    before = thread_overrides.now
    thread_overrides.now = before._replace(subclasses_off=True)
    try:
        return func(*args, **(kwargs or {}))
    finally:
        thread_overrides.now = before


def method_of(kind: type) -> Any:
    """The `__torch_function__` of a class; None if it has none, or one that is disabled."""
    found = getattr(kind, "__torch_function__", None)
    return None if found is disabled else found


def is_tensor(kind: type) -> bool:
    """Whether it is Tensor itself, the one class that says how a handle is made."""
    return "_from_cell" in vars(kind)


def note_plain(kind: type) -> None:
    """Remember that `kind` does not override."""
    with _lock:
        _seen.add(kind)
        if not _modes_on:
            plain.add(kind)


def become(now: Now) -> None:
    """This thread's state is `now` from here on."""
    global _modes_on
    by = len(now.modes) - len(thread_overrides.now.modes)
    thread_overrides.now = now if any(now) else IDLE
    if not by:
        return
    with _lock:
        _modes_on += by
        if _modes_on:
            plain.clear()
        else:
            plain.update(_seen)
