"""Convolutions of eager code on a CUDA device by cuDNN: 16-bit floats of one or two spatial dims.

In: an op of ops/convolution/op.py, CuPy's arrays as the user has them (channels first), its attributes. Out: an array,
or None where cuDNN is missing, switched off, or refuses: the op's own definition is then run (columns and a product).
The engine is the first that the heuristics propose, of those whose bits repeat; nothing is measured.
Asked for by name (ops/on_device.py: DEFINITIONS).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from compiler_core import log
from compiler_core.dtype import of
from compiler_core.graph.print import print_attrs
from compiler_core.meta import TensorMeta
from compiler_core.ops.convolution.last import to_last
from compiler_core.ops.on_device import CONVOLUTION
from compiler_core.ops.routine import Strided
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda import cudnn

Array = Any


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs) on the current device."""
    dtype = of(operands[0].dtype)
    if dtype not in cudnn.TYPES or operands[0].ndim != 4 or not cudnn.is_enabled() or cudnn.why_not():
        return None
    made: TensorMeta = op.infer(*(TensorMeta(array.shape, dtype) for array in operands), **attrs)
    arrays = [*(_plain(xp, array) for array in operands), xp.empty(made.shape, operands[0].dtype)]
    if not all(array.size for array in arrays):
        return None
    name = op.name.replace("convolution", "convolution_cudnn")
    call = Callback(name, print_attrs(attrs), tuple(_channels_last(array) for array in arrays))
    found = cudnn.first_plan(call)
    if isinstance(found, str):
        log.emit("fusion", f"{op.name} is columns and a product: {found}")
        return None
    plan, workspace = found
    space = xp.empty(max(workspace, 1), "u1")
    cudnn.execute(ctypes.c_void_p(plan), [array.data.ptr for array in arrays], space.data.ptr)
    return arrays[-1]


def _plain(xp: Any, array: Array) -> Array:
    """`array` as plans expect it: contiguous, on a multiple of ALIGNMENT bytes (a batch's tail may start anywhere)."""
    made = xp.ascontiguousarray(array)
    return made.copy() if made.data.ptr % cudnn.ALIGNMENT else made


def _channels_last(array: Array) -> Strided:
    """How it lies, channels named last."""
    order = to_last(array.ndim)
    strides = tuple(array.strides[d] // array.itemsize for d in order)
    return Strided(of(array.dtype), tuple(array.shape[d] for d in order), strides)


CONVOLUTION.fill(run)
