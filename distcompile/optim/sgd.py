"""SGD with momentum, Nesterov's variant, weight decay. The formulas and the state dict are torch's.

In: parameters and gradients, which may be sparse. Out: updated parameters; state "momentum_buffer".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.optim.checks import options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


@dataclass(frozen=True, slots=True)
class SGDRule(Decaying):
    """SGD's formula. Each flag: whether that term is there."""

    momentum: bool
    nesterov: bool

    @property
    def state(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum else ()

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        numbers = {"step_size": -group["lr"]} | self.decay(group)
        if self.momentum:
            numbers["momentum"] = group["momentum"]
            numbers["fresh"] = 1.0 if step == 1 else 1.0 - group["dampening"]
        return numbers

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        if not self.momentum:
            return prims.add(p, prims.mul(g, s["step_size"])), {}
        buffer = prims.add(prims.mul(state["momentum_buffer"], s["momentum"]), prims.mul(g, s["fresh"]))
        direction = prims.add(g, prims.mul(buffer, s["momentum"])) if self.nesterov else buffer
        return prims.add(p, prims.mul(direction, s["step_size"])), {"momentum_buffer": buffer}


@one_step("lr=0.1, momentum=0.9", "[ 0.8000, -1.6000]")
class SGD(RuleOptimizer):
    """Stochastic gradient descent, with momentum.

        g ← g + weight_decay·p
        b ← momentum·b + (1 - dampening)·g        at the first step: b ← g
        g ← g + momentum·b (nesterov), else b     without momentum: g as it is
        p ← p - lr·g

    Args (the others: see `Optimizer`):
        momentum: how much of the last direction is kept; 0: there is no state.
        dampening: how much of a new gradient is left out of the direction.
        nesterov: look ahead by one more momentum; needs momentum > 0 and dampening 0.

    A gradient may be sparse, without weight decay. State: "momentum_buffer".
    Source: Sutskever, Martens, Dahl, Hinton 2013 (ICML), section 2.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        given = options(locals())
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, given)

    def rule(self, group: Group) -> SGDRule:
        return SGDRule.of(group, momentum=group["momentum"] != 0, nesterov=group["nesterov"])

    def update_sparse(self, group: Group, parameter: Tensor, gradient: Tensor) -> None:
        """As above, of the rows in the gradient; the buffer is sparse too. Raises SparseError with weight decay."""
        grad: Any = -gradient if group["maximize"] else gradient.detach()
        if group["weight_decay"]:
            grad = grad.add(parameter, alpha=group["weight_decay"])  # which torch refuses, too
        if group["momentum"]:
            state = self.state[parameter]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.clone()
            else:
                buffer.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        parameter.add_(grad, alpha=-float(group["lr"]))

    def is_made_ahead(self, group: Group) -> bool:
        return not group["dampening"]

    def step_number(self, state: dict[str, Any]) -> int:
        """1 for the step that makes the momentum buffer, 2 afterwards: torch keeps no count."""
        return 1 if state.get("momentum_buffer") is None else 2
