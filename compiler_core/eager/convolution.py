"""Eager definition of convolution, in one to three spatial dims, with groups and a bias.

In: x T[N, C, *n], weight T[O, C/groups, *k], bias T[O] or None, of f32 or all of f64. Out: see ops/whole.py.
Method: oneDNN's convolutions, where it has one for f32 (runtime/onednn.py), but for depthwise gradients (depthwise.py).
Else, and for windows of one element, which are a product already, windows are laid out as columns (kernels.h) for as
many samples at a time as stay in the cache, and the products are the BLAS's (Chellapilla et al. 2006). Columns are laid
out again for the gradient of the weight: kept, they would take prod(k) times the input.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from compiler_core.eager.depthwise import Depthwise
from compiler_core.eager.native import LARGE, SIGNATURE, Kernel, RowKernels
from compiler_core.eager.operands import F32, Grads, alike, define_quietly, dense
from compiler_core.errors import BackendError
from compiler_core.ops.quiet import quietly
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made, Prepare
from compiler_core.records import dataclass
from compiler_core.runtime.lasting_memory import arena_address
from compiler_core.runtime.onednn import eager_plan

_AT_A_TIME = 1 << 18  # elements of columns

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What follows from shapes and attributes. numbers: for the kernel, three spatial dims each."""

    out: Dims  # the result's spatial dims
    inner: int  # rows of columns in a group
    at_a_time: int
    is_plain: bool  # columns are the input itself
    numbers: Array


