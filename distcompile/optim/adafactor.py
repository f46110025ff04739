"""Adafactor: second moments kept as the outer product of a row and a column. Formulas and state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", and "row_var" f[..., m, 1], "col_var" f[..., 1, n]
for matrices (the last two dimensions) or "variance" for vectors.
    β = 1 - t^beta2_decay;  R ← βR + (1-β)·mean(g², -1);  C ← βC + (1-β)·mean(g², -2);  V = R·C / max(mean R, ε₁);
    U = g/max(√V, ε₁);  p ← p - max(ε₂, RMS(p))·min(lr, 1/√t)·U/max(1, RMS(U)/d).
Source: Shazeer, Stern 2018, with torch's reading of ε₁ and lr.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from compiler_core.dtype import of
from compiler_core.ops.registry import Array
from distcompile.errors import ArgumentError
from distcompile.optim.checks import check_two, options
from distcompile.optim.optimizer import Group
from distcompile.optim.update_rules.array_optimizer import ArrayOptimizer, put, read

STEP = np.dtype(np.float32)


class Adafactor(ArrayOptimizer):
    """Adam-like steps whose second moment is stored as one row and one column of each matrix.

        β = 1 - t^beta2_decay
        R ← β·R + (1 - β)·mean(g², over columns);  C ← β·C + (1 - β)·mean(g², over rows)
        U = g/max(√(R·C/max(mean R, ε₁)), ε₁)
        p ← p·(1 - lr·weight_decay) - max(ε₂, RMS(p))·min(lr, 1/√t)·U/max(1, RMS(U)/d)
        of a vector, the mean of g² itself is in the place of R·C/max(mean R, ε₁)

    Args (the others: see `Optimizer`):
        lr: the largest relative step.
        beta2_decay: at most 0; the closer to 0, the shorter the memory.
        eps: (ε₁, ε₂); ε₁ None: the machine epsilon of the dtype that is computed in.
        d: at least 1; bounds the update's root mean square.

    State: "step"; "row_var" f[..., m, 1] and "col_var" f[..., 1, n] of p f[..., m, n]; "variance" of p f[n] or f[].
    Memory: m + n numbers a matrix, and not m·n. Source: Shazeer, Stern 2018 (arXiv:1804.04235), algorithms 4 and 5.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(2, 3))
        >>> optimizer = torch.optim.Adafactor([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> [(name, tuple(value.shape)) for name, value in optimizer.state[w].items()]
        [('step', ()), ('row_var', (2, 1)), ('col_var', (1, 3))]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        given = options(locals())
        if not lr >= 0:
            raise ArgumentError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0:
            raise ArgumentError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        check_two("eps", eps)
        for i, number in enumerate(eps, 1):
            if number is not None and not number >= 0:
                raise ArgumentError(f"epsilon{i} should be >= 0 but is: {number}")
        if not d >= 1:
            raise ArgumentError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0:
            raise ArgumentError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, given)

    def update(self, xp: Any, group: Group, p: Array, g: Array, state: dict[str, Any]) -> Array:
        g = -g if group["maximize"] else g
        lr, (eps1, eps2) = float(group["lr"]), group["eps"]
        eps1 = float(np.finfo(p.dtype).eps) if eps1 is None else eps1
        step = (float(state["step"]._array("step()")) if "step" in state else 0.0) + 1
        put(state, "step", np.asarray(step), STEP)
        if not p.size:
            _moments(xp, state, g, step ** group["beta2_decay"], eps1)
            return p
        alpha = _at_least(xp, eps2, _rms(xp, p)) * min(lr, 1 / math.sqrt(step))
        if group["weight_decay"] != 0:
            p = p * p.dtype.type(1 - lr * group["weight_decay"])
        variance = _moments(xp, state, g, step ** group["beta2_decay"], eps1)
        direction = g / xp.sqrt(xp.maximum(variance, p.dtype.type(eps1 * eps1)))
        clipped = _at_least(xp, 1.0, _rms(xp, direction) / group["d"])
        new: Array = p - direction * (alpha / clipped).astype(p.dtype)
        return new


def _moments(xp: Any, state: dict[str, Any], g: Array, fresh: float, eps1: float) -> Array:
    """The estimate of g², like g, after moving the state towards this g by `fresh`."""
    if g.ndim <= 1:
        return _moved(state, "variance", g * g, fresh)
    rows = _moved(state, "row_var", xp.mean(g * g, axis=-1, keepdims=True), fresh)
    columns = _moved(state, "col_var", xp.mean(g * g, axis=-2, keepdims=True), fresh)
    mean: Array = xp.maximum(xp.mean(rows, axis=-2, keepdims=True), g.dtype.type(eps1))
    estimate: Array = rows * columns / mean
    return estimate


def _moved(state: dict[str, Any], name: str, target: Array, fresh: float) -> Array:
    old = read(state, name, target, target.shape)
    new: Array = old + (target - old) * target.dtype.type(fresh)
    put(state, name, new, state[name].dtype.numpy if name in state else of(target.dtype).numpy)
    return new


def _rms(xp: Any, x: Array) -> Array:
    """Root mean square, f64[]."""
    root: Array = xp.sqrt(xp.mean(xp.square(x)).astype(np.float64))
    return root


def _at_least(xp: Any, least: float, x: Array) -> Array:
    """x, or `least` where that is not less: also of NaN, as Python's max(least, x)."""
    larger: Array = xp.where(x > least, x, np.float64(least))
    return larger
