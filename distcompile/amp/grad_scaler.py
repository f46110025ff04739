"""GradScaler: a loss multiplied before backward so that float16 gradients do not vanish, and divided out before a step.

In: losses, optimizers. Out: scaled losses; steps that are left out where a gradient is not finite. On "cuda", which is
not here, it is disabled with a warning, as torch's is: then it passes everything on. Source: Micikevicius et al. 2018.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from compiler_core.log import warn_once
from compiler_core.tensor.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, StateDictError


class GradScaler:
    """The scale, and when it grows (after growth_interval steps without infinities) or shrinks (after one with)."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and device != "cpu":
            warn_once("GradScaler", f"GradScaler is enabled, but {device} is not available. Disabling.")
        self._device, self._enabled = device, enabled and device == "cpu"
        if self._enabled and growth_factor <= 1.0:
            raise ArgumentError("The growth factor must be > 1.0.", got=str(growth_factor))
        if self._enabled and backoff_factor >= 1.0:
            raise ArgumentError("The backoff factor must be < 1.0.", got=str(backoff_factor))
        self._scale, self._growth_factor, self._backoff_factor = init_scale, growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._finite: dict[int, bool] = {}  # optimizer -> whether its gradients, divided already, are all finite
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a tensor, or a list or tuple of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            return type(outputs)(self.scale(output) for output in outputs)  # type: ignore[call-arg]
        raise ArgumentError("outputs must be a Tensor or an iterable of Tensors", got=type(outputs).__name__)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, once a step."""
        if not self._enabled:
            return
        if id(optimizer) in self._stepped:
            raise StateDictError("unscale_() is being called after step().")
        if id(optimizer) in self._finite:
            raise StateDictError("unscale_() has already been called on this optimizer since the last update().")
        finite = True
        with no_grad():
            for group in optimizer.param_groups:
                for gradient in (p.grad for p in group["params"] if p.grad is not None):
                    finite = finite and bool(np.isfinite(gradient.detach().float().numpy()).all())
                    gradient.mul_(1.0 / self._scale)
        self._finite[id(optimizer)] = finite

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, with gradients divided; not at all (None) if one of them is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise ArgumentError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) in self._stepped:
            raise StateDictError("step() has already been called since the last update().")
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return optimizer.step(*args, **kwargs) if self._finite[id(optimizer)] else None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """After the step of every optimizer: let the scale grow or shrink, or set it."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._finite:
            raise StateDictError("No inf checks were recorded prior to update.")
        elif not all(self._finite.values()):
            self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale, self._growth_tracker = self._scale * self._growth_factor, 0
        self._finite.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale; 1 if disabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and its constants; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` gave. Raises StateDictError for one of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise StateDictError("The source state dict is empty, possibly because it was saved from a disabled "
                                 "instance of GradScaler.")  # fmt: skip
        self._scale, self._growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
