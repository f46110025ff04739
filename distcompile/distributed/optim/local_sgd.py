"""PostLocalSGDOptimizer: any optimizer, with a model averager after its steps.

In: an optimizer and an averager (algorithms/model_averaging). Out: an optimizer with the same groups and state; its
state dict has one more entry, "step", the averager's. Source: Lin et al., ICLR 2020; the interface is torch's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from distcompile.distributed.algorithms.model_averaging.averagers import ModelAverager
from distcompile.optim.optimizer import Closure, Optimizer


class PostLocalSGDOptimizer(Optimizer):
    """Steps `optim`, then lets `averager` average the parameters if it is time to."""

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        super().__init__(optim.param_groups, optim.defaults)
        self.optim, self.averager = optim, averager
        self.param_groups, self.state = optim.param_groups, optim.state

    def step(self, closure: Closure | None = None) -> Any:
        """One step of the optimizer; then the averager's turn. Collective when parameters are averaged."""
        loss = self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset every parameter's gradient."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group to the optimizer."""
        if hasattr(self, "optim"):
            self.optim.add_param_group(param_group)
        else:
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and the averager's step."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self.optim.load_state_dict(state_dict)
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)

    def __repr__(self) -> str:
        return repr(self.optim)
