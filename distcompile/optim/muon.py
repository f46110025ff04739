"""Muon: momentum, orthogonalised by Newton-Schulz, for matrices. Formulas, defaults and state dict are torch's.

In: 2-d parameters and gradients. Out: updated parameters; state "momentum_buffer".
    b ← b + (1-momentum)(g - b);  u = g + momentum·(b - g) (nesterov) or b;  O = NS(u);  p ← p(1 - lr·decay) - lr'·O,
    lr' = lr·√max(1, rows/columns) ("original"), or 0.2·lr·√max(rows, columns) ("match_rms_adamw").
The iteration runs in bfloat16, as torch's: every product is rounded to it. Source: Jordan et al. 2024 (Muon).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.dtype import bfloat16, float32, float64, of
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from distcompile.errors import ArgumentError
from distcompile.optim.checks import options
from distcompile.optim.update_rules.rule import Elementwise, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer

EPS = 1e-7
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


@dataclass(frozen=True, slots=True)
class MuonRule(Elementwise):
    """Muon's formula. steps: of the iteration. adjust: the name of the rate's factor."""

    nesterov: bool
    steps: int
    adjust: str | None
    is_whole = True
    state = ("momentum_buffer",)

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        lr, (a, b, c) = group["lr"], group["ns_coefficients"]
        numbers = {"lr": lr, "decay": 1 - lr * group["weight_decay"], "momentum": group["momentum"]}
        return numbers | {"a": a, "b": b, "c": c, "eps": group["eps"]}

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        dtype = of(p.dtype)
        momentum, fresh = (prims.cast(x, dtype) for x in (s["momentum"], F.sub(1.0, s["momentum"])))
        buffer = state["momentum_buffer"]
        buffer = F.add(buffer, F.mul(F.sub(g, buffer), fresh))
        direction = F.add(g, F.mul(F.sub(buffer, g), momentum)) if self.nesterov else buffer
        coefficients = [prims.cast(s[name], float32) for name in "abc"]
        direction = orthogonalized(direction, coefficients, self.steps, prims.cast(s["eps"], float32))
        rate = prims.cast(F.mul(s["lr"], _rate_factor(self.adjust, p.shape)), dtype)
        new = F.sub(F.mul(p, prims.cast(s["decay"], dtype)), F.mul(prims.cast(direction, dtype), rate))
        return new, {"momentum_buffer": buffer}


class Muon(RuleOptimizer):
    """Momentum whose direction is made orthogonal: for the matrices of hidden layers.

        b ← b + (1 - momentum)·(g - b)
        u = g + momentum·(b - g) (nesterov), else b
        O = about U·Vᵀ, where u = U·S·Vᵀ: ns_steps of Newton-Schulz's iteration, in bfloat16
        p ← p·(1 - lr·weight_decay) - lr·r·O

    Args:
        params: of shape [m, n]; biases, embeddings and the last layer take another optimizer.
        ns_coefficients: (a, b, c) of X ← a·X + (b·A + c·A²)·X, where A = X·Xᵀ.
        eps: the least norm by which the iteration's start is divided.
        ns_steps: fewer than 100.
        adjust_lr_fn: r. "original" or None: √max(1, m/n); "match_rms_adamw": 0.2·√max(m, n), for AdamW's rates.

    Raises: ArgumentError for a parameter that is no matrix. State: "momentum_buffer" (b).
    Source: Jordan et al. 2024 (Muon); "match_rms_adamw": Liu et al. 2025 (arXiv:2502.16982).

    Example:
        >>> w = torch.nn.Parameter(torch.eye(2))
        >>> optimizer = torch.optim.Muon([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([[0.8775, 0.0000],
                [0.0000, 0.8775]])
    """

    takes_complex = False
    number_dtype = float64

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
        eps: float = EPS,
        ns_steps: int = STEPS,
        adjust_lr_fn: str | None = None,
    ) -> None:
        given = options(locals())
        for name, number in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not number >= 0:
                raise ArgumentError(f"{name} should be >= 0 but is: {number}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100 or len(ns_coefficients) != 3:
            raise ArgumentError("Newton-Schulz takes fewer than 100 steps and 3 coefficients", got=f"{ns_steps} steps")
        super().__init__(params, given)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.dim() != 2:
                    raise ArgumentError(
                        "Muon only supports 2D parameters", got=f"a parameter of size {tuple(parameter.shape)}"
                    )

    def rule(self, group: Group) -> MuonRule:
        return MuonRule(group["nesterov"], group["ns_steps"], group["adjust_lr_fn"])

    def step_number(self, state: dict[str, Any]) -> int:
        """1: no number depends on it."""
        return 1


def orthogonalized(g: Value, coefficients: Sequence[Value], steps: int, eps: Value) -> Value:
    """About U·Vᵀ of g = U·S·Vᵀ, f32[m, n]: X ← aX + (bA + cA²)X with A = X·Xᵀ, from X = g/‖g‖, in bfloat16.

    coefficients: a, b, c, f32[]; eps: f32[].
    """
    a, b, c = coefficients
    is_tall = g.shape[0] > g.shape[1]
    x = _rounded(F.transpose(g, 0, 1) if is_tall else g)
    norm = _rounded(F.maximum(_rounded(F.sqrt(F.sum(F.mul(x, x)))), eps))
    x = _rounded(F.div(x, norm))
    for _ in range(steps):
        gram = _rounded(F.matmul(x, F.transpose(x, 0, 1)))
        change = _rounded(F.add(F.mul(gram, b), F.mul(F.matmul(gram, gram), c)))
        x = _rounded(F.add(F.mul(x, a), F.matmul(change, x)))
    return F.transpose(x, 0, 1) if is_tall else x


def _rounded(x: Value) -> Value:
    """x rounded to bfloat16, in float32."""
    return prims.cast(prims.cast(x, bfloat16), float32)


def _rate_factor(name: str | None, shape: tuple[int, ...]) -> float:
    rows, columns = shape
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
