"""torch._foreach_*: one operation on each tensor of a list. What optimizers and gradient clipping are written with.

In: lists of tensors; a further operand is a list as long, or one number or tensor for all. Out: a list; the forms that
end in `_` write into the tensors of the first list, which they return. Each name is one entry of a table, and a loop
over our ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import distcompile as dc
from compiler_core.errors import ShapeError
from compiler_core.memory_format import strided
from compiler_core.tensor.methods.inplace import in_place
from compiler_core.tensor.tensor import Tensor
from distcompile.surface.names import FOREACH_FORMS

Each = Callable[..., Any]


def _at_least(x: Tensor, bound: Any) -> Any:
    return dc.maximum(x, bound) if isinstance(bound, Tensor) else dc.clamp(x, min=bound)


def _at_most(x: Tensor, bound: Any) -> Any:
    return dc.minimum(x, bound) if isinstance(bound, Tensor) else dc.clamp(x, max=bound)


def _norm(x: Tensor, ord: float = 2, dtype: Any = None) -> Any:
    return dc.linalg.vector_norm(x, ord, dtype=dtype)


def _powsum(x: Tensor, ord: float = 2, dtype: Any = None) -> Any:
    return (x if dtype is None else x.to(dtype)).abs().pow(ord).sum()


# name -> the operation on one tensor, and the names by which each further operand may be given
_OTHER = ("other", "scalar", "scalars")
_VALUE = ("value", "scalars")
_OF_SEVERAL: dict[str, tuple[Each, tuple[tuple[str, ...], ...]]] = {
    **{name: (getattr(dc, name), (_OTHER,)) for name in ("add", "sub", "mul", "div")},
    "clamp_min": (_at_least, (_OTHER,)),
    "clamp_max": (_at_most, (_OTHER,)),
    "maximum": (_at_least, (_OTHER,)),
    "minimum": (_at_most, (_OTHER,)),
    "pow": (dc.pow, (("exponent",),)),
    "lerp": (dc.lerp, (("tensors1",), ("weight", "weights"))),
    "addcmul": (lambda x, a, b, value=1: dc.addcmul(x, a, b, value=value), (("tensor1",), ("tensor2",), _VALUE)),
    "addcdiv": (lambda x, a, b, value=1: dc.addcdiv(x, a, b, value=value), (("tensor1",), ("tensor2",), _VALUE)),
    "zero": (dc.zeros_like, ()),
    "copy": (lambda x, source, non_blocking=False: source.to(x.dtype).expand_as(x), (("src",),)),
    "clone": (lambda x, memory_format=None: x.clone(), ()),
    "max": (dc.amax, ()),
    "mm": (dc.mm, (("mat2",),)),
    "norm": (_norm, (("ord",), ("dtype",))),
    "powsum": (_powsum, (("ord",), ("dtype",))),
}
_NAMES = {form.removeprefix("_foreach_").rstrip("_") for form in FOREACH_FORMS}
TABLE = {name: (getattr(dc, name), ()) for name in _NAMES - _OF_SEVERAL.keys()} | _OF_SEVERAL


def _spread(operand: Any, count: int, *, as_numbers: bool) -> Sequence[Any]:
    """One operand for each of `count` tensors. Raises ShapeError (a RuntimeError) for a list of another length."""
    if as_numbers and isinstance(operand, Tensor) and operand.ndim == 1:
        operand = operand.tolist()
    if not isinstance(operand, (list, tuple)):
        return [operand] * count
    if len(operand) != count:
        raise ShapeError(f"Tensor lists must have the same number of tensors, got {count} and {len(operand)}")
    return operand


def _rows(name: str, first: Any, operands: tuple[Any, ...], options: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What to call the operation with, for each tensor; takes named operands out of `options`."""
    slots = TABLE[name][1]
    given = list(operands)
    for names in slots[len(given) :]:
        found = next((n for n in names if n in options), None)
        if found is None:
            break
        given.append(options.pop(found))
    count = len(first) if isinstance(first, (list, tuple)) else len(given[0])
    if not count:
        raise ShapeError("Tensor list must have at least one tensor.")
    as_numbers = name in ("addcmul", "addcdiv")
    columns = [_spread(operand, count, as_numbers=as_numbers) for operand in (first, *given)]
    return list(zip(*columns))


def _out_of_place(name: str) -> Each:
    operation = TABLE[name][0]

    def foreach(self: Any, *operands: Any, **options: Any) -> list[Any]:
        rows = _rows(name, self, operands, options)
        return [operation(*row, **options) for row in rows]

    return foreach


def _in_place(name: str) -> Each:
    operation = in_place(TABLE[name][0])

    def foreach(self: Any, *operands: Any, **options: Any) -> Any:
        for row in _rows(name, self, operands, options):
            if row[0].layout is strided:
                operation(*row, **options)
            else:
                getattr(row[0], f"{name}_")(*row[1:], **options)
        return self

    return foreach


for _form in FOREACH_FORMS:
    _name = _form.removeprefix("_foreach_").rstrip("_")
    _is_twin = _form.endswith("_")
    _function = (_in_place if _is_twin else _out_of_place)(_name)
    _function.__name__ = _function.__qualname__ = _form
    _function.__doc__ = f"`{_name}` of each tensor of a list{' in place' if _is_twin else ''}."
    globals()[_form] = _function
__all__ = sorted(FOREACH_FORMS)
