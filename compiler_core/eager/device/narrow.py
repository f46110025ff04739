"""Sums, products and conversions of f32 and 16-bit floats in eager code on a CUDA device, by one kernel each.

In: the operands of an op (add, sub, mul, div, cast), as ops/on_device.py has them: dense, in any order of their dims,
and one of them may be repeated: a row, a number, a number a channel; or in any way, with gaps, in up to six dims. Out:
the result, which lies as they do; or None, and then the op's own rule computes it with CuPy. int64 and a number are
integers.py's.
Why: that rule converts 16-bit floats to f32, which takes four launches and moves five times the bytes; and CuPy's
kernels move an element at a time, along the last dim. The numbers are the same. Kernels: narrow.cu. Each kind is used
once it has given the rule's numbers on the CPU, for each dtype (proof.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device.boxes import boxed
from compiler_core.eager.device.integers import with_number
from compiler_core.eager.device.kernels import F32, I32, I64, DeviceKernels, kernels
from compiler_core.eager.device.orders import Order, as_it_lies, as_seen, last, lies_last, order_of, row_major
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.on_device import NARROW
from compiler_core.ops.registry import OPS, Array, run_eager
from compiler_core.runtime.cuda.replay import Address, Known, empty, replayed, spoil

_NARROW = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
_WIDE = np.dtype(np.float32)
_JOINS = {"add": 0, "sub": 1, "mul": 2, "div": 3}
_SIGNS = {"add": 1, "sub": -1}
_TURNS = ("add", "mul")  # whose operands may change places
VECTOR, VECTOR_NBYTES = 8, 16  # elements that are moved at once, and the bytes on which they start
BLOCKS = 1 << 15


_known: Known = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    x, is_join = operands[0], op.name in _JOINS
    narrow = x.dtype if is_join or x.dtype != _WIDE else attrs["dtype"].numpy
    if narrow not in _NARROW and not (is_join and narrow == _WIDE):
        sign = _SIGNS.get(op.name)
        return None if sign is None or not cuda.is_array(x) else with_number(x, operands[1], sign)
    told, compute = (op.name, *attrs.values()), lambda *operands: _run(xp, op.name, narrow, operands, attrs)
    found: Array | None = replayed(_known, told, operands, compute)
    return found


def _run(xp: Any, name: str, narrow: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    made = _plan(xp, name, operands, attrs)
    k = None if made is None else kernels(narrow, "narrow.cu")
    if k is None or not _is_right(name, k):
        return None
    return made(k)  # type: ignore[no-any-return]


def _plan(xp: Any, name: str, operands: Sequence[Array], attrs: dict[str, Any]) -> Any:
    """What computes it with kernels; None: they do not take it."""
    if name in _JOINS:
        return _joined(xp, name, *operands) if operands[0].size else None
    (x,) = operands
    return _converted(xp, x, attrs["dtype"].numpy) if x.size else None


def _joined(xp: Any, name: str, a: Array, b: Array) -> Any:
    """a op b; either may repeat. The result lies as a does, or with channels last, as b."""
    order = order_of(a) if cuda.is_array(a) else None
    if name in _TURNS and order is None:
        other = order_of(b) if cuda.is_array(b) else None
        if other is not None or not cuda.is_array(a):
            a, b, order = b, a, other
    if not cuda.is_array(a):
        return None
    if not cuda.is_array(b):
        return lambda k: joined_with(k, name, a, float(b))
    if order is None:
        return lambda k: _join_any(k, name, a, b, 0.0, _order_with_gaps(a))
    if a.flags.c_contiguous and lies_last(b):
        order = last(a.ndim)
    repeats = repeats_of(b.transpose(order))
    if repeats is None:
        if order_of(b) is None:
            return lambda k: _join_any(k, name, a, b, 0.0, order)
        repeats = b.size, 1, b.size
        b = as_it_lies(b, order)
    given = as_it_lies(a, order)
    return lambda k: as_seen(_join(k, name, given, _at(b), repeats, 0.0, _starts_well(given, b)), order)


def joined_with(k: DeviceKernels, name: str, a: Array, number: float) -> Array:
    """a op number, which is not rounded to 16 bits. The result lies as a does."""
    order = order_of(a)
    if order is None:
        order = _order_with_gaps(a)
        made = _join_any(k, name, a, None, number, order) if _is_right(name, k) else None
        if made is not None:
            return made
    given = as_it_lies(a, order)
    return as_seen(_join(k, name, given, None, (a.size, 1, 1), number, _starts_well(given)), order)


def _order_with_gaps(x: Array) -> Order:
    """In which the result of an array that is not dense is to lie, so that it is read along memory."""
    dims = range(x.ndim)
    return tuple(dims if x.strides[-1] == x.itemsize else sorted(dims, key=lambda d: -abs(x.strides[d])))


def _join_any(k: DeviceKernels, name: str, a: Array, b: Array | None, number: float, order: Order) -> Array | None:
    """a op b, or the number, of arrays that lie in any way; None: in too many dims."""
    given = [x.transpose(order) for x in (a, b) if x is not None]
    found = boxed(*given)
    if found is None:
        return None
    out: Array = empty(given[0].shape, a.dtype)
    wide = 2 if found.wide and b is None else found.wide
    k.all("join_any", found.steps, _at(a), None if b is None else _at(b), out, I64(found.steps), found.box, found.dims,
          F32(number), I32(_JOINS[name]), I32(wide), blocks=BLOCKS)  # fmt: skip
    return as_seen(out, order)


def add_to_rows(rows: Array, row: Array) -> None:
    """Add a row to each of a dense array, which is written over; both of 16-bit floats."""
    row = row_major(row)
    k, n = kernels(rows.dtype, "narrow.cu"), row.size
    if k is None or not _is_right("add", k):
        spoil()
        rows[...] = run_eager(OPS["add"], [rows, cuda.module().broadcast_to(row, rows.shape)], {})
        return
    _join(k, "add", rows, _at(row), (n, 1, n), 0.0, _starts_well(rows, row), rows)


Repeats = tuple[int, int, int]  # run, period, near: see narrow.cu


def _join(
    k: DeviceKernels, name: str, a: Array, b: Any, repeats: Repeats, number: float, aligned: bool, out: Any = None
) -> Array:
    """a, dense, op what repeats so from address b on, or the number; written to `out`, if it is given."""
    run, period, near = repeats
    made: Array = empty(a.shape, a.dtype) if out is None else out
    vector = VECTOR_NBYTES // a.itemsize
    fits = 0 if near % vector else 1
    if near == 1 and (period == 1 or not run % vector):
        fits = 2
    is_wide = fits if aligned and not a.size % vector else 0
    k.all("join", a.size // vector if is_wide else a.size, a, b, made, I64(a.size), *map(I64, repeats), F32(number),
          I32(_JOINS[name]), I32(is_wide), blocks=BLOCKS)  # fmt: skip
    return made


def widened_sum(wide: Array, narrow: Array) -> Array | None:
    """wide + narrow, of f32 and of 16-bit floats, dense and of one shape; None where there are no kernels."""
    k = kernels(narrow.dtype, "narrow.cu")
    if k is None or not is_right_once("16-bit add to f32", k, lambda: _other_sum(k)):
        return None
    return _widened_sum(k, wide, narrow)


def _widened_sum(k: DeviceKernels, wide: Array, narrow: Array) -> Array:
    out: Array = empty(wide.shape, _WIDE)
    is_wide = _starts_well(wide, narrow) and not wide.size % VECTOR
    k.all("add_wide", _steps(wide.size, is_wide), wide, narrow, out, I64(wide.size), I32(is_wide), blocks=BLOCKS)
    return out


def narrowed(x: Array, dtype: Any) -> Array | None:
    """f32 as 16-bit floats; None where no kernels take it."""
    found: Array | None = replayed(_known, ("narrowed", dtype), (x,), lambda x: _narrowed(x, dtype))
    return found


def _narrowed(x: Array, dtype: Any) -> Array | None:
    k = kernels(dtype, "narrow.cu")
    made = _converted(cuda.module(), x, dtype) if x.size else None
    return None if made is None or k is None or not _is_right("cast", k) else made(k)


def repeats_of(x: Array) -> Repeats | None:
    """How a dense array of this shape is made of x's elements, which repeat over dims; None: in another way."""
    step, sizes = x.itemsize, [1, 1, 1, 1]  # from the last dim on: what follows, repeats, follows, repeats
    place = 0
    for n, stride in zip(reversed(x.shape), reversed(x.strides)):
        if n == 1:
            continue
        place += (stride == 0) != place % 2  # on to what is of the other kind
        if place > 3 or (stride and stride != step):
            return None
        sizes[place] *= n
        step *= n if stride else 1
    near, between, period, _ = sizes
    return near * between, period, near


