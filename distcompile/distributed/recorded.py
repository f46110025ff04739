"""What traced collectives are made of: each records one op, outside of a trace does it, and holds no state.

In: Tensors; the key, the size and the rank of a group, as plain values. Out: Tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.ops import prims
from compiler_core.tensor.autograd.function import Function
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.distributed.errors import TensorListError


def put(place: Tensor, value: Tensor) -> None:
    """Give `place` another value, outside of autograd; of one number of elements, in its shape."""
    with no_grad():
        place.copy_(value.reshape(place.shape))


def part_of(rows: int, ranks: int) -> int:
    """An equal part for each rank. Raises TensorListError where there is none."""
    if rows % ranks:
        raise TensorListError(f"a dim of {rows} does not divide into equal parts", expected=f"a multiple of {ranks}")
    return rows // ranks


class _OfValue(Function):
    @staticmethod
    def forward(ctx: Any, linear: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def of_value(linear: Tensor, value: Tensor) -> Tensor:
    """`value`, bit for bit, with the gradient of `linear`."""
    made: Tensor = _OfValue.apply(linear, value)
    return made


def all_reduced(x: Tensor, op: str, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.all_reduce(x, reduction=op, group=group, ranks=ranks)
    return made


def counted(count: Tensor) -> Tensor:
    """How many values there are; ShapeError unless they are two at least."""
    what = "expected more than 1 value per channel when training, over all ranks"
    made: Tensor = prims.require(count, count < 2, error="shape", message=what)
    return made


def gathered(x: Tensor, group: str, ranks: int) -> Tensor:
    """T[N, ...]: all ranks' x."""
    made: Tensor = prims.all_gather(x, group=group, ranks=ranks)
    return made


def reduced_row(x: Tensor, op: str, group: str, ranks: int) -> Tensor:
    """Of x: T[N, ...], this rank's row of the reduction."""
    made: Tensor = prims.reduce_scatter(x, reduction=op, group=group, ranks=ranks)
    return made


def sent_by(x: Tensor, root: int, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.broadcast_from(x, root=root, group=group, ranks=ranks)
    return made


def reduced_to(x: Tensor, op: str, root: int, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.reduce_to(x, reduction=op, root=root, group=group, ranks=ranks)
    return made


def gathered_to(x: Tensor, root: int, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.gather_to(x, root=root, group=group, ranks=ranks)
    return made


def scattered(x: Tensor, root: int, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.scatter_from(x, root=root, group=group, ranks=ranks)
    return made


def exchanged(x: Tensor, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.all_to_all(x, group=group, ranks=ranks)
    return made


def exchanged_rows(x: Tensor, sent: Sequence[int], received: Sequence[int], group: str, ranks: int) -> Tensor:
    made: Tensor = prims.all_to_all_uneven(x, sent=tuple(sent), received=tuple(received), group=group, ranks=ranks)
    return made


def send(x: Tensor, to: int, tag: int, group: str, ranks: int) -> None:
    prims.send(x.detach(), root=to, tag=tag, group=group, ranks=ranks)


def received(like: Tensor, source: int, tag: int, group: str, ranks: int) -> Tensor:
    made: Tensor = prims.receive(like.detach(), root=source, tag=tag, group=group, ranks=ranks)
    return made
