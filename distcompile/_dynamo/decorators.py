"""torch._dynamo's marks of sizes: which dims of a tensor change from call to call, and which do not.

In: tensors. Out: the same, marked (`compiler_core/capture/marks.py` says what capture makes of that). A mark is of the
handle, not of the data: a view, a clone, a result has none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.breaking import breaks_graph
from compiler_core.capture import marks
from compiler_core.capture.guards.module_protocol import is_module_class
from compiler_core.errors import ArgumentTypeError, IndexError_
from compiler_core.log import warn_once
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor

__all__ = ["mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic"]

_ONCE = breaks_graph("a dim is marked", "mark tensors before the compiled function is called")


@_ONCE
def mark_dynamic(
    t: Any,
    index: int | Sequence[int],
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: Sequence[Callable[..., bool]] | None = None,
) -> None:
    """One graph shall serve all sizes of these dimensions of `t`, from `min` to `max`, both included; but 0 and 1.

    Code that is right for one size alone raises ConstraintViolationError. With a range, so does code that is right for
    a part of it, and a call with a size outside. hint_override, specialize_on: no effect; kernels are made for each
    size by itself.
    """
    _mark(t, marks.DYNAMIC, index, min, max)


@_ONCE
def maybe_mark_dynamic(t: Any, index: int | Sequence[int]) -> None:
    """One graph may serve all sizes of these dimensions of `t`; one that code asks for becomes a constant."""
    _mark(t, marks.MAYBE, index)


@_ONCE
def mark_unbacked(
    t: Any,
    index: int | Sequence[int],
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: Sequence[Callable[..., bool]] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """As `mark_dynamic` if `strict`, else as `maybe_mark_dynamic`, which is said once: what code asks of the size is
    guarded, where torch breaks the graph or refuses it, and 0 and 1 are graphs of their own. min, max: no effect
    without `strict`. shape_id: no effect; sizes are equal where code compares them."""
    other = "mark_dynamic" if strict else "maybe_mark_dynamic"
    warn_once(
        f"mark_unbacked {strict}",
        f"mark_unbacked does what {other} does: sizes 0 and 1 are captured by themselves, and what code asks of the"
        " size is guarded",
        stacklevel=3,
    )
    _mark(t, marks.STRICT if strict else marks.UNBACKED, index, min, max)


def mark_static(t: Any, index: int | Sequence[int] | None = None) -> Any:
    """These sizes of `t` are constants of a graph, all of them without `index`, whatever compile(dynamic=) says.

    `mark_dynamic` counts for more. In captured code: they are constants from there on. A class of Modules is given
    back: what a module holds is a constant here.
    """
    if is_module_class(t):
        return t
    if not isinstance(t, Tensor):
        raise ArgumentTypeError("mark_static() takes a tensor or a class of Modules", got=type(t).__name__)
    dims = range(t.ndim) if index is None else _dims(t, index)
    if current_trace() is not None:
        for dim in dims:
            operator.index(t.shape[dim])
        return None
    marks.add(t, marks.STATIC, dims)
    return None


def mark_static_address(t: Any, guard: bool = False) -> None:
    """A promise that `t` stays where it is. Nothing here rests on where a tensor lies."""


def _mark(t: Any, name: str, index: int | Sequence[int], least: int | None = None, most: int | None = None) -> None:
    dims = _dims(t, index)
    marks.add(t, name, dims)
    if name in (marks.DYNAMIC, marks.STRICT):
        marks.add(t, marks.RANGES, [marks.DimRange(dim, least, most) for dim in dims])


def _dims(t: Any, index: int | Sequence[int]) -> list[int]:
    """The dims that `index` names. Raises IndexError_ where `t` has none of that number."""
    given = [operator.index(dim) for dim in ([index] if isinstance(index, int) else index)]
    for dim in given:
        if not -t.ndim <= dim < t.ndim:
            raise IndexError_(f"dim {dim} is marked, of a tensor of {t.ndim} dims")
    return [dim % t.ndim for dim in given]
