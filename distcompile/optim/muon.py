"""Muon: momentum, orthogonalised by Newton-Schulz, for matrices. Formulas, defaults and state dict are torch's.

In: 2-d parameters and gradients. Out: updated parameters; state "momentum_buffer".
    b ← b + (1-momentum)(g - b);  u = g + momentum·(b - g) (nesterov) or b;  O = NS(u);  p ← p(1 - lr·decay) - lr'·O,
    lr' = lr·√max(1, rows/columns) ("original"), or 0.2·lr·√max(rows, columns) ("match_rms_adamw").
The iteration runs in bfloat16, as torch's: every product is rounded to it. Source: Jordan et al. 2024 (Muon).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from compiler_core.dtype import bfloat16
from compiler_core.ops.registry import Array
from distcompile.errors import ArgumentError
from distcompile.optim.checks import options
from distcompile.optim.optimizer import Group
from distcompile.optim.update_rules.array_optimizer import ArrayOptimizer, put, read

EPS = 1e-7
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Muon(ArrayOptimizer):
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

    def update(self, xp: Any, group: Group, p: Array, g: Array, state: dict[str, Any]) -> Array:
        scalar = p.dtype.type
        momentum, lr = group["momentum"], float(group["lr"])
        buffer = read(state, "momentum_buffer", g, g.shape)
        buffer = buffer + (g - buffer) * scalar(1 - momentum)
        put(state, "momentum_buffer", buffer, state["momentum_buffer"].dtype.numpy if state else p.dtype)
        direction = g + (buffer - g) * scalar(momentum) if group["nesterov"] else buffer
        direction = orthogonalized(xp, direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rate = lr * _rate_factor(group["adjust_lr_fn"], p.shape)
        new: Array = p * scalar(1 - lr * group["weight_decay"]) - direction.astype(p.dtype) * scalar(rate)
        return new


def orthogonalized(xp: Any, g: Array, coefficients: tuple[float, float, float], steps: int, eps: float) -> Array:
    """About U·Vᵀ of g = U·S·Vᵀ, f32[m, n]: X ← aX + (bA + cA²)X with A = X·Xᵀ, from X = g/‖g‖, in bfloat16."""
    a, b, c = (np.float32(number) for number in coefficients)
    is_tall = g.shape[0] > g.shape[1]
    x = _rounded(xp, g.T if is_tall else g)
    norm = _rounded(xp, xp.maximum(_rounded(xp, xp.linalg.norm(x)), np.float32(eps)))
    x = _rounded(xp, x / norm)
    for _ in range(steps):
        gram = _rounded(xp, x @ x.T)
        change = _rounded(xp, b * gram + c * (gram @ gram))
        x = _rounded(xp, a * x + change @ x)
    return x.T if is_tall else x


def _rounded(xp: Any, x: Array) -> Array:
    """x rounded to bfloat16, in float32."""
    rounded: Array = xp.asarray(x, np.float32).astype(bfloat16.numpy).astype(np.float32)
    return rounded


def _rate_factor(name: str | None, shape: tuple[int, ...]) -> float:
    rows, columns = shape
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
