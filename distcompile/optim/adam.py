"""Adam and AdamW. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "exp_avg", "exp_avg_sq" (and "max_exp_avg_sq").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.checks import check_alike, check_betas, check_tensors, options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


def moment_numbers(group: Group) -> dict[str, Any]:
    """The scalars that `moments` takes."""
    beta1, beta2 = group["betas"]
    return {"fresh1": 1 - beta1, "beta2": beta2, "fresh2": 1 - beta2}


def moments(g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, Value]:
    """m and v after this gradient."""
    m, v = state["exp_avg"], state["exp_avg_sq"]
    m = prims.add(m, prims.mul(prims.sub(g, m), s["fresh1"]))
    return m, prims.add(prims.mul(v, s["beta2"]), prims.mul(prims.mul(g, g), s["fresh2"]))


@dataclass(frozen=True, slots=True)
class AdamRule(Decaying):
    """Adam's formula. weight_decay, decoupled: which decay term there is."""

    amsgrad: bool

    @property
    def state(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if self.amsgrad else ("exp_avg", "exp_avg_sq")

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        numbers = {
            "root_scale": 1 / math.sqrt(1 - beta2**step),
            "eps": group["eps"],
            "step_size": -group["lr"] / (1 - beta1**step),
        }
        return moment_numbers(group) | numbers | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        m, v = moments(g, state, s)
        new = {"exp_avg": m, "exp_avg_sq": v}
        if self.amsgrad:
            v = new["max_exp_avg_sq"] = prims.maximum(state["max_exp_avg_sq"], v)
        denominator = prims.add(prims.mul(prims.sqrt(v), s["root_scale"]), s["eps"])
        return prims.add(p, prims.mul(prims.div(m, denominator), s["step_size"])), new


@one_step("lr=0.1", "[ 0.9000, -1.9000]")
class Adam(RuleOptimizer):
    """Adam: steps by a mean of gradients, divided by the root of a mean of their squares.

        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·g²
        p ← p - lr · m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + eps)        t: the number of the step, from 1

    Args (the others: see `Optimizer`):
        betas: (β₁, β₂), each in [0, 1).
        eps: added to the root.
        weight_decay: added to the gradient; decoupled_weight_decay=True: AdamW's.
        amsgrad: divide by the largest v so far.

    State: "step", "exp_avg" (m), "exp_avg_sq" (v), "max_exp_avg_sq" (amsgrad). Sparse gradients: see `SparseAdam`.
    Source: Kingma, Ba 2015 (ICLR), algorithm 1; amsgrad: Reddi, Kale, Kumar 2018 (ICLR).
    """

    counts_steps = True
    refusal = "Adam does not support sparse gradients, please consider SparseAdam instead"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        given = options(locals(), order="maximize foreach")
        check_betas(betas)
        check_alike({"betas": betas})
        check_tensors({"lr": lr, "betas[0]": betas[0], "betas[1]": betas[1]}, bool(foreach) and not capturable)
        super().__init__(params, given)

    def rule(self, group: Group) -> AdamRule:
        return AdamRule.of(group, amsgrad=group["amsgrad"])


@one_step("lr=0.1, weight_decay=0.5", "[ 0.8500, -1.8000]")
class AdamW(Adam):
    """Adam with decoupled weight decay: the parameter shrinks by itself, not through the gradient.

        p ← p·(1 - lr·weight_decay), then Adam's step

    Args: as Adam's; weight_decay is 0.01 unless given.
    Source: Loshchilov, Hutter 2019 (ICLR), algorithm 2.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, **options(locals()), decoupled_weight_decay=True)
