"""Eager definitions of composites that are pointwise, on a CUDA device: eager/pointwise.py's, as kernels.

In: a Composite that says it is pointwise; CuPy's arrays, of f32, f64, f16 or bf16, dense in any order of their dims.
Out: its definition (ops/whole.py), whose result lies as its operand does, proved as all are (proof.py). The CUDA
C that the compiler makes of it is kept in the artefact cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler_core.dtype import float32, float64
from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import F64, I32, I64, DeviceKernels, compiled, is_wide
from compiler_core.eager.device.kernels import source as text_of
from compiler_core.eager.device.orders import as_it_lies, as_seen, order_of
from compiler_core.eager.operands import single
from compiler_core.eager.pointwise import are_plain, identity, told
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Composite, Made
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.cuda.replay import empty, replays, replays_backward

_FILE = "kernels.cu"
_NBYTES = 16  # that are moved at once
_BLOCKS = 1 << 15


def define_pointwise_there(composite: Composite) -> None:
    """Give it the definition for devices that is made of its composition."""
    name, names, from_result = composite.name, composite.numbers, composite.from_result

    def numbers(given: dict[str, float]) -> list[Any]:
        return [F64(given[name]) for name in names]

    @replays
    def made(k: DeviceKernels, x: Array, *others: Array | None, **given: float) -> Made:
        fits = all(y is not None and y.shape == x.shape and y.dtype == x.dtype for y in others)
        fits = fits and len(others) == composite.operands - 1
        return (forward(k, (x, *others), numbers(given)), ()) if fits and x.size and are_plain(given) else None  # type: ignore[arg-type]

    @replays_backward
    def made_backward(
        k: DeviceKernels, needs: Sequence[bool], g: Array, out: Array, kept: Any, *operands: Array, **given: float
    ) -> Grads:
        return backward(k, needs, g, (out,) if from_result else operands, numbers(given))

    def find(dtype: Any) -> DeviceKernels | None:
        return compiled(dtype, name, lambda: source(composite, dtype), probe="forward")

    reads = () if from_result else range(composite.operands)
    define_there(name, made, made_backward, reads=reads, reads_out=from_result, find=find, arrange=None)


def forward(k: DeviceKernels, operands: Sequence[Array], numbers: Sequence[Any] = ()) -> Array:
    """What such kernels make of arrays, lying as the first does."""
    x = operands[0]
    order = order_of(x) or tuple(range(x.ndim))
    out = empty(tuple([x.shape[d] for d in order]), x.dtype)
    arrays = [*[as_it_lies(y, order) for y in operands], out]
    wide = _is_wide(arrays)
    _launch(k, "forward", arrays, out, wide, I32(wide), *numbers)
    return as_seen(out, order)


def backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, read: Sequence[Array], numbers: Sequence[Any] = ()
) -> list[Array | None]:
    """The cotangents that are needed of what is read, operands or the result, lying as the first does."""
    order, dtype, one = order_of(read[0]) or tuple(range(read[0].ndim)), read[0].dtype, single(g)
    arrays = [as_it_lies(y, order) for y in read]
    shape = arrays[0].shape
    grads = [empty(shape, dtype) if need else None for need in needs]
    made = [grad for grad in grads if grad is not None]
    given = as_it_lies(g, order) if one is None else one
    wide = _is_wide([*arrays, *made, *([given] if one is None else [])])
    _launch(k, "backward", [given, *arrays, *grads], arrays[0], wide, I32(wide), I32(one is not None), *numbers)
    return [None if grad is None else as_seen(grad, order) for grad in grads]


def _is_wide(arrays: Sequence[Array]) -> bool:
    """Whether all of them, alike, are moved in pieces."""
    piece = _NBYTES // arrays[0].itemsize
    return not (arrays[0].size % piece or any(x.data.ptr % _NBYTES for x in arrays))  # type: ignore[attr-defined]


def _launch(k: DeviceKernels, kernel: str, arrays: Sequence[Array | None], like: Array, wide: bool, *args: Any) -> None:
    n = like.size
    k.all(kernel, n // (_NBYTES // like.itemsize) if wide else n, *arrays, I64(n), *args, blocks=_BLOCKS)


def source(composite: Composite, dtype: Any) -> str:
    """Its kernels of one dtype as CUDA C."""
    wide = float64 if is_wide(dtype) else float32

    def build(folder: Path) -> Manifest:
        from compiler_core.codegen.pointwise import cuda_text

        (folder / _FILE).write_text(cuda_text(told(composite), wide))
        return {}

    key = make_key({"kind": "pointwise kernels", "computed in": wide.short, **identity(composite)})
    made = load_or_build(key, build).read(_FILE).decode()
    return f"{text_of(dtype, 'pointwise.cu')}{made}"
