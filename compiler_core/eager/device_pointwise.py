"""Eager definitions of composites that are pointwise, on a CUDA device: pointwise.py's, as kernels.

In: a Composite that says it is pointwise; CuPy's arrays, of f32, f64, f16 or bf16. Out: its definition (ops/whole.py),
proved as all are (device_proof.py). The CUDA C that the compiler makes of it is kept in the artefact cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler_core.dtype import float32, float64
from compiler_core.eager.device_define import Grads, define_there, empty
from compiler_core.eager.device_kernels import F64, I64, DeviceKernels, compiled, dense, is_wide
from compiler_core.eager.device_kernels import source as text_of
from compiler_core.eager.pointwise import are_plain, identity, told
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Composite, Made
from compiler_core.runtime.cache import Manifest, load_or_build, make_key

_FILE = "kernels.cu"


def define_pointwise_there(composite: Composite) -> None:
    """Give it the definition for devices that is made of its composition."""
    name, names, from_result = composite.name, composite.numbers, composite.from_result

    def numbers(given: dict[str, float]) -> list[Any]:
        return [F64(given[name]) for name in names]

    def made(k: DeviceKernels, x: Array, **given: float) -> Made:
        if not (x.size and are_plain(given)):
            return None
        out = empty(x.shape, x.dtype)
        k.all("forward", x.size, dense(x), out, I64(x.size), *numbers(given))
        return out, ()

    def made_backward(
        k: DeviceKernels, needs: Sequence[bool], g: Array, out: Array, kept: Any, x: Array, **given: float
    ) -> Grads:
        dx = empty(x.shape, x.dtype)
        read = dense(out if from_result else x)
        k.all("backward", x.size, g, read, dx, I64(x.size), *numbers(given))
        return (dx,)

    def find(dtype: Any) -> DeviceKernels | None:
        return compiled(dtype, name, lambda: source(composite, dtype), probe="forward")

    reads = () if from_result else (0,)
    define_there(name, made, made_backward, reads=reads, reads_out=from_result, find=find)


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
