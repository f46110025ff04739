"""Composites that eager code computes whole: with a forward and a gradient of their own, beside the composition.

In: a composition, a function over Values: operands by position (None where there is none), attributes by name.
Out: the same function. Of Tensors outside of a trace it is computed by its `forward`, and the tape records one node,
whose gradient is its `backward`. All others (capture, arrays, transforms) get the composition, which also runs where
forward declines, gives the gradient that is to be differentiated again (`vjp`), and is the oracle.

    forward(*arrays, **attrs) -> (out, kept) | None         kept: what backward wants beside the operands
    backward(needs, g, out, kept, *arrays, **attrs)         -> a cotangent, or None, for each operand; or just None
        needs: for each operand whether its cotangent is wanted. out: None unless reads_out. reads: the operands whose
        elements it reads, by number, None for all: others may have been written to in the meantime.

The definitions are those of a later stage, which two slots (`late.py`) load at the first call that can use one.
For arrays of a CUDA device there is a second definition (`there`), a Composite of its own with the same composition.
One that is `pointwise`, of operands of one shape, and of numbers by name, has no definition written: what the slots
hold makes both of the composition, at its first call, as the compiler lowers it (codegen/pointwise.py). So it is with
those that work by `rows` (codegen/rows.py): of x, parameters that lie along a row, and numbers by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler_core.errors import OpDefinitionError
from compiler_core.late import Late
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.batching.whole import mapped
from compiler_core.ops.broadcasting import rounded_once
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.lying import as_told
from compiler_core.ops.primitives.tied import tied
from compiler_core.ops.registry import Array, Telling, Value

Made: TypeAlias = tuple[Array, tuple[Array, ...]] | None
Forward: TypeAlias = Callable[..., Made]
Backward: TypeAlias = Callable[..., Sequence[Array | None] | None]

Prepare: TypeAlias = Callable[..., "Callable[..., Made] | None"]

Derive: TypeAlias = "Callable[[Composite], None]"  # defines one that is pointwise, or works by rows

DEFINITIONS: Late[Derive] = Late("composites: eager definitions")  # to load it defines the others
DEFINITIONS_THERE: Late[Derive] = Late("composites: definitions on a device")
COMPOSITES: dict[str, Composite] = {}
_PLACES = ("dim", "dims")


class Composite:
    """One composite, whole. `vjp` has the form of an op's: the tape treats it as one. there: that of CUDA devices.

    is_piecewise: it consists of straight lines, so that its gradient depends on its operand without a slope (tied.py).
    pointwise: each element of the result depends on those of its operands there, which are of one shape where a kernel
    computes it. from_result, of one operand: its gradient there is the same as at the result, which alone is read, so
    that the operand may be overwritten. once: 16-bit floats are computed in f32 and rounded once, by the composition
    too. rows: an element of the result depends on x's row, which lies along the last dim, the dim that the attribute
    `dim` names, or the last `dims` dims; on parameters of a row's shape, or None; and on numbers. operands: how many
    the composition has by position. gradient(g, out, **attributes): x's cotangent, told from the result alone.
    prepare(*arrays, **attrs): what its forward is for arrays of these dtypes and shapes, which have less to look at.
    prepare_backward(attrs): what its backward is, of all but attributes, in an order of its own: (needs, g, out, kept,
    operands), all arrays of one device.
    spends: there is no second backward once its node is freed, though the gradient reads no operand (spent.py).
    """

    __slots__ = (
        *("backward", "compose", "forward", "from_result", "gradient", "is_piecewise", "lies", "name", "once"),
        *("operands", "pointwise", "prepare", "prepare_backward", "reads", "reads_out", "rows", "spends", "there"),
    )
    remakes_out = False

    def __init__(
        self,
        name: str,
        compose: Callable[..., Value],
        lies: str = "",
        *,
        pointwise: bool = False,
        from_result: bool = False,
        once: bool = False,
        rows: bool = False,
        gradient: Callable[..., Value] | None = None,
        spends: bool = False,
    ) -> None:
        self.name, self.compose, self.lies = name, compose, lies
        self.pointwise, self.from_result, self.once = pointwise, from_result, once
        self.rows, self.gradient = rows, gradient
        self.spends = spends
        code: Any = compose.__code__
        self.operands: int = code.co_argcount
        self.forward: Forward = self._define
        self.prepare: Prepare | None = None
        self.prepare_backward: Callable[[dict[str, Any]], Callable[..., Any]] | None = None
        self.backward: Backward = _nothing
        self.reads: frozenset[int] | None = None
        self.reads_out = False
        self.there: Composite | None = None
        self.is_piecewise = False

    def on_device(self) -> Composite | None:
        """Its definition for arrays of a CUDA device; None where there is none."""
        if self.there is None:
            derive = DEFINITIONS_THERE.get()
            if self.pointwise or self.rows:
                derive(self)
        return self.there

    def elsewhere(self, arrays: Sequence[Any]) -> Any:
        """Its definition for operands that are not all arrays of the CPU; None where there is none."""
        if any(type(array) is Batched for array in arrays):
            return mapped(self, arrays)
        return self.on_device()

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the composition's attributes, but for where a row lies."""
        return tuple(name for name in self._attributes if name not in _PLACES)

    @property
    def place(self) -> str:
        """The attribute that says where a row lies: "dim", "dims"; "" where it is the last dim."""
        return next((name for name in self._attributes if name in _PLACES), "")

    @property
    def _attributes(self) -> tuple[str, ...]:
        code: Any = self.compose.__code__
        return tuple(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])

    def _define(self, *arrays: Array | None, **attrs: Any) -> Made:
        """Its first call: load the definitions, or make its own."""
        derive = DEFINITIONS.get()
        if self.pointwise or self.rows:
            derive(self)
        if self.forward == self._define:
            self.forward = _decline
        return self.forward(*arrays, **attrs)

    def composed(self, *operands: Value, **attrs: Any) -> Value:
        """The composition of these operands."""
        return (rounded_once(self.compose) if self.once else self.compose)(*operands, **attrs)

    def vjp(self, g: Value, out: Value, *operands: Value, **attrs: Any) -> tuple[Value | None, ...]:
        """The cotangents by the composition's own rules."""
        operands = (out,) if self.from_result else operands  # which may have been written over
        present = [k for k, operand in enumerate(operands) if operand is not None]

        def composed(*given: Value) -> Value:
            filled: list[Value] = [None] * len(operands)
            for k, value in zip(present, given):
                filled[k] = value
            return self.composed(*filled, **attrs)

        found: list[Value | None] = [None] * len(operands)
        for k, grad in zip(present, vjp_of(composed, g, *[operands[k] for k in present])):
            found[k] = tied(grad, operands[k]) if self.is_piecewise else grad
        return tuple(found)


