"""Convolutions of eager code on a CUDA device by cuDNN: 16-bit floats of two spatial dims, channels last in memory.

In: a convolution's op, of ops/convolution/op.py, CuPy's arrays, its attributes. Out: an array that lies with channels
last; or None where cuDNN is missing, switched off, or refuses: the op's own definition is then run (columns and a
product). So lie operands: what does not is copied, as engines of tensor cores, which read channels last, would do.
The engine is the first that the heuristics propose, of those whose bits repeat; nothing is measured.
Asked for by name (ops/on_device.py: DEFINITIONS).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import log
from compiler_core.dtype import of
from compiler_core.eager.device_orders import as_it_lies, as_seen
from compiler_core.graph.print import print_attrs
from compiler_core.meta import TensorMeta
from compiler_core.ops.convolution.last import to_last
from compiler_core.ops.on_device import CONVOLUTION
from compiler_core.ops.routine import contiguous
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda import cudnn

Array = Any
_LAST = to_last(4)


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    first, second = operands
    dtype = of(first.dtype)
    if dtype not in cudnn.TYPES or first.ndim != 4 or not cudnn.is_enabled() or cudnn.why_not():
        return None
    if not (first.size and second.size):
        return None
    key = (op.name, first.shape, second.shape, dtype, tuple(attrs.items()))
    found = cudnn.first_plan(key, lambda: _call(op, [TensorMeta(array.shape, dtype) for array in operands], attrs))
    if isinstance(found, str):
        log.emit("fusion", f"{op.name} is columns and a product: {found}")
        return None
    if not math.prod(found.shape):
        return None
    arrays = [*(_lying(array) for array in operands), xp.empty(found.shape, first.dtype)]
    space = xp.empty(max(found.workspace, 1), "u1")
    cudnn.execute(found.address, [array.data.ptr for array in arrays], space.data.ptr)
    return as_seen(arrays[-1], _LAST)


def _call(op: Any, metas: list[TensorMeta], attrs: dict[str, Any]) -> Callback:
    """Of cuDNN, for operands like these. Raises ShapeError where they do not fit."""
    metas = [*metas, op.infer(*metas, **attrs)]
    layouts = tuple(contiguous(meta.with_shape(tuple(meta.shape[d] for d in _LAST))) for meta in metas)
    return Callback(op.name.replace("convolution", "convolution_cudnn"), print_attrs(attrs), layouts)


def _lying(array: Array) -> Array:
    """`array` as plans expect it, on a multiple of ALIGNMENT bytes (a batch's tail may start anywhere)."""
    made: Any = as_it_lies(array, _LAST)
    return made.copy() if made.data.ptr % cudnn.ALIGNMENT else made


CONVOLUTION.fill(run)
