"""The vjp of a function that is written with ops, from the ops' own rules: for rules of ops that are a composition.

In: a function of values, the cotangent of its result, its operands (arrays, graph nodes or Tensors). Out: a cotangent
for each operand, None where the result does not depend on it. The function runs once on `Recorded` values, which apply
every op to what they hold and note it; then the rules run in reverse. What it records is plain values, so the result
can be differentiated again if they can. Method: reverse mode as an interpreter, as in JAX's autodidax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Attrs, NotDifferentiable, Op, Value, bind


class Recorded:
    """A value, and the ops that were applied so far, which all values of one run share."""

    __slots__ = ("log", "value")
    __bind_priority__ = 4

    def __init__(self, value: Value, log: list[tuple[Op, tuple[Value, ...], Attrs, Recorded]]) -> None:
        self.value, self.log = value, log

    @property
    def shape(self) -> Any:
        return self.value.shape

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Recorded:
        log = next(value.log for value in values if isinstance(value, Recorded))
        out = Recorded(bind(op, *map(_held, values), **attrs), log)
        log.append((op, values, attrs, out))
        return out


def _held(value: Value) -> Value:
    return value.value if isinstance(value, Recorded) else value


def vjp_of(function: Callable[..., Value], g: Value, *operands: Value) -> tuple[Value | None, ...]:
    """The cotangents of `operands`, if that of function(*operands) is `g`."""
    return vjps_of(lambda values: [function(*values)], [g], operands)


def vjps_of(
    function: Callable[[Sequence[Value]], Sequence[Value]], gs: Sequence[Value | None], operands: Sequence[Value]
) -> tuple[Value | None, ...]:
    """The cotangents of `operands`, if those of the results of function(operands) are `gs`; None: zeros."""
    log: list[tuple[Op, tuple[Value, ...], Attrs, Recorded]] = []
    given = [Recorded(operand, log) for operand in operands]
    cotangents: dict[int, Value] = {}

    def add(value: Value, part: Value | None) -> None:
        if isinstance(value, Recorded) and part is not None:
            have = cotangents.get(id(value))
            cotangents[id(value)] = part if have is None else prims.add(have, part)

    results = function(given)
    for result, g in zip(results, gs, strict=True):
        add(result, g)
    for op, values, attrs, out in reversed(log):
        grad = cotangents.pop(id(out), None)
        if grad is None or isinstance(op.vjp, NotDifferentiable):
            continue
        for value, part in zip(values, op.vjp(grad, out.value, *map(_held, values), **attrs), strict=True):
            add(value, part)
    return tuple(cotangents.get(id(value)) for value in given)