def _converted(xp: Any, x: Array, dtype: Any) -> Any:
    """As `dtype`, lying as x does."""
    order = order_of(x)
    if _WIDE not in (x.dtype, dtype):
        return None
    if order is None:
        return lambda k: _convert_any(k, x, dtype, _order_with_gaps(x))
    given = as_it_lies(x, order)

    def made(k: DeviceKernels) -> Array:
        out: Array = empty(given.shape, dtype)
        is_wide = not x.size % VECTOR and _starts_well(x)
        name = "widen" if dtype == _WIDE else "narrow"
        k.all(name, _steps(x.size, is_wide), given, out, I64(x.size), I32(is_wide), blocks=BLOCKS)
        return as_seen(out, order)

    return made


def _convert_any(k: DeviceKernels, x: Array, dtype: Any, order: Order) -> Array | None:
    """The same of an array that lies in any way; None: in too many dims."""
    given = x.transpose(order)
    found = boxed(given, is_moved=False)
    if found is None:
        return None
    out: Array = empty(given.shape, dtype)
    name = "widen_any" if dtype == _WIDE else "narrow_any"
    k.all(name, found.steps, _at(x), out, I64(found.steps), found.box, found.dims, blocks=BLOCKS)
    return as_seen(out, order)


def _starts_well(*arrays: Array) -> bool:
    return not any(x.data.ptr % VECTOR_NBYTES for x in arrays)  # type: ignore[attr-defined]


