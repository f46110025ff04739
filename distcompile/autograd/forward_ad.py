"""torch.autograd.forward_ad: forward mode. Tensors carry tangents inside a `dual_level`.

In: primals and tangents. Out: torch's names. How operations carry tangents on: compiler_core/forward/duals.py. There is
one level at a time, as in torch. A compiled function that is called in a level runs eager there.
"""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from types import TracebackType
from typing import NamedTuple

from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.forward import duals
from compiler_core.forward.level import Level, enter, leave
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives. tangent: None where there is none."""

    primal: Tensor
    tangent: Tensor | None


class _Entered(threading.local):
    """level: the one that this thread has entered here."""

    level: Level | None = None


_entered = _Entered()


def enter_dual_level() -> int:
    """Begin a level. Gives its number, 0. Raises AutogradError in one."""
    if current_trace() is not None:
        raise GraphBreak("a forward mode level is entered", where=user_location())
    if _entered.level is not None:
        raise AutogradError("Nested forward mode AD is not supported at the moment")
    _entered.level = enter(duals.begin)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: tensors carry no tangents any more."""
    if _entered.level is None:
        raise AutogradError("Dual level must be a positive number.")
    if level not in (None, 0):
        raise AutogradError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    leave(_entered.level, duals.end)
    _entered.level = None


class dual_level(ContextDecorator):
    """A level, as a block or around a function."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that carries `tangent`, which has its shape. Raises AutogradError outside of a level."""
    return duals.make_dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor without its tangent, and the tangent, which can be differentiated."""
    return UnpackedDualTensor(*duals.unpack_dual(tensor))
