"""RAdam: Adam with its variance rectified. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "exp_avg", "exp_avg_sq".
    m, v as Adam's;  ρ∞ = 2/(1-β₂) - 1;  ρ = ρ∞ - 2tβ₂ᵗ/(1-β₂ᵗ);
    p ← p - lr/(1-β₁ᵗ)·m·[ρ > 5: r·√(1-β₂ᵗ)/(√v + eps)],  r = √((ρ-4)(ρ-2)ρ∞ / ((ρ∞-4)(ρ∞-2)ρ)).     Liu et al. 2020.
Which branch a step takes is a number of the step, so that it does not choose the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.checks import check_betas, check_not_negative
from distcompile.optim.update_rules.rule import Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


@dataclass(frozen=True, slots=True)
class RAdamRule:
    """RAdam's formula. weight_decay, decoupled: which decay term there is."""

    maximize: bool
    weight_decay: bool
    decoupled: bool

    @property
    def state(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def numbers(self, group: Group, step: int) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        lr, decay = group["lr"], group["weight_decay"]
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction
        numbers = {
            "fresh1": 1 - beta1,
            "beta2": beta2,
            "fresh2": 1 - beta2,
            "eps": group["eps"],
            "step_size": -lr / (1 - beta1**step),
            "adaptive": _rectification(length, longest) * math.sqrt(correction) if length > 5 else 0.0,
        }
        if self.weight_decay:
            numbers["decay"] = 1 - lr * decay if self.decoupled else decay
        return {name: float(number) for name, number in numbers.items()}

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        if self.maximize:
            g = prims.neg(g)
        if self.weight_decay and self.decoupled:
            p = prims.mul(p, s["decay"])
        elif self.weight_decay:
            g = prims.add(g, prims.mul(p, s["decay"]))
        m, v = state["exp_avg"], state["exp_avg_sq"]
        m = prims.add(m, prims.mul(prims.sub(g, m), s["fresh1"]))
        v = prims.add(prims.mul(v, s["beta2"]), prims.mul(prims.mul(g, g), s["fresh2"]))
        rate = prims.div(s["adaptive"], prims.add(prims.sqrt(v), s["eps"]))
        is_adaptive = prims.gt(s["adaptive"], prims.full_like(p, 0.0))
        rate = prims.where(is_adaptive, rate, prims.full_like(p, 1.0))
        return prims.add(p, prims.mul(prims.mul(m, rate), s["step_size"])), {"exp_avg": m, "exp_avg_sq": v}


def _rectification(length: float, longest: float) -> float:
    """r, for the length ρ > 5 of the averaged window and its limit ρ∞."""
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))


class RAdam(RuleOptimizer):
    """Adam that takes plain momentum steps until its second moment can be trusted."""

    counts_steps = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative({"learning rate": lr, "epsilon value": eps})
        check_betas(betas)
        check_not_negative({"weight_decay value": weight_decay})
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def rule(self, group: Group) -> RAdamRule:
        decays = group["weight_decay"] != 0
        return RAdamRule(group["maximize"], decays, decays and group["decoupled_weight_decay"])
