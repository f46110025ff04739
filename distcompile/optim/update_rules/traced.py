"""What a step in a graph does with tensors (`in_graph.py`); these functions run as they are, and record themselves.

In: a parameter, its gradient, its state, the scalars of the step. Out: writes to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.ops.composites.logic import where
from compiler_core.ops.registry import Value
from compiler_core.overrides.state import other_layouts
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import zeros_like
from compiler_core.tensor.tensor import Tensor
from distcompile.optim.update_rules.rule import UpdateRule, apply_rule


def fits_graph(parameter: Tensor, gradient: Tensor | None) -> bool:
    """Whether the update of a parameter may be part of a graph: not a sparse one."""
    return gradient is None or (not is_sparse(gradient) and parameter.device == gradient.device)


def is_sparse(gradient: Tensor | None) -> bool:
    """Whether it is none that strided code computes with."""
    return type(gradient) in other_layouts


def may_travel(parameter: Tensor) -> bool:
    """Whether its gradient may be on its way between ranks when a step begins, which need not wait for it."""
    owner = None if parameter._hooks is None else parameter._hooks.owner
    if owner is None:
        return False
    return parameter.is_cuda or any(strategy.parameters_may_wait for strategy in owner.strategies())


def make_state(optimizer: Any) -> None:
    """Make the tensors that the first steps of parameters need which have a gradient now."""
    for group in optimizer.param_groups:
        if not optimizer.is_made_ahead(group):
            continue
        of_group = optimizer.rule(group)
        for parameter in group["params"]:
            rule = optimizer.rule_of(of_group, parameter)
            if parameter._grad is not None and (optimizer.counts_steps or optimizer.scalar_state or rule.state):
                optimizer._make_state(parameter, optimizer.state[parameter], rule, group)


def zeros_traced(parameter: Tensor) -> Tensor:
    """State that the graph makes."""
    with no_grad():
        return zeros_like(parameter)


def update_traced(
    rule: UpdateRule,
    parameter: Tensor,
    gradient: Tensor,
    state: Sequence[Tensor],
    scalars: Mapping[str, Value],
    found: Tensor | None,
) -> None:
    """Write the new values of a parameter and its state; where `found`, bool[], holds, the old ones."""
    with no_grad():
        named = dict(zip(rule.state, state, strict=True))
        results: Any = apply_rule(rule, parameter, gradient, named, scalars)
        for written, result in zip([parameter, *state], results, strict=True):
            written._assign(result if found is None else where(found.to(written.device), written, result))
