"""Update rules: the arithmetic of an optimizer, written once over values and run eager or compiled.

In: one parameter, its gradient, its state (arrays or graph nodes), and the numbers of this step. Out: their new values.

A rule's fields are what changes the formula (so they choose the graph); all numbers (learning rate, bias corrections)
are computed on the host in float64 and enter as scalars, so that a schedule never recompiles.
16-bit parameters are updated in float32 and rounded once at the end. A complex parameter is updated as its two parts,
each by itself, as in torch. A rule that is whole (norms, products of matrices: Adafactor, Muon) takes its numbers in
float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from compiler_core.dtype import of
from compiler_core.ops import prims
from compiler_core.ops.registry import Value

Group = Mapping[str, Any]
Scalars = Mapping[str, Value]


class UpdateRule(Protocol):
    """One formula. Frozen and hashable: equal rules share a compiled update."""

    @property
    def state(self) -> tuple[str, ...]:
        """The names of the per-parameter state tensors, each shaped like the parameter and zero at first."""

    @property
    def is_whole(self) -> bool:
        """Whether it looks at a whole parameter at once: an element of a result depends on all of the operands."""

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of state `name` of a parameter of this shape."""

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        """The scalars of step `step` (1 for the first) under a group's options: numbers, or Tensors of one."""

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        """New parameter and new state. All values have p's shape; so have the scalars, expanded. Of a rule that is
        whole, the state has the shapes that it says, and scalars are f64[]."""


class Elementwise:
    """What rules have in common that update each element by itself."""

    __slots__ = ()
    is_whole = False

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The parameter's."""
        return shape


@dataclass(frozen=True, slots=True)
class Decaying(Elementwise):
    """What the rules here have in common. maximize, weight_decay: whether that term is there.

    decoupled: the parameter shrinks, instead of a multiple of it being added to the gradient.
    """

    maximize: bool
    weight_decay: bool
    decoupled: bool

    @classmethod
    def of(cls, group: Group, **own: bool) -> Self:
        """The rule for a group's present options. own: the fields that the rule has beside these."""
        decays = group["weight_decay"] != 0
        return cls(group["maximize"], decays, decays and group.get("decoupled_weight_decay", False), **own)

    def decay(self, group: Group) -> dict[str, Any]:
        """The scalar that `directed` takes, where it takes one."""
        if not self.weight_decay:
            return {}
        decay = group["weight_decay"]
        return {"decay": 1 - group["lr"] * decay if self.decoupled else decay}

    def directed(self, p: Value, g: Value, s: Scalars) -> tuple[Value, Value]:
        """The parameter and the gradient, after maximize and weight decay."""
        if self.maximize:
            g = prims.neg(g)
        if self.weight_decay and self.decoupled:
            p = prims.mul(p, s["decay"])
        elif self.weight_decay:
            g = prims.add(g, prims.mul(p, s["decay"]))
        return p, g


def apply_rule(
    rule: UpdateRule, parameter: Value, gradient: Value, state: Mapping[str, Value], scalars: Scalars
) -> list[Value]:
    """Run a rule on one parameter: scalars f[] are expanded, 16-bit values computed in float32. [parameter, *state]."""
    if of(parameter.dtype).is_complex:
        parts = {name: prims.view_as_real(value) for name, value in state.items()}
        parameter, gradient = prims.view_as_real(parameter), prims.view_as_real(gradient)
        return [prims.view_as_complex(new) for new in apply_rule(rule, parameter, gradient, parts, scalars)]
    shape, stored = tuple(parameter.shape), of(parameter.dtype)
    compute = stored.compute
    expanded = scalars if rule.is_whole else {name: prims.expand(scalar, shape) for name, scalar in scalars.items()}
    if stored is not compute:
        parameter, gradient = prims.cast(parameter, compute), prims.cast(gradient, compute)
        state = {name: prims.cast(value, compute) for name, value in state.items()}
    new_parameter, new_state = rule.update(parameter, gradient, state, expanded)
    outputs = [new_parameter, *(new_state[name] for name in rule.state)]
    return outputs if stored is compute else [prims.cast(output, stored) for output in outputs]
