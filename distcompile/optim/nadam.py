"""NAdam: Adam with Nesterov momentum. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "mu_product", "exp_avg", "exp_avg_sq".
"mu_product" is kept in float32, as torch keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compiler_core.capture.held_numbers import single
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.adam import moment_numbers, moments
from distcompile.optim.checks import options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars, UpdateRule
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


class NAdamRule(Decaying):
    """NAdam's formula."""

    __slots__ = ()
    state = ("exp_avg", "exp_avg_sq")

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        correction = 1 - group["betas"][1] ** step
        return moment_numbers(group) | {"correction": correction, "eps": group["eps"]} | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        m, v = moments(g, state, s)
        denominator = prims.add(prims.sqrt(prims.div(v, s["correction"])), s["eps"])
        p = prims.add(p, prims.mul(prims.div(g, denominator), s["step_g"]))
        p = prims.add(p, prims.mul(prims.div(m, denominator), s["step_m"]))
        return p, {"exp_avg": m, "exp_avg_sq": v}


@one_step("lr=0.1", "[ 0.8944, -1.8944]")
class NAdam(RuleOptimizer):
    """Adam with Nesterov's momentum: it looks ahead by the next step's.

        μₜ = β₁·(1 - 0.96^(t·momentum_decay)/2);  M ← M·μₜ
        m, v as Adam's
        p ← p - lr · ((1 - μₜ)/(1 - M)·g + μₜ₊₁/(1 - M·μₜ₊₁)·m) / (√(v/(1 - β₂ᵗ)) + eps)

    Args (the others: see `Adam`; there is no amsgrad):
        momentum_decay: how fast μ grows from β₁/2 to β₁.
        decoupled_weight_decay: AdamW's decay.

    State: "step", "mu_product" (M), "exp_avg" (m), "exp_avg_sq" (v). Source: Dozat 2016 (ICLR workshop).
    """

    formula = NAdamRule
    counts_steps = True
    scalar_state = ("mu_product",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals(), order="maximize foreach"))

    def initial(self, name: str, group: Group) -> float:
        return 1.0 if name == "mu_product" else 0.0

    def numbers(
        self, rule: UpdateRule, group: Group, step: int, scalars: tuple[float, ...]
    ) -> tuple[dict[str, Any], tuple[float, ...]]:
        lr, beta1, decay = float(group["lr"]), group["betas"][0], group["momentum_decay"]
        mu, mu_next = (beta1 * (1.0 - 0.5 * (0.96 ** (t * decay))) for t in (step, step + 1))
        product = single(single(scalars[0]) * single(mu))  # that of two float32 is exact in float64
        numbers = rule.numbers(group, step)
        numbers["step_g"] = -lr * (1.0 - mu) / (1.0 - product)
        numbers["step_m"] = -lr * mu_next / (1.0 - product * mu_next)
        return numbers, (product,)
