"""RMSprop. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "square_avg" (and "momentum_buffer", "grad_avg").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.checks import check_not_negative, options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


@dataclass(frozen=True, slots=True)
class RMSpropRule(Decaying):
    """RMSprop's formula. Each flag: whether that term is there."""

    momentum: bool
    centered: bool

    @property
    def state(self) -> tuple[str, ...]:
        extra = {"momentum_buffer": self.momentum, "grad_avg": self.centered}
        return ("square_avg", *(name for name, there in extra.items() if there))

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        alpha = group["alpha"]
        numbers = {"alpha": alpha, "fresh": 1 - alpha, "eps": group["eps"], "step_size": -group["lr"]}
        if self.momentum:
            numbers["momentum"] = group["momentum"]
        return numbers | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        v = prims.add(prims.mul(state["square_avg"], s["alpha"]), prims.mul(prims.mul(g, g), s["fresh"]))
        new = {"square_avg": v}
        if self.centered:
            mean = state["grad_avg"]
            mean = new["grad_avg"] = prims.add(mean, prims.mul(prims.sub(g, mean), s["fresh"]))
            v = prims.sub(v, prims.mul(mean, mean))
        direction = prims.div(g, prims.add(prims.sqrt(v), s["eps"]))
        if self.momentum:
            direction = prims.add(prims.mul(state["momentum_buffer"], s["momentum"]), direction)
            new["momentum_buffer"] = direction
        return prims.add(p, prims.mul(direction, s["step_size"])), new


@one_step("lr=0.05", "[ 0.5000, -1.5000]")
class RMSprop(RuleOptimizer):
    """Gradients divided by the root of their running mean square.

        v ← alpha·v + (1 - alpha)·g²
        centered: c ← c + (1 - alpha)·(g - c), and below v - c² in the place of v
        b ← momentum·b + g/(√v + eps)
        p ← p - lr·b

    Args (the others: see `Optimizer`):
        alpha: how much of the means is kept.
        eps: added to the root.
        momentum: how much of the last direction is kept.
        centered: divide by the root of the variance.

    State: "step", "square_avg" (v), "momentum_buffer" (b, with momentum), "grad_avg" (c, if centered).
    Source: Hinton 2012 (lecture notes, 6e); centered: Graves 2013 (arXiv:1308.0850).
    """

    counts_steps = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        given = options(locals(), order="momentum alpha eps centered weight_decay")
        check_not_negative({"alpha value": alpha})
        super().__init__(params, given)

    def rule(self, group: Group) -> RMSpropRule:
        return RMSpropRule.of(group, momentum=group["momentum"] > 0, centered=group["centered"])
