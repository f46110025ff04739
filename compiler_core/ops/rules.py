"""The kinds of lowering rule an op may have: how one call of a graph becomes a definition, as data.

In: nothing. Out: the frozen rule classes that an op's `lower` field holds. Who reads them: `lowering/define.py` has a
function for each class, with exceptions: a Movement becomes part of its readers' indices, an Expansion and a Composed
are gone before (graph/passes/expand.py), and a `Routine` (routine.py) stays a call of a library.

Conventions: an index is a tuple, one entry a dimension, of ints and of what has + - * // % with ints: the lowering
passes `Index`s (symbolic/index.py). `read[k](index)` is the expression for element `index` of operand k. `e` is an
`Emitter` (lowering/emitter.py), whose methods make expressions. It is passed in: ops import nothing of the lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from compiler_core.ops.routine import Routine
from compiler_core.records import dataclass

ReductionKind = Literal["sum", "prod", "max", "min", "argmax", "argmin", "argmax_nan"]


@dataclass(frozen=True, slots=True)
class Pointwise:
    """out[i] = scalar(a[i], b[i], ...): every operand has out's shape. `scalar` names a loop-IR scalar function."""

    scalar: str


@dataclass(frozen=True, slots=True)
class Movement:
    """out[i] = x[source(i)]: no arithmetic, no data-dependent index. One operand.

    source(index, in_shape, **attrs) -> index into the operand.
    """

    source: Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Indexed:
    """out[i] = emit(e, i, read, metas, **attrs): one expression per element; may test indices, or index by data.

    metas: the operands' TensorMeta. Used by pad, cat, gather, iota, full, philox.
    """

    emit: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Reduction:
    """out = reduce(kind, x over attrs["dims"]); kept dimensions keep their order, reduced ones are dropped.

    kind: "sum", "prod", "max", "min" (NaN propagates), "argmax" or "argmin" (first index wins; out is i64),
    or "argmax_nan" (the same, but of NaNs the last wins).
    """

    kind: ReductionKind


@dataclass(frozen=True, slots=True)
class IndexedReduction:
    """out[i] = reduce(kind, emit(e, (*i, *k), read, metas, **attrs)) over k in `extents(metas, **attrs)`.

    A reduction over indices of its own, not over dims of an operand. kind: as in Reduction. Used by sliding windows.
    inner(**attrs): how many of the result's last dims vary faster than k in memory and loops (channels last).
    """

    kind: ReductionKind
    extents: Callable[..., tuple[int, ...]]
    emit: Callable[..., Any]
    inner: Callable[..., int] = lambda **_: 0


@dataclass(frozen=True, slots=True)
class Scan:
    """out[i] = step(out[i - 1], operands[i]) along attrs["dim"].

    attrs["reverse"], if there: from the last to the first. kind: "sum"; "linear": operand 0 times what came before,
    plus operand 1; "argmax" and "argmin": the place of the running extreme, the last of equals (i64).
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Expansion:
    """out = expand(*operands, **attrs): library calls or graphs among other ops, written so before lowering.

    Differentiation and partition see the op whole: what it expands into is neither saved nor recomputed piecewise.
    flops(*operand metas, **attrs): floating-point operations.
    """

    expand: Callable[..., Any]
    flops: Callable[..., int]


@dataclass(frozen=True, slots=True)
class Composed:
    """out = expand(*operands, **attrs), written then too, and with ops that loops of ours compute.

    elementwise: as a Pointwise is, on operands of the result's shape; else it may be a reduction, or anything.
    """

    expand: Callable[..., Any]
    elementwise: bool = False


@dataclass(frozen=True, slots=True)
class Scatter:
    """out = base with elements put at data- or slice-given places.

    target(e, index, read, metas, **attrs) -> index into out, for each `index` of operand `source`.
    mode: "set" or "add"; out starts as operand 0.
    """

    target: Callable[..., tuple[Any, ...]]
    source: int
    mode: Literal["set", "add"]


@dataclass(frozen=True, slots=True)
class Front:
    """How nearly all ops go over a batch (vmap): all operands get it in front, one for all examples is repeated.

    dims: names of attributes that are a dim or several: they move by one. order: of a permutation of dims.
    sizes, zeros, ones: of those with an entry for each dim: the batch's is its size, 0 or 1.
    """

    dims: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    ones: tuple[str, ...] = ()

    def attributes(self, size: int, attrs: dict[str, Any]) -> dict[str, Any]:
        """Those of the op for all examples. attrs: for one."""
        changed = dict(attrs)
        for name in self.dims:
            dim = attrs[name]
            changed[name] = dim + 1 if isinstance(dim, int) else tuple(d + 1 for d in dim)
        changed.update({name: (0, *(d + 1 for d in attrs[name])) for name in self.order})
        for names, first in ((self.sizes, size), (self.zeros, 0), (self.ones, 1)):
            changed.update({name: (first, *attrs[name]) for name in names})
        return changed


ALIKE, OVER_DIM, OVER_DIMS = Front(), Front(dims=("dim",)), Front(dims=("dims",))
# (op, size of the batch, which operands have it, operands, attributes for one example) -> value, the batch in front
VmapRule = Front | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Core:
    """An op of the core set: what other engines are asked for, all that they must know (compiler_core/engines)."""


@dataclass(frozen=True, slots=True)
class Decomposed:
    """out = expand(*operands, **attrs), written with core ops, or with ops that decompose to them.

    None instead of a value: not of these operands (their dtype, their sizes), which then are our own code's.
    """

    expand: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class OwnCode:
    """No composition of core ops says it, and why: our own code runs it beside an engine that has no such op."""

    why: str


CORE = Core()
EngineRule = Core | Decomposed | OwnCode

LowerRule = (
    Pointwise | Movement | Indexed | Reduction | IndexedReduction | Scatter | Scan | Expansion | Composed | Routine
)


def is_elementwise(rule: LowerRule) -> bool:
    """Whether element i of the result is made of the operands' elements i."""
    return isinstance(rule, Pointwise) or (isinstance(rule, Composed) and rule.elementwise)
