"""Adamax: Adam with the infinity norm. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "exp_avg", "exp_inf".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.checks import options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


class AdamaxRule(Decaying):
    """Adamax's formula."""

    __slots__ = ()
    state = ("exp_avg", "exp_inf")

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        step_size = -group["lr"] / (1 - beta1**step)
        numbers = {"fresh": 1 - beta1, "beta2": beta2, "eps": group["eps"], "step_size": step_size}
        return numbers | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        m = prims.add(state["exp_avg"], prims.mul(prims.sub(g, state["exp_avg"]), s["fresh"]))
        u = prims.maximum(prims.mul(state["exp_inf"], s["beta2"]), prims.add(prims.abs(g), s["eps"]))
        return prims.add(p, prims.mul(prims.div(m, u), s["step_size"])), {"exp_avg": m, "exp_inf": u}


@one_step("lr=0.1", "[ 0.9000, -1.9000]")
class Adamax(RuleOptimizer):
    """Adam whose second moment is a decaying maximum of |g|.

        m ← β₁·m + (1 - β₁)·g
        u ← max(β₂·u, |g| + eps)
        p ← p - lr · m/(1 - β₁ᵗ) / u

    Args: as Adam's. State: "step", "exp_avg" (m), "exp_inf" (u). Source: Kingma, Ba 2015 (ICLR), section 7.1.
    """

    formula = AdamaxRule
    counts_steps = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))