def _decline(*arrays: Array | None, **attrs: Any) -> Made:
    return None


def _nothing(*_: Any, **attrs: Any) -> Sequence[Array | None]:
    raise AssertionError("a composite without a forward has no backward")


def whole(
    compose: Callable[..., Value] | None = None,
    *,
    lies: str = "",
    pointwise: bool = False,
    from_result: bool = False,
    once: bool = False,
    rows: bool = False,
    gradient: Callable[..., Value] | None = None,
    spends: bool = False,
) -> Callable[..., Any]:
    """`compose`, computed whole where a definition takes its operands. Its first operand is never None.

    lies: by which rule of `lying.py` the result lies; row-major if it is empty. Others: see Composite.
    """
    told = {"from_result": from_result, "once": once, "rows": rows, "gradient": gradient, "spends": spends}
    declare = functools.partial(_whole, facts={"lies": lies, "pointwise": pointwise, **told})
    return declare if compose is None else declare(compose)


def _whole(compose: Callable[..., Value], facts: dict[str, Any]) -> Callable[..., Value]:
    composite, lies = Composite(compose.__name__.strip("_"), compose, **facts), facts["lies"]
    if (composite.pointwise or composite.rows) and compose.__closure__:
        raise OpDefinitionError(
            f"the compiled composite {composite.name!r} depends on variables around it, which its key does not hold",
            got=", ".join(compose.__code__.co_freevars),
            remedy="hand it what it needs as numbers, by name",
        )
    COMPOSITES[composite.name] = composite

    @functools.wraps(compose)
    def function(*operands: Value, **attrs: Any) -> Value:
        compute = getattr(type(operands[0]), "__whole__", None)
        if compute is not None:
            result = compute(composite, operands, attrs)
            if result is not None:
                if Telling.count:
                    Telling.tell(False, composite, operands, attrs, result)
                return result
        result = composite.composed(*operands, **attrs)
        return as_told(lies, result, operands) if lies else result

    return function


def define(
    name: str,
    forward: Forward,
    backward: Backward,
    *,
    reads: frozenset[int] | None,
    reads_out: bool,
    there: bool = False,
    prepare: Prepare | None = None,
    prepare_backward: Callable[[dict[str, Any]], Callable[..., Any]] | None = None,
) -> None:
    """Give composite `name` its eager definition; there: that on CUDA devices. Raises OpDefinitionError if unknown."""
    if name not in COMPOSITES:
        raise OpDefinitionError(f"no composite {name!r} is declared `whole`")
    composite = COMPOSITES[name]
    if there:
        here = composite
        composite = Composite(
            name,
            here.compose,
            pointwise=here.pointwise,
            from_result=here.from_result,
            once=here.once,
            spends=here.spends,
        )
        composite.is_piecewise = here.is_piecewise
        here.there = composite
    composite.forward, composite.backward, composite.prepare = forward, backward, prepare
    composite.prepare_backward = prepare_backward
    composite.reads, composite.reads_out = reads, reads_out
