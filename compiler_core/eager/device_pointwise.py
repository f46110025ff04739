"""Eager definitions of composites that are pointwise, on a CUDA device: pointwise.py's, as kernels.

In: a Composite that says it is pointwise; CuPy's arrays, of f32, f64, f16 or bf16, dense in any order of their dims.
Out: its definition (ops/whole.py), whose result lies as its operand does, proved as all are (device_proof.py). The CUDA
C that the compiler makes of it is kept in the artefact cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler_core.dtype import float32, float64
from compiler_core.eager.device_define import Grads, define_there, empty
from compiler_core.eager.device_kernels import F64, I32, I64, DeviceKernels, compiled, is_wide
from compiler_core.eager.device_kernels import source as text_of
from compiler_core.eager.device_orders import as_it_lies, as_seen, order_of
from compiler_core.eager.pointwise import are_plain, identity, told
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Composite, Made
from compiler_core.runtime.cache import Manifest, load_or_build, make_key

_FILE = "kernels.cu"
_NBYTES = 16  # that are moved at once
_BLOCKS = 1 << 15


def define_pointwise_there(composite: Composite) -> None:
    """Give it the definition for devices that is made of its composition."""
    name, names, from_result = composite.name, composite.numbers, composite.from_result

    def numbers(given: dict[str, float]) -> list[Any]:
        return [F64(given[name]) for name in names]

    def made(k: DeviceKernels, x: Array, **given: float) -> Made:
        return (forward(k, x, numbers(given)), ()) if x.size and are_plain(given) else None

    def made_backward(
        k: DeviceKernels, needs: Sequence[bool], g: Array, out: Array, kept: Any, x: Array, **given: float
    ) -> Grads:
        return (backward(k, g, out if from_result else x, numbers(given)),)

    def find(dtype: Any) -> DeviceKernels | None:
        return compiled(dtype, name, lambda: source(composite, dtype), probe="forward")

    reads = () if from_result else (0,)
    define_there(name, made, made_backward, reads=reads, reads_out=from_result, find=find, as_it_lies=True)


def forward(k: DeviceKernels, x: Array, numbers: Sequence[Any] = ()) -> Array:
    """What such kernels make of an array, lying as it does."""
    order = order_of(x) or tuple(range(x.ndim))
    read = as_it_lies(x, order)
    out = empty(read.shape, x.dtype)
    _launch(k, "forward", (read,), out, numbers)
    return as_seen(out, order)


def backward(k: DeviceKernels, g: Array, read: Array, numbers: Sequence[Any] = ()) -> Array:
    """The cotangent of what is read, the operand or the result, lying as it does."""
    order = order_of(read) or tuple(range(read.ndim))
    dx = empty(tuple([read.shape[d] for d in order]), read.dtype)
    _launch(k, "backward", (as_it_lies(g, order), as_it_lies(read, order)), dx, numbers)
    return as_seen(dx, order)


def _launch(k: DeviceKernels, kernel: str, arrays: Sequence[Array], out: Array, numbers: Sequence[Any]) -> None:
    n, piece = out.size, _NBYTES // out.itemsize
    is_whole = not (n % piece or any(x.data.ptr % _NBYTES for x in arrays))  # type: ignore[attr-defined]
    k.all(kernel, n // piece if is_whole else n, *arrays, out, I64(n), I32(is_whole), *numbers, blocks=_BLOCKS)


def source(composite: Composite, dtype: Any) -> str:
    """Its kernels of one dtype as CUDA C."""
    wide = float64 if is_wide(dtype) else float32

    def build(folder: Path) -> Manifest:
        from compiler_core.codegen.pointwise import cuda_text

        (folder / _FILE).write_text(cuda_text(told(composite), wide))
        return {}

    key = make_key({"kind": "pointwise kernels", "computed in": wide.short, **identity(composite)})
    made = load_or_build(key, build).read(_FILE).decode()
    return f"{text_of(dtype, 'device_pointwise.cu')}{made}"
