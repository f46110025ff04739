"""Adadelta. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "square_avg", "acc_delta".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.errors import ArgumentError
from distcompile.optim.checks import options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


class AdadeltaRule(Decaying):
    """Adadelta's formula."""

    __slots__ = ()
    state = ("square_avg", "acc_delta")

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        rho = group["rho"]
        numbers = {"rho": rho, "fresh": 1 - rho, "eps": group["eps"], "step_size": -group["lr"]}
        return numbers | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        v = prims.add(prims.mul(state["square_avg"], s["rho"]), prims.mul(prims.mul(g, g), s["fresh"]))
        moved = state["acc_delta"]
        ratio = prims.div(prims.sqrt(prims.add(moved, s["eps"])), prims.sqrt(prims.add(v, s["eps"])))
        delta = prims.mul(ratio, g)
        moved = prims.add(prims.mul(moved, s["rho"]), prims.mul(prims.mul(delta, delta), s["fresh"]))
        return prims.add(p, prims.mul(delta, s["step_size"])), {"square_avg": v, "acc_delta": moved}


@one_step("lr=10.0", "[ 0.9684, -1.9684]")
class Adadelta(RuleOptimizer):
    """Gradients times the ratio of past steps to past gradients, so that a step is in the parameter's own unit.

        v ← rho·v + (1 - rho)·g²
        Δ ← √(u + eps)/√(v + eps)·g
        u ← rho·u + (1 - rho)·Δ²
        p ← p - lr·Δ

    Args (the others: see `Optimizer`):
        rho: how much of the means v and u is kept, in [0, 1].
        eps: under both roots; it sets the size of the first steps.

    State: "step", "square_avg" (v), "acc_delta" (u). Source: Zeiler 2012 (arXiv:1212.5701), algorithm 1.
    """

    formula = AdadeltaRule
    counts_steps = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        given = options(locals(), order="maximize capturable foreach")
        if not 0 <= rho <= 1:
            raise ArgumentError(f"Invalid rho value: {rho}", expected="0 <= rho <= 1")
        super().__init__(params, given)
