"""Gradients that are sparse, on their way through the tape of dense tensors.

In: what the engine hands around: arrays, dense Tensors, SparseTensors. Out: sums of them, and what linear primitives
make of a sparse one. As in torch a sum of a dense and a sparse gradient is dense, and a primitive whose gradient would
take a sparse tensor apart is an error.
"""

from __future__ import annotations

from typing import Any

from compiler_core.errors import LayoutError
from compiler_core.ops.registry import Attrs, Op, Value
from compiler_core.sparse.rules import rules
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.methods.of_layouts import ACCUMULATE
from compiler_core.tensor.tensor import Tensor


def factor(value: Value) -> Any:
    """An array as a Tensor; one that repeats one number as that number."""
    if isinstance(value, Tensor):
        return value
    if value.ndim and not any(value.strides) and value.size:
        return value.flat[0].item()
    return Tensor._wrap(value)


def like_operands(result: Any, values: tuple[Value, ...]) -> Any:
    """A dense result as an array, if no operand is a dense Tensor."""
    if isinstance(result, SparseTensor) or any(
        isinstance(v, Tensor) and not isinstance(v, SparseTensor) for v in values
    ):
        return result
    return result._read()


def of_primitive(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Any:
    """`op` of one sparse tensor. Raises LayoutError where it would not stay sparse."""
    (sparse, *others) = values
    if others or not isinstance(sparse, SparseTensor):
        raise _refused(op)
    if op.name == "cast":
        return sparse.to(attrs["dtype"])
    if op.name == "detach":
        return sparse.detach()
    if op.name == "permute":
        return rules()["permute"](sparse, list(attrs["dims"]))
    if op.name in ("reshape", "expand") and tuple(attrs["shape"]) == tuple(sparse.shape):
        return sparse
    raise _refused(op)


def _refused(op: Op) -> LayoutError:
    return LayoutError(
        f"the gradient that came back is sparse, and {op.name} is not there for sparse tensors",
        remedy="sparse gradients pass sums and products by numbers alone: look the rows up in the parameter itself, or "
        "without sparse=True",
    )


def added(before: Value, grad: Value) -> Any:
    """The sum of two gradients of which one is sparse: an array where the sum is dense."""
    a, b = (v if isinstance(v, Tensor) else Tensor._wrap(v) for v in (before, grad))
    first, second = (b, a) if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor) else (a, b)
    return like_operands(rules()["add"](first, second), (before, grad))


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Add to `.grad`, of which, or of what comes, one is sparse. Two sparse ones are added in place, as in torch."""
    before: Any = leaf._grad
    came = grad.detach() if isinstance(grad, Tensor) else Tensor._wrap(grad)
    if isinstance(before, SparseTensor) and not isinstance(came, SparseTensor):
        leaf._grad = rules()["add"](came, before.detach())
    elif isinstance(before, SparseTensor):
        rules()["add_"](before, came)
    else:
        before._cell.write(rules()["add"](before.detach(), came)._read())


ACCUMULATE.fill(accumulate)
