"""`gradient_boundary`: the identity, at which Python may look at and replace the gradients that flow back.

In: Tensors and a hook `fn(*cotangents) -> replacements or None`. Out: the same values, behind the boundary.
This is how module backward hooks work, eager and compiled. Eager: one tape node runs the hook. Captured: each tensor
passes through the op `gradient_boundary`, whose attributes name the boundary and the place in it; the trace keeps the
hooks (`Boundary`). While the joint graph is made, the hook is called once on traced Tensors, and what it computes
becomes nodes of the backward. A hook that needs data raises GraphBreak: that call then runs eager.
Invariants: the calls of one boundary stand together in the graph; a cotangent that never came is None, as in torch.
Limit: Python side effects of a captured hook (printing, counting) happen when it is traced, not at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from compiler_core.dtype import COMPLEX, FLOATING
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.graph.ir import Call, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array, Op, Sample, Value, bind, current_trace, meta_of, register
from compiler_core.ops.rules import Movement

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

Hook: TypeAlias = "Callable[..., tuple[Tensor | None, ...] | None]"


@dataclass(frozen=True, slots=True)
class Boundary:
    """A hook met during capture. width: how many tensors pass."""

    hook: Hook
    width: int


@runtime_checkable
class BoundaryTrace(Protocol):
    """A trace that keeps the hooks of the boundaries it records."""

    boundaries: dict[int, Boundary]


def _infer(x: TensorMeta, *, boundary: int, slot: int) -> TensorMeta:
    return x


def _eager(xp: Any, x: Array, *, boundary: int, slot: int) -> Array:
    return x


def _vjp(g: Value, out: Value, x: Value, *, boundary: int, slot: int) -> tuple[Value]:
    return (g,)


def _source(index: tuple[Any, ...], shape: tuple[int, ...], *, boundary: int, slot: int) -> tuple[Any, ...]:
    return index


GRADIENT_BOUNDARY = register(
    Op(
        "gradient_boundary",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        lower=Movement(_source),
        samples=(Sample(((2, 3),), {"boundary": 0, "slot": 0}), Sample(((),), {"boundary": 0, "slot": 0})),
        dtypes=FLOATING + COMPLEX,
        only_for_autograd=True,
        doc="identity; marks where a backward hook sees the gradient",
    )
)


def gradient_boundary(tensors: tuple[Tensor, ...], fn: Hook) -> tuple[Tensor, ...]:
    """`tensors`, such that in backward fn(*cotangents) may replace their gradients.

    fn receives one Tensor (or None) a tensor and returns as many replacements, or None to change nothing.
    Tensors that need no gradient pass through untouched; their cotangent is None.
    """
    trace = current_trace()
    if trace is None:
        return _on_tape(tensors, fn)
    if not isinstance(trace, BoundaryTrace):
        return tensors  # inside a backward that is being traced: there is nothing behind it to differentiate
    key = len(trace.boundaries)
    trace.boundaries[key] = Boundary(fn, len(tensors))
    return tuple(
        bind(GRADIENT_BOUNDARY, t, boundary=key, slot=i) if t.dtype.is_inexact else t for i, t in enumerate(tensors)
    )


def _on_tape(tensors: tuple[Tensor, ...], fn: Hook) -> tuple[Tensor, ...]:
    from compiler_core.tensor.autograd import record_function
    from compiler_core.tensor.grad_mode import is_grad_enabled
    from compiler_core.tensor.tensor import Tensor

    flowing = [i for i, t in enumerate(tensors) if t.requires_grad] if is_grad_enabled() else []
    if not flowing:
        return tensors
    passed = [Tensor._wrap(tensors[i]._read()) for i in flowing]

    def backward(grads: Sequence[Array | None]) -> Sequence[Array | None]:
        cotangents: list[Tensor | None] = [None] * len(tensors)
        for i, grad in zip(flowing, grads):
            cotangents[i] = None if grad is None else Tensor._wrap(grad)
        replaced = run_hook(fn, cotangents)
        return [None if (t := replaced[i]) is None else t._read() for i in flowing]

    record_function("gradient_boundary", [tensors[i] for i in flowing], passed, backward)
    behind = dict(zip(flowing, passed))
    return tuple(behind.get(i, t) for i, t in enumerate(tensors))


def run_hook(fn: Hook, cotangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """The cotangents after the hook. Raises AutogradError if it returns something that does not fit them."""
    replaced = fn(*cotangents)
    if replaced is None:
        return cotangents
    fits = len(replaced) == len(cotangents) and all(
        new is None or old is None or meta_of(new) == meta_of(old) for new, old in zip(replaced, cotangents)
    )
    if not fits:
        raise AutogradError(
            "a backward hook returned gradients that do not fit",
            expected=", ".join("None" if t is None else str(meta_of(t)) for t in cotangents),
            got=", ".join("None" if t is None else str(meta_of(t)) for t in replaced),
        )
    return replaced


# -- while the joint graph is made


def is_boundary(call: Call) -> bool:
    return call.op is GRADIENT_BOUNDARY


def boundary_groups(calls: Sequence[Call]) -> dict[Call, list[Call]]:
    """First call of each boundary -> all its calls, in order of place."""
    groups: dict[int, list[Call]] = {}
    for call in calls:
        if is_boundary(call):
            groups.setdefault(call.attrs["boundary"], []).append(call)
    return {group[0]: group for group in groups.values()}


def boundary_cotangents(
    group: Sequence[Call], known: Mapping[Node, Node], boundaries: Mapping[int, Boundary]
) -> list[tuple[Node, Value | None]]:
    """(operand, cotangent) of every call of one boundary, after its hook has seen them, under the joint's trace."""
    boundary = boundaries.get(group[0].attrs["boundary"])
    cotangents = {call.attrs["slot"]: known.get(call) for call in group}
    if boundary is None or all(value is None for value in cotangents.values()):
        return [(call.args[0], known.get(call)) for call in group]
    from compiler_core.tensor.tensor import Tensor

    wrapped = [None if (node := cotangents.get(i)) is None else Tensor._wrap(node) for i in range(boundary.width)]
    breaks = GraphBreak.made()
    replaced = run_hook(boundary.hook, wrapped)
    if GraphBreak.made() != breaks:
        raise GraphBreak("a graph break was caught by a backward hook")
    values = [None if t is None else t._read() for t in replaced]
    return [(call.args[0], values[call.attrs["slot"]]) for call in group]
