"""ASGD: averaged stochastic gradient descent. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "eta", "mu", "ax" (the average of p).
"eta" and "mu" are kept in float32, as torch keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compiler_core.capture.held_numbers import number_of, single
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.optim.checks import options
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars, UpdateRule
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


class ASGDRule(Decaying):
    """ASGD's formula."""

    __slots__ = ()
    state = ("ax",)

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        return self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        p = prims.add(prims.mul(p, s["shrink"]), prims.mul(g, s["step_size"]))
        average = prims.add(state["ax"], prims.mul(prims.sub(p, state["ax"]), s["mu"]))
        is_copy = prims.eq(s["mu"], prims.full_like(p, 1.0))
        return p, {"ax": prims.where(is_copy, p, average)}


def _rate_at(step: int, lr: float, eta: float) -> float:
    """η; at the first step the rate, which may have changed since the state was made: scaled steps are left out."""
    return single(lr) if step == 1 else eta


class ASGD(RuleOptimizer):
    """Gradient descent that also keeps an average of the parameters.

        p ← p·(1 - lambd·η) - η·g
        a ← a + μ·(p - a)        while μ is 1: a ← p
        then η ← lr/(1 + lambd·lr·t)^alpha,  μ ← 1/max(1, t - t0)

    Args (the others: see `Optimizer`):
        lambd, alpha: how the rate η falls.
        t0: the step from which on there is an average; before that a is p.

    The average of p is `optimizer.state[p]["ax"]`. State: "step", "eta" (η), "mu" (μ), "ax" (a).
    Source: Polyak, Juditsky 1992 (SIAM J. Control Optim. 30).

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = torch.optim.ASGD([w], lr=0.25, t0=0)
        >>> for step in range(2):
        ...     optimizer.zero_grad()
        ...     w.square().sum().backward()
        ...     optimizer.step()
        >>> w.detach(), optimizer.state[w]["ax"]
        (tensor([0.2500]), tensor([0.2500]))
    """

    formula = ASGDRule
    counts_steps = True
    scalar_state = ("eta", "mu")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def initial(self, name: str, group: Group) -> float:
        return {"eta": float(group["lr"]), "mu": 1.0}.get(name, 0.0)

    def numbers(
        self, rule: UpdateRule, group: Group, step: int, scalars: tuple[float, ...]
    ) -> tuple[dict[str, Any], tuple[float, ...]]:
        eta, mu = scalars
        lr, lambd = float(group["lr"]), group["lambd"]
        eta = number_of(_rate_at, step, lr, eta)
        numbers = {**rule.numbers(group, step), "shrink": 1 - lambd * eta, "step_size": -eta, "mu": mu}
        return numbers, (lr / (1 + lambd * lr * step) ** group["alpha"], 1 / max(1.0, float(step - group["t0"])))
