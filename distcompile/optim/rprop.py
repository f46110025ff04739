"""Rprop: resilient backpropagation. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "prev" (the last gradient), "step_size".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler_core.capture.held_numbers import number_of
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.errors import ArgumentError
from distcompile.optim.checks import check_two, options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Elementwise, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


@dataclass(frozen=True, slots=True)
class RpropRule(Elementwise):
    """Rprop's formula."""

    maximize: bool

    state = ("prev", "step_size")

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        first = number_of(_is_first, step)
        numbers = {"shrink": shrink, "grow": grow, "least": least, "most": most}
        return numbers | {"first": first, "rate": group["lr"]}

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        if self.maximize:
            g = prims.neg(g)
        zero = prims.full_like(p, 0.0)
        agreement = prims.mul(g, state["prev"])
        turned = prims.lt(agreement, zero)
        factor = prims.where(prims.gt(agreement, zero), s["grow"], prims.full_like(p, 1.0))
        is_first = prims.gt(s["first"], zero)
        before = prims.where(is_first, s["rate"], state["step_size"])
        size = prims.mul(before, prims.where(turned, s["shrink"], factor))
        size = prims.minimum(prims.maximum(size, s["least"]), s["most"])
        g = prims.where(turned, zero, g)
        return prims.sub(p, prims.mul(prims.sign(g), size)), {"prev": g, "step_size": size}


def _is_first(step: int) -> float:
    """1 at the first step, whose rate may have changed since the state was made: scaled steps may be left out."""
    return float(step == 1)


@one_step("lr=0.1", "[ 0.9000, -1.9000]")
class Rprop(RuleOptimizer):
    """Steps by the sign of the gradient alone. For full batches: noise turns signs.

        g·(last g) > 0:  Δ ← Δ·η⁺
        g·(last g) < 0:  Δ ← Δ·η⁻, and g ← 0: no move
        Δ ← Δ clamped to step_sizes
        p ← p - sign(g)·Δ

    Args (the others: see `Optimizer`):
        lr: Δ at first.
        etas: (η⁻, η⁺), 0 < η⁻ < 1 < η⁺.
        step_sizes: the least and the largest Δ.

    State: "step", "prev" (the last g), "step_size" (Δ). Source: Riedmiller, Braun 1993 (ICNN).
    """

    counts_steps = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        given = options(locals(), order="foreach maximize differentiable capturable")
        check_two("etas", etas)
        check_two("step_sizes", step_sizes)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ArgumentError(f"Invalid eta values: {etas[0]}, {etas[1]}", expected="0 < eta[0] < 1 < eta[1]")
        super().__init__(params, given)

    def rule(self, group: Group) -> RpropRule:
        return RpropRule(group["maximize"])

    def initial(self, name: str, group: Group) -> float:
        return float(group["lr"]) if name == "step_size" else 0.0