def _at(x: Any) -> Any:
    """Its address: of one that repeats, of which CuPy would hand over no more."""
    return Address(x.data.ptr)


def _steps(n: int, is_wide: bool) -> int:
    return n // VECTOR if is_wide else n


# ---- once


def _is_right(name: str, k: DeviceKernels) -> bool:
    return is_right_once(f"op {name}", k, lambda: _difference(name, k))


def _difference(name: str, k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    xp, rng = cuda.module(), np.random.default_rng(5)
    x, row = rng.normal(size=(300, 24)).astype(k.dtype), rng.normal(size=24).astype(k.dtype)
    others: dict[str, list[tuple[Sequence[Array], dict[str, Any]]]] = {
        "cast": [((x,), {"dtype": of(_WIDE)}), ((x.astype(np.float32) * 1.01,), {"dtype": of(k.dtype)})],
    }
    for given, attrs in others.get(name, [((x, np.broadcast_to(row, x.shape)), {}), ((x, x[::-1].copy()), {})]):
        there = [_put(xp, array) for array in given]
        for part in _PARTS:
            made = _plan(xp, name, [x[part] for x in there], attrs)
            expected = OPS[name].eager(np, *[x[part] for x in given], **attrs)
            if made is None or cuda.fetch(made(k)).tobytes() != np.asarray(expected).tobytes():
                return "other numbers than the CPU"
    return ""


_PARTS = (slice(None), np.s_[:, 8:], np.s_[::2, 1:])  # dense, and with gaps: of pieces of 16 bytes, and of elements


def _other_sum(k: DeviceKernels) -> str:
    for n in (240, 333):
        given = np.random.default_rng(5).normal(size=(2, n)).astype(np.float32)
        wide, narrow = given[0], given[1].astype(k.dtype)
        there = (cuda.put(array, cuda.current()) for array in (wide, narrow))
        if cuda.fetch(_widened_sum(k, *there)).tobytes() != (wide + narrow.astype(np.float32)).tobytes():
            return "other numbers than the CPU"
    return ""


def _put(xp: Any, array: Array) -> Any:
    if array.flags.c_contiguous:
        return cuda.put(array, cuda.current())
    return xp.broadcast_to(cuda.put(array[0].copy(), cuda.current()), array.shape)


NARROW.fill(run)