@lru_cache(maxsize=1024)
def geometry(
    x: Dims, weight: Dims, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> Geometry | None:
    """None where the composition has to say what is wrong, or where there are more spatial dims."""
    rank = len(x) - 2
    if not 1 <= rank <= 3 or len(weight) != rank + 2 or min(*stride, *dilation, *x, *weight, groups) < 1:
        return None
    if x[1] != weight[1] * groups or weight[0] % groups or min(*low, *high) < 0:
        return None
    sizes, kernel = x[2:], weight[2:]
    spans = [n + a + b - d * (k - 1) - 1 for n, a, b, d, k in zip(sizes, low, high, dilation, kernel)]
    if min(spans) < 0:
        return None
    out = tuple(span // s + 1 for span, s in zip(spans, stride))
    is_plain = math.prod(kernel) == math.prod(stride) == 1 and out == sizes
    lead = (1,) * (3 - rank)
    spatial = [*lead, *sizes, *lead, *kernel, *lead, *stride, *((0,) * (3 - rank)), *low, *lead, *dilation, *lead, *out]
    columns = x[1] * math.prod(kernel) * math.prod(out)
    count = max(1, _AT_A_TIME // columns)
    return Geometry(out, math.prod(weight[1:]), count, is_plain, np.array([x[1], *spatial], np.int64))


# ---- by oneDNN

Primitives = Callable[[str, tuple[Array, Array], Dims, dict[str, Any]], Array | None]


def _primitives_by(run: Kernel) -> Primitives:
    def primitives(name: str, operands: tuple[Array, Array], shape: Dims, attrs: dict[str, Any]) -> Array | None:
        """The call's result, of that shape, by oneDNN; None where that does not compute it."""
        first, second = operands
        if first.dtype != F32:
            return None
        plan = eager_plan(name, (first.shape, second.shape, shape), **attrs)
        if plan is None:
            return None
        out = np.empty(shape, F32)
        if run((dense(first), dense(second), out), plan.address, arena_address(plan.scratch_nbytes)):
            raise BackendError(f"oneDNN failed to compute an eager {name}")
        return out

    return primitives


# ---- by columns

Pieces = Callable[[Array, int, Geometry], Iterator[tuple[int, int, Array]]]


def _pieces_by(lay_out: Kernel) -> Pieces:
    """Samples as columns, as many at a time as stay in the cache."""

    def pieces(x: Array, groups: int, shape: Geometry) -> Iterator[tuple[int, int, Array]]:
        """(first sample, the one after the last, their columns T[n, groups, inner, prod(out)]); a buffer is reused."""
        positions = math.prod(shape.out)
        if shape.is_plain:
            yield 0, len(x), x.reshape(len(x), groups, shape.inner, positions)
            return
        step = min(shape.at_a_time, len(x))
        buffer = np.empty((step, groups, shape.inner, positions), x.dtype)
        for start in range(0, len(x), step):
            columns = buffer[: min(step, len(x) - start)]
            lay_out((columns, x[start : start + step], shape.numbers))
            yield start, start + len(columns), columns

    return pieces


def _forward_by(pieces: Pieces, primitives: Primitives) -> Callable[..., Made]:
    def convolution(x: Array, weight: Array, bias: Array | None, *, groups: int, **attrs: Any) -> Made:
        if not alike(x, weight, bias) or (bias is not None and bias.shape != weight.shape[:1]):
            return None
        shape = geometry(x.shape, weight.shape, groups=groups, **attrs)
        if shape is None:
            return None
        channels, positions, out = weight.shape[0], math.prod(shape.out), None
        if not shape.is_plain:
            out = primitives("convolution", (x, weight), (len(x), channels, *shape.out), {"groups": groups, **attrs})
        if out is None:
            matrices = dense(weight).reshape(groups, channels // groups, shape.inner)
            out = np.empty((len(x), groups, channels // groups, positions), x.dtype)
            for start, stop, columns in pieces(dense(x), groups, shape):
                np.matmul(matrices, columns, out[start:stop])
        out = out.reshape(len(x), channels, positions)
        if bias is not None:
            np.add(out, bias[:, None], out)
        return out.reshape(len(x), channels, *shape.out), ()

    return convolution


def _prepare_by(k: RowKernels, forward: Callable[..., Made]) -> Prepare:
    """What oneDNN's plan of arrays like these computes, and the bias."""
    forms = k.forms("primitives_of", *SIGNATURE, ctypes.c_int64, ctypes.c_int64)

    def prepare(x: Array, weight: Array, bias: Array | None, **attrs: Any) -> Callable[..., Made] | None:
        if x.dtype != F32 or not alike(x, weight, bias) or (bias is not None and bias.shape != weight.shape[:1]):
            return None
        of = geometry(x.shape, weight.shape, **attrs)
        if of is None or of.is_plain:
            return None
        shape, flat = (len(x), len(weight), *of.out), (len(x), len(weight), math.prod(of.out))
        plan = eager_plan("convolution", (x.shape, weight.shape, shape), **attrs)
        if plan is None:
            return None
        form, address, nbytes = forms[x.size > LARGE], plan.address, plan.scratch_nbytes

        def run(x: Array, weight: Array, bias: Array | None) -> Made:
            out = np.empty(flat, F32)
            if form((x, weight, out), address, arena_address(nbytes)):
                return forward(x, weight, bias, **attrs)  # arrays with gaps
            if bias is not None:
                np.add(out, bias[:, None], out)
            return out.reshape(shape), ()

        return quietly(run)

    return prepare


def _slope_of_input_by(add_back: Kernel) -> Callable[[Array, Array, Array, Geometry], Array]:
    def of_input(g: Array, x: Array, matrices: Array, shape: Geometry) -> Array:
        """g: T[N, groups, O/groups, prod(out)] -> the gradient of x."""
        transposed = matrices.swapaxes(1, 2)
        if shape.is_plain:
            product: Array = np.matmul(transposed, g)
            return product.reshape(x.shape)
        dx = np.zeros(x.shape, x.dtype)
        for start in range(0, len(x), shape.at_a_time):
            stop = start + shape.at_a_time
            add_back((dense(np.matmul(transposed, g[start:stop])), dx[start:stop], shape.numbers))
        return dx

    return of_input


def _backward_by(
    pieces: Pieces,
    primitives: Primitives,
    of_input: Callable[[Array, Array, Array, Geometry], Array],
    depthwise: Depthwise,
) -> Callable[..., Grads]:
    def backward(
        needs: Sequence[bool],
        g: Array,
        _: None,
        kept: Any,
        x: Array,
        weight: Array,
        *__: Any,
        groups: int,
        **attrs: Any,
    ) -> Grads:
        shape = geometry(x.shape, weight.shape, groups=groups, **attrs)
        assert shape is not None, "the forward had one"
        matrices, told = dense(weight).reshape(groups, -1, shape.inner), {"groups": groups, **attrs}
        rows = dense(g).reshape(len(x), groups, -1, math.prod(shape.out))
        dx = dw = None
        if not shape.is_plain:
            if needs[0]:
                theirs = partial(primitives, "convolution_input", (g, weight), x.shape, told)
                dx = depthwise.of_input(theirs, g, weight, x.shape, groups, **attrs)
            if needs[1]:
                theirs = partial(primitives, "convolution_weight", (x, g), weight.shape, told)
                dw = depthwise.of_weight(theirs, g, x, weight.shape, groups, **attrs)
        if needs[0] and dx is None:
            dx = of_input(rows, x, matrices, shape)
        if needs[1] and dw is None:
            total = np.zeros(matrices.shape, x.dtype)
            for start, stop, columns in pieces(dense(x), groups, shape):
                total += np.add.reduce(np.matmul(rows[start:stop], columns.swapaxes(2, 3)), 0)
            dw = total.reshape(weight.shape)
        db = np.add.reduce(rows.reshape(len(x), weight.shape[0], -1), (0, 2)) if needs[2] else None
        return dx, dw, db

    return backward


def define_convolution(k: RowKernels) -> None:
    """Define it."""
    pieces, primitives = _pieces_by(k.named("columns")), _primitives_by(k.named("primitives_of"))
    depthwise = Depthwise(k)
    backward = _backward_by(pieces, primitives, _slope_of_input_by(k.named("columns_back")), depthwise)
    forward = _forward_by(pieces, primitives)
    define_quietly("convolution", forward, backward, reads=(0, 1), prepare=_prepare_by(k, forward))
