"""Functions of one number in eager code on a CUDA device, and their derivatives: a kernel each, made by the compiler.

In: an op (tanh, sigmoid, sqrt, ...) and an array of f32, f64, f16 or bf16, as ops/on_device.py has them; for the
derivative the cotangent, and the operand or the result, whichever the op's rule reads. Out: an array; or None, and then
it is computed op by op with CuPy, in up to four launches.
16-bit floats are computed in f32 and rounded once. Each kernel is used once it has given the rule's numbers on the CPU,
for each dtype (proof.py); the CUDA C that the compiler makes is kept in the artefact cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import float32, float64
from compiler_core.eager.device.kernels import DeviceKernels, compiled, is_known, is_wide
from compiler_core.eager.device.kernels import source as text_of
from compiler_core.eager.device.pointwise import backward, forward
from compiler_core.eager.device.proof import is_near, is_right_once
from compiler_core.eager.pointwise import compiler
from compiler_core.ops.on_device import SLOPE, UNARY
from compiler_core.ops.registry import OPS, Array, Op, bind
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.cuda.replay import Known, replayed

if TYPE_CHECKING:
    from compiler_core.codegen.row_values import Rows

_FILE = "kernels.cu"


_known: Known = {}


def run(xp: Any, op: Op, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(x) on the current device."""
    found: Array | None = replayed(_known, (op.name,), operands, lambda *operands: _run(op.name, operands))
    return found


def _run(name: str, operands: Sequence[Array]) -> Array | None:
    k = _proved(name, operands[0].dtype)
    return None if k is None or not operands[0].size else forward(k, operands)


def slope(name: str, g: Array, out: Any, x: Any) -> Array | None:
    """x's cotangent, of g at op(x) = out, one of which may be gone. None: the op's rule has to give it."""
    read = out if name in SLOPE_BY_RESULT else x
    if not cuda.is_array(read) or (g.shape, g.dtype) != (read.shape, read.dtype):
        return None
    number: int = read.data.device_id
    if not g.size or not cuda.is_on(g, number):
        return None
    if cuda.current() != number:
        with cuda.on(number):
            return slope(name, g, out, x)
    found: Array | None = replayed(_known, (name, "slope"), (g, read), lambda g, read: _slope(name, g, read))
    return found


def _slope(name: str, g: Array, read: Array) -> Array | None:
    k = _proved(name, g.dtype)
    return None if k is None else backward(k, (True,), g, (read,))[0]


SLOPE_BY_RESULT = frozenset(("tanh", "sigmoid", "sqrt", "rsqrt"))


def source(name: str, dtype: Any) -> str:
    """The kernels of an op and a dtype as CUDA C."""
    wide = float64 if is_wide(dtype) else float32

    def build(folder: Path) -> Manifest:
        from compiler_core.codegen.pointwise import cuda_text

        (folder / _FILE).write_text(cuda_text(_told(name), wide))
        return {}

    key = make_key({"kind": "unary kernels", "op": name, "computed in": wide.short, "compiler": compiler()})
    return text_of(dtype, "pointwise.cu") + load_or_build(key, build).read(_FILE).decode()


def _told(name: str) -> Rows:
    from compiler_core.codegen.row_values import Rows

    op = OPS[name]

    def gradient(g: Any, out: Any) -> Any:
        (dx,) = op.vjp(g, out, None)  # type: ignore[operator]
        return dx

    by_result = gradient if name in SLOPE_BY_RESULT else None
    return Rows(name, lambda x: bind(op, x), by_result, (), {}, (), "pointwise")


# ---- once


def _proved(name: str, dtype: Any) -> DeviceKernels | None:
    if not is_known(dtype):
        return None
    k = compiled(dtype, f"op {name}", lambda: source(name, dtype), probe="forward")
    return k if k is not None and is_right_once(f"op {name}", k, lambda: _difference(name, k)) else None


def _difference(name: str, k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    op, rng = OPS[name], np.random.default_rng(5)
    low = 0.05 if name in ("sqrt", "rsqrt") else -4
    x, g = rng.uniform(low, 4, size=(2, 333))
    x, g = x.astype(k.dtype), g.astype(k.dtype)
    out = op.eager(np, x)
    (right,) = op.vjp(g, out, x)  # type: ignore[operator]
    there = [cuda.put(array, cuda.current()) for array in (x, g, np.ascontiguousarray(out))]
    if not is_near(cuda.fetch(forward(k, there[:1])), out, k.dtype):
        return "other numbers"
    (made,) = backward(k, (True,), there[1], (there[2 if name in SLOPE_BY_RESULT else 0],))
    return "" if is_near(cuda.fetch(made), right, k.dtype) else "another gradient"


UNARY.fill(run)
SLOPE.fill(slope)
