"""Update rules: the arithmetic of an optimizer, written once over values and run eager or compiled.

In: one parameter, its gradient, its state (arrays or graph nodes), and the numbers of this step. Out: their new values.

A rule's fields are what changes the formula (so they choose the graph); all numbers (learning rate, bias corrections)
are computed on the host in float64 and enter as scalars, so that a schedule never recompiles.
16-bit parameters are updated in float32 and rounded once at the end. A complex parameter is updated as its two parts,
each by itself, as in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

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

    def numbers(self, group: Group, step: int) -> dict[str, float]:
        """The scalars of step `step` (1 for the first) under a group's options."""

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        """New parameter and new state. All values have p's shape; so have the scalars, expanded."""


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
    expanded = {name: prims.expand(scalar, shape) for name, scalar in scalars.items()}
    if stored is not compute:
        parameter, gradient = prims.cast(parameter, compute), prims.cast(gradient, compute)
        state = {name: prims.cast(value, compute) for name, value in state.items()}
    new_parameter, new_state = rule.update(parameter, gradient, state, expanded)
    outputs = [new_parameter, *(new_state[name] for name in rule.state)]
    return outputs if stored is compute else [prims.cast(output, stored) for output in outputs]
