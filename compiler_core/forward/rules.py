"""The tangent of one primitive's result, from the tangents of its operands.

In: an op, its operands, the result, a tangent or None for each operand. Out: the result's tangent, or None where it has
none (whole numbers, bools). Method: an op that is linear in its operands is applied to their tangents; any other is
pulled back twice: its vjp is linear in the cotangent, so the vjp of that, by the cotangent, is the tangent
(Pearlmutter's trick for one op). So one rule serves both modes. What is computed here is recorded as ever, so tangents
can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.dtype import of
from compiler_core.ops import prims
from compiler_core.ops.batching.value import as_running
from compiler_core.ops.registry import OPS, Attrs, NotDifferentiable, Op, Value, bind, meta_of
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.grad_mode import enable_grad, no_grad, thread_mode
from compiler_core.tensor.autograd.taped import inside

Tangents = Sequence[Value | None]
# linear in their operands that have tangents, together: a missing one is zero; the others are places and conditions
_LINEAR_NAMES = """
add sub neg sum expand reshape permute slice slice_scatter cast cat pad diagonal flip strided cumsum real imag conj
view_as_real view_as_complex complex fft windows windows_add window_sum take gather scatter scatter_add index_add
index_copy where
"""
_LINEAR = frozenset(OPS[name] for name in _LINEAR_NAMES.split())


def tangent(op: Op, values: Sequence[Value], attrs: Attrs, out: Value, tangents: Tangents) -> Value | None:
    """See the head of this file."""
    if not of(meta_of(out).dtype).is_inexact:
        return None
    if op in _LINEAR:
        return _linear(op, values, attrs, tangents)
    product = _PRODUCTS.get(op)
    if product is not None:
        return _product(product, values, tangents)
    if isinstance(op.vjp, NotDifferentiable):
        return zeros_like(out)
    return _pulled_twice(op, values, attrs, out, tangents)


def zeros_like(like: Value) -> Value:
    """A Tensor of zeros of a value's shape and dtype, where that is."""
    from compiler_core.tensor.tensor import Tensor

    meta = meta_of(like)
    made = Tensor._wrap(prims.full(meta.shape, 0, meta.dtype))
    return made.to(like.device) if like.device != made.device else made


def _linear(op: Op, values: Sequence[Value], attrs: Attrs, tangents: Tangents) -> Value:
    """The op itself, of the tangents."""
    if op is OPS["pad"]:
        attrs = {**attrs, "value": 0.0}
    return bind(op, *[_filled(value, t) for value, t in zip(values, tangents)], **attrs)


def _filled(value: Value, given: Value | None) -> Value:
    if given is not None:
        return given
    meta = meta_of(value)
    if not meta.dtype.is_inexact:
        return value
    return zeros_like(value) if hasattr(value, "_cell") else prims.full(meta.shape, 0, meta.dtype)


_PRODUCTS: dict[Op, Callable[[Value, Value], Value]] = {OPS["mul"]: prims.mul, OPS["matmul"]: prims.matmul}


def _product(product: Callable[[Value, Value], Value], values: Sequence[Value], tangents: Tangents) -> Value:
    (a, b), (s, t) = values, tangents
    terms = ([] if s is None else [product(s, b)]) + ([] if t is None else [product(a, t)])
    return terms[0] if len(terms) == 1 else prims.add(*terms)


def _pulled_twice(op: Op, values: Sequence[Value], attrs: Attrs, out: Value, tangents: Tangents) -> Value:
    recorded = thread_mode.enabled
    with inside(), as_running(out._cell.raw if hasattr(out, "_cell") else out):
        cotangent = zeros_like(out)._require()
        pulled = op.vjp(cotangent, out, *values, **attrs)  # type: ignore[operator]
        pairs = [
            (p, t) for p, t in zip(pulled, tangents) if t is not None and hasattr(p, "_cell") and p._edge() is not None
        ]
        if not pairs:
            return zeros_like(out)
        outputs, weights = [p for p, _ in pairs], [_of_dtype(t, p) for p, t in pairs]
        (found,) = grad(outputs, cotangent, weights, create_graph=recorded, allow_unused=True)
    if found is None:
        return zeros_like(out)
    with no_grad() if not recorded else enable_grad():
        return found


def _of_dtype(given: Any, like: Any) -> Any:
    return given if given.dtype is like.dtype else prims.cast(given, like.dtype)
