"""RAdam: Adam with its variance rectified. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "exp_avg", "exp_avg_sq".
Which branch a step takes is a number of the step, so that it does not choose the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.adam import moment_numbers, moments
from distcompile.optim.checks import options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


class RAdamRule(Decaying):
    """RAdam's formula."""

    __slots__ = ()
    state = ("exp_avg", "exp_avg_sq")

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction
        numbers = {
            "eps": group["eps"],
            "step_size": -group["lr"] / (1 - beta1**step),
            "adaptive": _rectification(length, longest) * math.sqrt(correction) if length > 5 else 0.0,
        }
        return moment_numbers(group) | numbers | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        m, v = moments(g, state, s)
        rate = prims.div(s["adaptive"], prims.add(prims.sqrt(v), s["eps"]))
        is_adaptive = prims.gt(s["adaptive"], prims.full_like(p, 0.0))
        rate = prims.where(is_adaptive, rate, prims.full_like(p, 1.0))
        return prims.add(p, prims.mul(prims.mul(m, rate), s["step_size"])), {"exp_avg": m, "exp_avg_sq": v}


def _rectification(length: float, longest: float) -> float:
    """r, for the length ρ > 5 of the averaged window and its limit ρ∞."""
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))


@one_step("lr=0.1", "[ 0.8000, -1.6000]")
class RAdam(RuleOptimizer):
    """Adam that makes plain momentum steps until its second moment can be trusted.

        m, v as Adam's;  ρ∞ = 2/(1 - β₂) - 1;  ρ = ρ∞ - 2·t·β₂ᵗ/(1 - β₂ᵗ)
        ρ > 5:  p ← p - lr · m/(1 - β₁ᵗ) · r·√(1 - β₂ᵗ)/(√v + eps)
        else:   p ← p - lr · m/(1 - β₁ᵗ)
        r = √((ρ - 4)(ρ - 2)·ρ∞ / ((ρ∞ - 4)(ρ∞ - 2)·ρ))

    Args: as Adam's, without amsgrad; decoupled_weight_decay: AdamW's decay.
    State: "step", "exp_avg" (m), "exp_avg_sq" (v). Source: Liu et al. 2020 (ICLR), algorithm 2.
    """

    formula = RAdamRule
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
        super().__init__(params, options(locals(), order="maximize foreach capturable decoupled_weight_decay"))
