"""SparseAdam: Adam on the rows that a sparse gradient has. The formulas, the defaults and the state dict are torch's.

In: parameters whose gradients are sparse (`Embedding(sparse=True)`). Out: updated rows of them; state "step",
"exp_avg", "exp_avg_sq", dense, of which the other rows stay as they are, too: they do not decay.
    m ← m + (1-β1)·(g - m);  v ← v + (1-β2)·(g² - v);  p ← p - lr·√(1-β2ᵗ)/(1-β1ᵗ) · m/(√v + eps)
Cost: that of the rows in the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from compiler_core.breaking import breaks_graph
from compiler_core.errors import AutogradError
from compiler_core.sparse.parts import coalesced
from compiler_core.sparse.places import array_of
from compiler_core.sparse.rows import put_rows, rows_at
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.making.creation import zeros_like
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.optim.checks import check_betas
from distcompile.optim.optimizer import Closure, Group, Optimizer, run_closure


class SparseAdam(Optimizer):
    """Adam on the rows that a sparse gradient has; all other rows, and their state, stay as they are.

        m ← m + (1 - β₁)·(g - m);  v ← v + (1 - β₂)·(g² - v)        in those rows
        p ← p - lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ) · m/(√v + eps)

    Args: as Adam's. The parameters are dense, their gradients sparse: see `Embedding(sparse=True)`.
    Raises: in `step`, AutogradError for a dense gradient. State: "step", "exp_avg" (m), "exp_avg_sq" (v), dense.
    Source: Kingma, Ba 2015 (ICLR); rows that are not in the gradient are this optimizer's difference.

    Example:
        >>> words = torch.nn.Embedding.from_pretrained(torch.zeros(3, 2), freeze=False, sparse=True)
        >>> optimizer = torch.optim.SparseAdam(words.parameters(), lr=0.1)
        >>> words(torch.tensor([2])).sum().backward()
        >>> optimizer.step()
        >>> words.weight.detach()
        tensor([[ 0.0000,  0.0000],
                [ 0.0000,  0.0000],
                [-0.1000, -0.1000]])
    """

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
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            [g, i]
            for g, group in enumerate(self.param_groups)
            for i, p in enumerate(group["params"])
            if isinstance(p, SparseTensor)
        ]
        if sparse:
            raise ArgumentError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")

    @breaks_graph(
        "SparseAdam.step() takes sparse gradients, which no graph holds", "compile the loss, and step outside of it"
    )
    def step(self, closure: Closure | None = None) -> Any:
        """Update the rows that gradients have. closure: recomputes the loss, which is returned."""
        loss = run_closure(closure)
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if not all(isinstance(p.grad, SparseTensor) for p in given):
                raise AutogradError("SparseAdam does not support dense gradients, please consider Adam instead")
            for parameter in given:
                self._update(group, parameter, parameter.grad)
        return loss

    def _update(self, group: Group, parameter: Tensor, gradient: SparseTensor) -> None:
        state = self.state[parameter]
        if not state:
            state.update(step=0, exp_avg=zeros_like(parameter.detach()), exp_avg_sq=zeros_like(parameter.detach()))
        state["step"] += 1
        once = coalesced(gradient.detach())
        pattern, g = once.pattern, array_of(once.sparse.values)
        if not g.size:
            return
        g, (beta1, beta2) = -g if group["maximize"] else g, group["betas"]
        xp, kind = parameter.device.xp, g.dtype.type
        means, squares = (rows_at(state[name], pattern) for name in ("exp_avg", "exp_avg_sq"))
        means += (g - means) * kind(1 - beta1)
        squares += (g * g - squares) * kind(1 - beta2)
        corrected = float(group["lr"]) * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        change = kind(-corrected) * (means / (xp.sqrt(squares) + kind(group["eps"])))
        put_rows(state["exp_avg"], pattern, means)
        put_rows(state["exp_avg_sq"], pattern, squares)
        put_rows(parameter, pattern, rows_at(parameter, pattern) + change)
