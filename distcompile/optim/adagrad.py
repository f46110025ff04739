"""Adagrad. The formulas, the defaults and the state dict are torch's.

In: parameters and gradients. Out: updated parameters; state "step", "sum", made with the optimizer as in torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compiler_core.errors import AutogradError
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from compiler_core.tensor.tensor import Tensor
from distcompile.optim.checks import options
from distcompile.optim.examples import one_step
from distcompile.optim.update_rules.rule import Decaying, Group, Scalars
from distcompile.optim.update_rules.rule_optimizer import RuleOptimizer


class AdagradRule(Decaying):
    """Adagrad's formula."""

    __slots__ = ()
    state = ("sum",)

    def numbers(self, group: Group, step: int) -> dict[str, Any]:
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return {"eps": group["eps"], "step_size": -rate} | self.decay(group)

    def update(self, p: Value, g: Value, state: Mapping[str, Value], s: Scalars) -> tuple[Value, dict[str, Value]]:
        p, g = self.directed(p, g, s)
        total = prims.add(state["sum"], prims.mul(g, g))
        direction = prims.div(g, prims.add(prims.sqrt(total), s["eps"]))
        return prims.add(p, prims.mul(direction, s["step_size"])), {"sum": total}


@one_step("lr=0.1", "[ 0.9000, -1.9000]")
class Adagrad(RuleOptimizer):
    """Gradients divided by the root of the sum of all their squares so far: rates that only fall.

        s ← s + g²
        p ← p - lr/(1 + (t - 1)·lr_decay) · g/(√s + eps)

    Args (the others: see `Optimizer`):
        lr_decay: how fast the rate falls beside that.
        initial_accumulator_value: what s is filled with at first.

    A gradient may be sparse, without weight decay. State, made with the optimizer: "step", "sum" (s).
    Source: Duchi, Hazan, Singer 2011 (JMLR 12).
    """

    formula = AdagradRule
    counts_steps = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options(locals(), order="eps weight_decay initial_accumulator_value"))
        for group in self.param_groups:
            for parameter in group["params"]:
                self._make_state(parameter, self.state[parameter], self.rule(group), group)

    def update_sparse(self, group: Group, parameter: Tensor, gradient: Any) -> None:
        """As above, of the rows in the gradient."""
        if group["weight_decay"]:
            raise AutogradError("weight_decay option is not compatible with sparse gradients")
        state = self.state[parameter]
        state["step"] += 1
        grad = (-gradient if group["maximize"] else gradient).coalesce()
        rate = float(group["lr"]) / (1 + (float(state["step"]) - 1) * group["lr_decay"])
        total = state["sum"].add_(grad * grad)
        root = total.sparse_mask(grad)._values().sqrt().add_(group["eps"])
        change = grad.clone()
        change._values().div_(root)
        parameter.add_(change, alpha=-rate)

    def initial(self, name: str, group: Group) -> float:
        return float(group["initial_accumulator_value"])
