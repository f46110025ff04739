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
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler_core.errors import OpDefinitionError
from compiler_core.late import Late
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.lying import as_told
from compiler_core.ops.primitives.tied import tied
from compiler_core.ops.registry import Array, Value

Made: TypeAlias = tuple[Array, tuple[Array, ...]] | None
Forward: TypeAlias = Callable[..., Made]
Backward: TypeAlias = Callable[..., Sequence[Array | None] | None]

DEFINITIONS: Late[bool] = Late("composites: eager definitions")  # to load it defines them
DEFINITIONS_THERE: Late[bool] = Late("composites: definitions on a device")
COMPOSITES: dict[str, Composite] = {}


class Composite:
    """One composite, whole. `vjp` has the form of an op's: the tape treats it as one. there: that of CUDA devices.

    is_piecewise: it consists of straight lines, so that its gradient depends on its operand without a slope (tied.py).
    """

    __slots__ = ("backward", "compose", "forward", "is_piecewise", "lies", "name", "reads", "reads_out", "there")
    remakes_out = False

    def __init__(self, name: str, compose: Callable[..., Value], lies: str = "") -> None:
        self.name, self.compose, self.lies = name, compose, lies
        self.forward: Forward = self._define
        self.backward: Backward = _nothing
        self.reads: frozenset[int] | None = None
        self.reads_out = False
        self.there: Composite | None = None
        self.is_piecewise = False

    def on_device(self) -> Composite | None:
        """Its definition for arrays of a CUDA device; None where there is none."""
        if self.there is None:
            DEFINITIONS_THERE.get()
        return self.there

    def _define(self, *arrays: Array | None, **attrs: Any) -> Made:
        """The first call of any: load the definitions."""
        DEFINITIONS.get()
        for composite in COMPOSITES.values():
            if composite.forward == composite._define:
                composite.forward = _decline
        return self.forward(*arrays, **attrs)

    def vjp(self, g: Value, out: Value, *operands: Value, **attrs: Any) -> tuple[Value | None, ...]:
        """The cotangents by the composition's own rules."""
        present = [k for k, operand in enumerate(operands) if operand is not None]

        def composed(*given: Value) -> Value:
            filled: list[Value] = [None] * len(operands)
            for k, value in zip(present, given):
                filled[k] = value
            return self.compose(*filled, **attrs)

        found: list[Value | None] = [None] * len(operands)
        for k, grad in zip(present, vjp_of(composed, g, *[operands[k] for k in present])):
            found[k] = tied(grad, operands[k]) if self.is_piecewise else grad
        return tuple(found)


def _decline(*arrays: Array | None, **attrs: Any) -> Made:
    return None


def _nothing(*_: Any, **attrs: Any) -> Sequence[Array | None]:
    raise AssertionError("a composite without a forward has no backward")


def whole(compose: Callable[..., Value] | None = None, *, lies: str = "") -> Callable[..., Any]:
    """`compose`, computed whole where a definition takes its operands. Its first operand is never None.

    lies: by which rule of `lying.py` the result lies; row-major if it is empty.
    """
    return functools.partial(_whole, lies=lies) if compose is None else _whole(compose, lies)


def _whole(compose: Callable[..., Value], lies: str) -> Callable[..., Value]:
    composite = Composite(compose.__name__.strip("_"), compose, lies)
    COMPOSITES[composite.name] = composite

    @functools.wraps(compose)
    def function(*operands: Value, **attrs: Any) -> Value:
        compute = getattr(type(operands[0]), "__whole__", None)
        if compute is not None:
            result = compute(composite, operands, attrs)
            if result is not None:
                return result
        result = compose(*operands, **attrs)
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
) -> None:
    """Give composite `name` its eager definition; there: that on CUDA devices. Raises OpDefinitionError if unknown."""
    if name not in COMPOSITES:
        raise OpDefinitionError(f"no composite {name!r} is declared `whole`")
    composite = COMPOSITES[name]
    if there:
        composite.there = composite = Composite(name, composite.compose)
    composite.forward, composite.backward = forward, backward
    composite.reads, composite.reads_out = reads, reads_out
