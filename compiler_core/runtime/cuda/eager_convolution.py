"""Convolutions of eager code on a CUDA device by cuDNN: f32 and 16-bit floats of two spatial dims.

In: a convolution's op, of ops/convolution/op.py, CuPy's arrays, its attributes. Out: an array, of 16-bit floats one
that lies with channels last; or None where cuDNN is missing, switched off, or refuses: the op's own definition is then
run (columns and a product). So lie operands: what does not is copied, as engines of tensor cores, which read channels
last, would do. f32 is row-major, and computed in tf32 where that is permitted.
The engine is the first that the heuristics propose, of those whose bits repeat. Of convolutions in groups of 16-bit
floats (`cudnn.benchmark`: of all of these) it is the fastest, measured at the first call and kept in the artefact
cache, as compiled code's is.
Asked for by name (ops/on_device.py: DEFINITIONS).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import log
from compiler_core.dtype import DType, float32, of
from compiler_core.eager.device.orders import as_it_lies, as_seen
from compiler_core.graph.print import print_attrs
from compiler_core.meta import TensorMeta
from compiler_core.ops.convolution.last import to_last
from compiler_core.ops.on_device import CONVOLUTION
from compiler_core.ops.routine import Strided, contiguous
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda import cudnn
from compiler_core.runtime.cuda.replay import Known, empty, replayed

Array = Any
_LAST, _FIRST = to_last(4), (0, 1, 2, 3)


_known: Known = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    found: Array | None = replayed(
        _known, (op.name, *attrs.values()), operands, lambda *operands: _run(op, operands, attrs)
    )
    return found


def _run(op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    first, second = operands
    dtype = of(first.dtype)
    if dtype not in cudnn.EAGER_TYPES or first.ndim != 4 or not cudnn.is_enabled() or cudnn.why_not():
        return None
    if not (first.size and second.size):
        return None
    key = (op.name, first.shape, second.shape, dtype, tuple(attrs.items()))
    found = cudnn.eager_plan(
        key,
        lambda: _call(op, [TensorMeta(array.shape, dtype) for array in operands], attrs),
        is_measured=(attrs["groups"] > 1 or cudnn.measures_all()) and dtype in cudnn.TYPES,
    )
    if isinstance(found, str):
        log.emit("fusion", f"{op.name} is columns and a product: {found}")
        return None
    order, shape = order_for(dtype), found.shape
    if not math.prod(shape):
        return None
    out = empty(shape if order is _LAST else (shape[0], shape[3], shape[1], shape[2]), first.dtype)
    arrays = [*(_lying(array, order) for array in operands), out]
    space: Any = empty((max(found.workspace, 1),), "u1")
    cudnn.execute(found.address, [array.data.ptr for array in arrays], space.data.ptr)
    return as_seen(out, order)


def order_for(dtype: DType) -> tuple[int, ...]:
    """How arrays of this dtype lie."""
    return _FIRST if dtype is float32 else _LAST


def _call(op: Any, metas: list[TensorMeta], attrs: dict[str, Any]) -> Callback:
    """Of cuDNN, for operands like these. Raises ShapeError where they do not fit."""
    metas = [*metas, op.infer(*metas, **attrs)]
    layouts = tuple(_last_of(contiguous(meta)) if meta.dtype is float32 else _dense_last(meta) for meta in metas)
    return Callback(op.name.replace("convolution", "convolution_cudnn"), print_attrs(attrs), layouts)


def _last_of(layout: Strided) -> Strided:
    """The same, its dims named with channels last."""
    return Strided(layout.dtype, *(tuple(sizes[d] for d in _LAST) for sizes in (layout.shape, layout.strides)))


def _dense_last(meta: TensorMeta) -> Strided:
    return contiguous(meta.with_shape(tuple(meta.shape[d] for d in _LAST)))


def _lying(array: Array, order: tuple[int, ...]) -> Array:
    """`array` as plans expect it, on a multiple of ALIGNMENT bytes (a batch's tail may start anywhere)."""
    made: Any = as_it_lies(array, order)
    return made.copy() if made.data.ptr % cudnn.ALIGNMENT else made


CONVOLUTION.fill(run)
