"""Collectives of all ranks of a group, as ops: each rank gives an array, and gets one.

In: x, on every rank of one shape and dtype (all_to_all_uneven: rows of any number), the group's key, its size N.
Out, on rank r, with x_q that of rank q:
    all_reduce         x_0 ∘ x_1 ∘ ... ∘ x_{N-1}, elementwise; ∘ is `reduction`                         T[...]
    all_gather         [x_0, x_1, ...]                                                           T[N, ...]
    reduce_scatter     row r of the reduction of x: T[N, ...]                                    T[...]
    broadcast_from     x_root                                                                    T[...]
    reduce_to          the reduction on rank `root`, elsewhere zeros                             T[...]
    gather_to          as all_gather on rank `root`, elsewhere zeros                             T[N, ...]
    scatter_from       row r of x_root: T[N, ...]                                                T[...]
    all_to_all         row q of it is row r of x_q: T[N, ...]                                    T[N, ...]
    all_to_all_uneven  rows for each rank (`sent`), rows from each (`received`): T[sum(sent), ...]
Gradients: of the sum of all ranks' losses. Under the inner product summed over ranks (not under that of one loss that
all ranks hold, where an all-reduce's transpose is the identity) the transpose of a sum's all_reduce is all_reduce, of
all_gather reduce_scatter, of broadcast_from reduce_to, of gather_to scatter_from, of all_to_all itself; so torch
2.13's functional collectives have it, and torch.distributed.nn.functional. A gradient of a maximum, minimum or product
is refused where it is computed, as there. The rank itself is no attribute: ranks have one graph.
Definition: whoever runs collectives (`runner.py`) does it now; in a group of one rank nothing is sent.
Invariant: a call is an effect: the others wait for it, so it is neither dropped nor made twice (`Op.effect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.dtype import bool_
from compiler_core.errors import NoKernelError, ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import EVERY
from compiler_core.ops.collectives.runner import Collective, runner
from compiler_core.ops.registry import Array, Attrs, NotDifferentiable, Op, Sample, Value, bind, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import ALIKE, OwnCode, VmapRule

WHY = "other ranks take part in it"
ENGINES = OwnCode(WHY)
REDUCTIONS = ("sum", "avg", "max", "min", "prod", "band", "bor", "bxor")
_ALONE: Attrs = {"group": "alone", "ranks": 1}
ShapeRule = Callable[..., Shape]


def check_reduction(name: str, x: TensorMeta, op: str) -> None:
    """Raise NoKernelError for a reduction that is none, or not of this dtype."""
    kind = x.dtype.kind
    fits = {"avg": kind in "fc", "band": kind in "iub", "bor": kind in "iub", "bxor": kind in "iub"}
    if op not in REDUCTIONS or not fits.get(op, kind != "c" or op == "sum"):
        raise NoKernelError(f"{name}: there is no {op!r} of {x.dtype.name}", expected=", ".join(REDUCTIONS))


def _same(name: str, x: Shape, ranks: int) -> Shape:
    return x


def _gathered(name: str, x: Shape, ranks: int) -> Shape:
    return (ranks, *x)


def _row(name: str, x: Shape, ranks: int) -> Shape:
    return _rows(name, x, ranks)[1:]


def _rows(name: str, x: Shape, ranks: int) -> Shape:
    if not x or x[0] != ranks:
        raise ShapeError(f"{name}: the operand has no row for each rank", expected=f"[{ranks}, ...]", got=str(x))
    return x


def leading(*, operand: bool, result: bool) -> VmapRule:
    """The rule of an op whose operand, or result, has the ranks (or rows) in front: the batch goes behind them."""

    def rule(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
        (x,) = operands
        x = prims.permute(x, (1, 0, *range(2, len(x.shape)))) if operand else x
        out = bind(op, x, **attrs)
        return prims.permute(out, (1, 0, *range(2, len(out.shape)))) if result else out

    return rule


def _define(
    name: str, shape: ShapeRule, vjp: Callable[..., tuple[Value | None, ...]] | NotDifferentiable, vmap: VmapRule,
    samples: Sequence[tuple[Shape, Attrs]],
) -> Op:  # fmt: skip
    def infer(x: TensorMeta, group: str, ranks: int, **attrs: Any) -> TensorMeta:
        if "reduction" in attrs:
            check_reduction(name, x, attrs["reduction"])
        if not 0 <= attrs.get("root", 0) < ranks:
            raise ShapeError(f"{name}: no rank {attrs['root']}", expected=f"0..{ranks - 1}")
        return x.with_shape(shape(name, x.shape, ranks))

    def eager(xp: Any, x: Array, group: str, ranks: int, **attrs: Any) -> Array:
        to = shape(name, x.shape, ranks)
        if ranks == 1:
            return xp.array(x).reshape(to)  # type: ignore[no-any-return]
        return runner().run(Collective(name, group, ranks, **attrs), x, to)

    lower = call_back(name, eager, why=WHY)
    made = tuple(Sample((of,), {**_ALONE, **attrs}) for of, attrs in samples)
    return register(Op(name, infer, eager, vjp, lower, made, EVERY, vmap=vmap, effect=True, engines=ENGINES))


def _refused(g: Value, name: str, op: str) -> Value:
    """`g`, which raises where it is computed."""
    every = prims.full(tuple(g.shape), True, bool_)
    return prims.require(g, every, error="autograd", message=f"{name} with {op!r} has no gradient: only sums have")


def _has_gradient(op: str) -> bool:
    return op in ("sum", "avg")


def _vjp_all_reduce(g: Value, out: Value, x: Value, reduction: str, **of: Any) -> tuple[Value]:
    if not _has_gradient(reduction):
        return (_refused(g, "all_reduce", reduction),)
    return (prims.all_reduce(g, reduction=reduction, **of),)


def _scaled(name: str, g: Value, reduction: str, ranks: int) -> Value:
    """The cotangent of a sum or an average. g: of all ranks."""
    if not _has_gradient(reduction):
        return _refused(g, name, reduction)
    return g if reduction == "sum" else prims.mul(g, prims.full_like(g, 1.0 / ranks))


def _vjp_reduce_scatter(g: Value, out: Value, x: Value, reduction: str, group: str, ranks: int) -> tuple[Value]:
    every = prims.all_gather(g, group=group, ranks=ranks)
    return (_scaled("reduce_scatter", every, reduction, ranks),)


def _vjp_reduce_to(g: Value, out: Value, x: Value, reduction: str, group: str, ranks: int, root: int) -> tuple[Value]:
    every = prims.broadcast_from(g, group=group, ranks=ranks, root=root)
    return (_scaled("reduce_to", every, reduction, ranks),)


def _vjp_all_gather(g: Value, out: Value, x: Value, **of: Any) -> tuple[Value]:
    return (prims.reduce_scatter(g, reduction="sum", **of),)


def _vjp_broadcast(g: Value, out: Value, x: Value, **of: Any) -> tuple[Value]:
    return (prims.reduce_to(g, reduction="sum", **of),)


def _vjp_gather_to(g: Value, out: Value, x: Value, **of: Any) -> tuple[Value]:
    return (prims.scatter_from(g, **of),)


def _vjp_scatter_from(g: Value, out: Value, x: Value, **of: Any) -> tuple[Value]:
    return (prims.gather_to(g, **of),)


def _vjp_all_to_all(g: Value, out: Value, x: Value, **of: Any) -> tuple[Value]:
    return (prims.all_to_all(g, **of),)


_SUM, _ROOT = {"reduction": "sum"}, {"root": 0}
_ALIKE_SHAPES: tuple[Shape, ...] = ((3, 4), (), (0, 2))
_ROW_SHAPES: tuple[Shape, ...] = ((1, 3), (1,), (1, 0))


def _of(shapes: Sequence[Shape], attrs: Attrs) -> list[tuple[Shape, Attrs]]:
    return [(shape, attrs) for shape in shapes]


ALL_REDUCE = _define("all_reduce", _same, _vjp_all_reduce, ALIKE, _of(_ALIKE_SHAPES, _SUM))
ALL_GATHER = _define(
    "all_gather", _gathered, _vjp_all_gather, leading(operand=False, result=True), _of(_ALIKE_SHAPES, {})
)
REDUCE_SCATTER = _define(
    "reduce_scatter", _row, _vjp_reduce_scatter, leading(operand=True, result=False), _of(_ROW_SHAPES, _SUM)
)
BROADCAST_FROM = _define("broadcast_from", _same, _vjp_broadcast, ALIKE, _of(_ALIKE_SHAPES, _ROOT))
REDUCE_TO = _define("reduce_to", _same, _vjp_reduce_to, ALIKE, _of(_ALIKE_SHAPES, {**_SUM, **_ROOT}))
GATHER_TO = _define(
    "gather_to", _gathered, _vjp_gather_to, leading(operand=False, result=True), _of(_ALIKE_SHAPES, _ROOT)
)
SCATTER_FROM = _define(
    "scatter_from", _row, _vjp_scatter_from, leading(operand=True, result=False), _of(_ROW_SHAPES, _ROOT)
)
ALL_TO_ALL = _define("all_to_all", _rows, _vjp_all_to_all, leading(operand=True, result=True), _of(_ROW_SHAPES, {}))


# ---- rows of any number


def _infer_uneven(
    x: TensorMeta, group: str, ranks: int, sent: tuple[int, ...], received: tuple[int, ...]
) -> TensorMeta:
    for name, rows in (("sent", sent), ("received", received)):
        if len(rows) != ranks or min(rows) < 0:
            raise ShapeError(f"all_to_all_uneven: {name} needs a number for each of {ranks} ranks", got=str(rows))
    if not x.shape or sum(sent) != x.shape[0]:
        raise ShapeError("all_to_all_uneven: the rows sent do not add up", expected=str(sum(sent)), got=str(x))
    return x.with_shape((sum(received), *x.shape[1:]))


def _eager_uneven(xp: Any, x: Array, group: str, ranks: int, sent: tuple[int, ...], received: tuple[int, ...]) -> Array:
    if ranks == 1:
        return xp.array(x)  # type: ignore[no-any-return]
    what = Collective("all_to_all_uneven", group, ranks, sent=sent, received=received)
    return runner().run(what, x, (sum(received), *x.shape[1:]))


def _vjp_uneven(
    g: Value, out: Value, x: Value, sent: tuple[int, ...], received: tuple[int, ...], **of: Any
) -> tuple[Value]:
    return (prims.all_to_all_uneven(g, sent=received, received=sent, **of),)


ALL_TO_ALL_UNEVEN = register(
    Op(
        "all_to_all_uneven",
        _infer_uneven,
        _eager_uneven,
        _vjp_uneven,
        call_back("all_to_all_uneven", _eager_uneven, why=WHY),
        (Sample(((3, 2),), {**_ALONE, "sent": (3,), "received": (3,)}),),
        EVERY,
        vmap=leading(operand=True, result=True),
        effect=True,
        engines=ENGINES,
    )
)
