"""SparseAdam: Adam for sparse gradients, of which there are none here: every gradient is dense.

In: parameters. Out: the error that torch's SparseAdam raises for a dense gradient, from the first step with one.
`Embedding(sparse=True)`, which would make a sparse gradient, is refused when it is made (NotSupportedError).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compiler_core.errors import AutogradError
from distcompile.errors import ArgumentError
from distcompile.optim.optimizer import Closure, Optimizer, run_closure


class SparseAdam(Optimizer):
    """Adam on the rows that a gradient has. Raises AutogradError in `step` for dense gradients: use Adam."""

    takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if not lr > 0.0:
            raise ArgumentError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ArgumentError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ArgumentError(f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def step(self, closure: Closure | None = None) -> Any:
        """Nothing if no parameter has a gradient."""
        loss = run_closure(closure)
        if any(p.grad is not None for group in self.param_groups for p in group["params"]):
            raise AutogradError("SparseAdam does not support dense gradients, please consider Adam instead",
                                remedy="use Adam: gradients of embeddings are dense here")  # fmt: skip
        return loss
