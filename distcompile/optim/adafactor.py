"""Adafactor: second moments kept as the outer product of a row and a column. Formulas and state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", and "row_var" f[..., m, 1], "col_var" f[..., 1, n]
for matrices (the last two dimensions) or "variance" for vectors.
    β = 1 - t^beta2_decay;  R ← βR + (1-β)·mean(g², -1);  C ← βC + (1-β)·mean(g², -2);  V = R·C / max(mean R, ε₁);
    U = g/max(√V, ε₁);  p ← p - max(ε₂, RMS(p))·min(lr, 1/√t)·U/max(1, RMS(U)/d).
Source: Shazeer, Stern 2018, with torch's reading of ε₁ and lr.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler_core.dtype import finfo_eps, float64, of
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.optim.checks import check_two, options
from distcompile.optim.update_rules.rule import Elementwise, Group, Scalars, UpdateRule
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


@dataclass(frozen=True, slots=True)
class AdafactorRule(Elementwise):
    """Adafactor's formula. maximize, weight_decay, has_eps: whether that is there. is_matrix: of 2 dims or more."""

    maximize: bool
    weight_decay: bool
    has_eps: bool
    is_matrix: bool
    is_whole = True

    @property
    def state(self) -> tuple[str, ...]:
        return ("row_var", "col_var") if self.is_matrix else ("variance",)

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """f[..., m, 1] and f[..., 1, n] of f[..., m, n]."""
        if name == "variance":
            return shape
        return (*shape[:-1], 1) if name == "row_var" else (*shape[:-2], 1, shape[-1])

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        lr, (eps1, eps2) = float(group["lr"]), group["eps"]
        rate = {"rate": min(lr, 1 / math.sqrt(step)), "fresh": step ** group["beta2_decay"], "d": group["d"]}
        numbers = rate | {"eps2": eps2, "decay": 1 - lr * group["weight_decay"]}
        return numbers | {"eps1": eps1} if self.has_eps else numbers

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        dtype = of(p.dtype)
        g = prims.neg(g) if self.maximize else g
        eps1: Any = s["eps1"] if self.has_eps else np.array(finfo_eps(dtype), np.float64)
        variance, new = self._moments(g, state, prims.cast(s["fresh"], dtype), prims.cast(eps1, dtype))
        if 0 in p.shape:
            return p, new
        alpha = F.mul(_at_least(s["eps2"], _rms(p)), s["rate"])
        p = F.mul(p, prims.cast(s["decay"], dtype)) if self.weight_decay else p
        direction = F.div(g, F.sqrt(F.maximum(variance, prims.cast(F.mul(eps1, eps1), dtype))))
        clipped = _at_least(prims.full((), 1.0, float64), F.div(_rms(direction), s["d"]))
        return F.sub(p, F.mul(direction, prims.cast(F.div(alpha, clipped), dtype))), new

    def _moments(
        self, g: Value, state: Mapping[str, Value], fresh: Value, eps1: Value
    ) -> tuple[Value, dict[str, Value]]:
        """The estimate of g², like g, and the state that it is of, moved towards this g by `fresh`."""
        squares = F.mul(g, g)
        targets = {"variance": squares}
        if self.is_matrix:
            targets = {"row_var": F.mean(squares, -1, True), "col_var": F.mean(squares, -2, True)}
        new = {name: F.add(state[name], F.mul(F.sub(to, state[name]), fresh)) for name, to in targets.items()}
        if not self.is_matrix:
            return new["variance"], new
        mean = F.maximum(F.mean(new["row_var"], -2, True), eps1)
        return F.div(F.mul(new["row_var"], new["col_var"]), mean), new


class Adafactor(RuleOptimizer):
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

    takes_complex = False
    counts_steps = True
    number_dtype = float64

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

    def rule(self, group: Group) -> AdafactorRule:
        return AdafactorRule(group["maximize"], group["weight_decay"] != 0, group["eps"][0] is not None, True)

    def rule_of(self, rule: UpdateRule, parameter: Tensor) -> UpdateRule:
        assert isinstance(rule, AdafactorRule)
        return rule if parameter.ndim > 1 else replace(rule, is_matrix=False)


def _rms(x: Value) -> Value:
    """Root mean square, f64[]."""
    return F.sqrt(prims.cast(F.mean(F.mul(x, x)), float64))


def _at_least(least: Value, x: Value) -> Value:
    """x, or `least` where that is not less: also of NaN, as Python's max(least, x). f64[]."""
    return F.where(F.gt(x, least), x, least)
