"""Sums, products and conversions of 16-bit floats in eager code on a CUDA device, by one kernel each.

In: the operands of an op (add, sub, mul, div, cast), as ops/on_device.py has them: dense, and one of them may be a
row, or a number, that is repeated. Out: the result; or None, and then the op's own rule computes it with CuPy.
Why: that rule converts both operands to f32, which takes four launches and moves five times the bytes. The numbers are
the same. Kernels: device_narrow.cu. Each kind is used once it has given the rule's numbers on the CPU, for each dtype
(device_proof.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device_kernels import F32, I32, I64, DeviceKernels, kernels
from compiler_core.eager.device_proof import is_right_once
from compiler_core.ops.on_device import NARROW
from compiler_core.ops.registry import OPS, Array

_NARROW = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
_WIDE = np.dtype(np.float32)
_JOINS = {"add": 0, "sub": 1, "mul": 2, "div": 3}
_TURNS = ("add", "mul")  # whose operands may change places
VECTOR, VECTOR_NBYTES = 8, 16  # elements that are moved at once, and the bytes on which they start
BLOCKS = 1 << 15


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    x = operands[0]
    narrow = attrs["dtype"].numpy if op.name == "cast" and x.dtype == _WIDE else x.dtype
    if narrow.itemsize != 2 or narrow not in _NARROW:
        return None
    made = _plan(xp, op.name, operands, attrs)
    k = None if made is None else kernels(narrow, "device_narrow.cu")
    if k is None or not _is_right(op.name, k):
        return None
    return made(k)  # type: ignore[no-any-return]


def _plan(xp: Any, name: str, operands: Sequence[Array], attrs: dict[str, Any]) -> Any:
    """What computes it with kernels; None: they do not take it."""
    if name in _JOINS:
        return _joined(xp, name, *operands) if operands[0].size else None
    (x,) = operands
    if not (x.size and x.flags.c_contiguous):
        return None
    return _converted(xp, x, attrs["dtype"].numpy)


def _joined(xp: Any, name: str, a: Array, b: Array) -> Any:
    """a op b; one of them may repeat."""
    if name in _TURNS and not (cuda.is_array(a) and a.flags.c_contiguous):
        a, b = b, a
    period = _period(b)
    if not (period and cuda.is_array(a) and a.flags.c_contiguous):
        return None
    if not cuda.is_array(b):
        return lambda k: joined_with(k, name, a, float(b))
    return lambda k: _join(k, name, a, _at(b), period, 0.0, _starts_well(a, b))


def joined_with(k: DeviceKernels, name: str, a: Array, number: float) -> Array:
    """a op number, which is not rounded to 16 bits, of a dense array."""
    return _join(k, name, a, None, VECTOR, number, _starts_well(a))


def _join(k: DeviceKernels, name: str, a: Array, b: Any, period: int, number: float, aligned: bool) -> Array:
    """a op what repeats from address b on, or the number."""
    out: Array = cuda.module().empty(a.shape, a.dtype)
    is_wide = aligned and not (period % VECTOR or a.size % VECTOR)
    k.all("join", _steps(a.size, is_wide), a, b, out, I64(a.size), I64(period), F32(number), I32(_JOINS[name]),
          I32(is_wide), blocks=BLOCKS)  # fmt: skip
    return out


def widened_sum(wide: Array, narrow: Array) -> Array | None:
    """wide + narrow, of f32 and of 16-bit floats, dense and of one shape; None where there are no kernels."""
    k = kernels(narrow.dtype, "device_narrow.cu")
    if k is None or not is_right_once("16-bit add to f32", k, lambda: _other_sum(k)):
        return None
    return _widened_sum(k, wide, narrow)


def _widened_sum(k: DeviceKernels, wide: Array, narrow: Array) -> Array:
    out: Array = cuda.module().empty(wide.shape, _WIDE)
    is_wide = _starts_well(wide, narrow) and not wide.size % VECTOR
    k.all("add_wide", _steps(wide.size, is_wide), wide, narrow, out, I64(wide.size), I32(is_wide), blocks=BLOCKS)
    return out


def narrowed(x: Array, dtype: Any) -> Array | None:
    """f32 as 16-bit floats; None where no kernels take it."""
    k = kernels(dtype, "device_narrow.cu")
    made = _converted(cuda.module(), x, dtype) if x.size and x.flags.c_contiguous else None
    return None if made is None or k is None or not _is_right("cast", k) else made(k)


def _period(x: Array) -> int:
    """After how many elements a dense array of this shape begins anew with the first; 0 if it does not.

    Of a number, which repeats, VECTOR: it is read from nowhere.
    """
    if not cuda.is_array(x):
        return VECTOR
    step = x.itemsize
    for d in reversed(range(x.ndim)):
        if x.shape[d] != 1 and x.strides[d] != step:
            outer = [stride for n, stride in zip(x.shape[: d + 1], x.strides[: d + 1]) if n != 1]
            return 0 if any(outer) else step // x.itemsize
        step *= x.shape[d]
    return x.size


def _converted(xp: Any, x: Array, dtype: Any) -> Any:
    if _WIDE not in (x.dtype, dtype):
        return None

    def made(k: DeviceKernels) -> Array:
        out: Array = xp.empty(x.shape, dtype)
        is_wide = not x.size % VECTOR and _starts_well(x)
        name = "widen" if dtype == _WIDE else "narrow"
        k.all(name, _steps(x.size, is_wide), x, out, I64(x.size), I32(is_wide), blocks=BLOCKS)
        return out

    return made


def _starts_well(*arrays: Array) -> bool:
    return not any(x.data.ptr % VECTOR_NBYTES for x in arrays)  # type: ignore[attr-defined]


def _at(x: Any) -> Any:
    """Its address: of one that repeats, of which CuPy would hand over no more."""
    return np.uint64(x.data.ptr)


def _steps(n: int, is_wide: bool) -> int:
    return n // VECTOR if is_wide else n


# ---- once


def _is_right(name: str, k: DeviceKernels) -> bool:
    return is_right_once(f"16-bit {name}", k, lambda: _difference(name, k))


def _difference(name: str, k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    xp, rng = cuda.module(), np.random.default_rng(5)
    x, row = rng.normal(size=(300, 24)).astype(k.dtype), rng.normal(size=24).astype(k.dtype)
    others: dict[str, list[tuple[Sequence[Array], dict[str, Any]]]] = {
        "cast": [((x,), {"dtype": of(_WIDE)}), ((x.astype(np.float32) * 1.01,), {"dtype": of(k.dtype)})],
    }
    for given, attrs in others.get(name, [((x, np.broadcast_to(row, x.shape)), {}), ((x, x[::-1].copy()), {})]):
        there = tuple(_put(xp, array) for array in given)
        made = _plan(xp, name, there, attrs)
        expected = OPS[name].eager(np, *given, **attrs)
        if made is None or cuda.fetch(made(k)).tobytes() != np.asarray(expected).tobytes():
            return "other numbers than the CPU"
    return ""


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
