"""GradScaler: a loss multiplied before backward so that float16 gradients do not vanish, and divided out before a step.

In: losses, optimizers. Out: scaled losses; steps that are left out where a gradient is not finite. For a device that is
not here it is disabled with a warning, as torch's is: then it passes everything on. Source: Micikevicius et al. 2018.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from compiler_core.breaking import breaks_graph
from compiler_core.dtype import float16, float32
from compiler_core.errors import DistCompileError
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.amp.autocasting import is_here
from distcompile.errors import ArgumentError


class ScalerError(DistCompileError, RuntimeError, AssertionError):
    """A scaler whose methods are called out of order, or with constants that make no sense. Torch raises either."""


def _is_finite(gradient: Tensor) -> bool:
    if gradient.is_sparse:
        return _is_finite(gradient._values())
    if gradient.is_cuda:
        return bool(gradient.detach().isfinite().all())
    return bool(np.isfinite(gradient.detach().float()._array("a GradScaler")).all())


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
        if enabled and not is_here(device):
            name = f"torch.{device}.amp.GradScaler"
            warnings.warn(f"{name} is enabled, but {device.upper()} is not available.  Disabling.", stacklevel=2)
        self._device, self._enabled = device, enabled and is_here(device)
        if self._enabled and growth_factor <= 1.0:
            raise ScalerError("The growth factor must be > 1.0.", got=str(growth_factor))
        if self._enabled and backoff_factor >= 1.0:
            raise ScalerError("The backoff factor must be < 1.0.", got=str(backoff_factor))
        self._scale, self._growth_factor, self._backoff_factor = init_scale, growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._finite: dict[
            int, bool | None
        ] = {}  # optimizer -> whether its divided gradients are finite; None: it has none
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a tensor, or a list or tuple of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if outputs.dtype is float16:  # in which the scale itself may be infinite
                return (outputs.to(float32) * self._scale).to(float16)
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            return type(outputs)(self.scale(output) for output in outputs)  # type: ignore[call-arg]
        raise ArgumentError("outputs must be a Tensor or an iterable of Tensors", got=type(outputs).__name__)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, once a step."""
        if self._enabled:
            self._unscale(optimizer)

    @breaks_graph("GradScaler.unscale_() looks at the gradients")
    def _unscale(self, optimizer: Any) -> None:
        if id(optimizer) in self._stepped:
            raise ScalerError("unscale_() is being called after step().")
        if id(optimizer) in self._finite:
            raise ScalerError("unscale_() has already been called on this optimizer since the last update().")
        self._finite[id(optimizer)] = self._divided(optimizer)

    def _divided(self, optimizer: Any) -> bool | None:
        """Divide an optimizer's gradients by the scale. Whether all are finite; None if there are none."""
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(gradient.dtype is float16 for gradient in gradients):
            raise ArgumentError("Attempting to unscale FP16 gradients.")
        finite = [_is_finite(gradient) for gradient in gradients]
        with no_grad():
            for gradient in gradients:
                gradient.mul_(1.0 / self._scale)
        return all(finite) if finite else None

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, with gradients divided; not at all (None) if one of them is not finite."""
        return self._step(optimizer, *args, **kwargs) if self._enabled else optimizer.step(*args, **kwargs)

    @breaks_graph("GradScaler.step() looks at the gradients")
    def _step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if "closure" in kwargs:
            raise ScalerError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) in self._stepped:
            raise ScalerError("step() has already been called since the last update().")
        if id(optimizer) not in self._finite:
            self._unscale(optimizer)
        if self._finite[id(optimizer)] is None:
            raise ScalerError("No inf checks were recorded for this optimizer.")
        self._stepped.add(id(optimizer))
        return optimizer.step(*args, **kwargs) if self._finite[id(optimizer)] else None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """After the step of every optimizer: let the scale grow or shrink, or set it."""
        if self._enabled:
            self._update(new_scale)

    @breaks_graph("GradScaler.update() looks at what was found in the gradients")
    def _update(self, new_scale: float | Tensor | None) -> None:
        if new_scale is not None:
            self._scale = float(new_scale)
        elif all(finite is None for finite in self._finite.values()):
            raise ScalerError("No inf checks were recorded prior to update.")
        elif False in self._finite.values():
            self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                grown = float(np.float32(self._scale) * np.float32(self._growth_factor))
                self._scale, self._growth_tracker = grown if math.isfinite(grown) else self._scale, 0
        self._finite.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale; 1 if disabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Another factor to grow by."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after infinities."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Another factor to shrink by."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps without infinities the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Another number of steps."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        return self._growth_tracker if self._enabled else 0

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._finite:
            raise ScalerError("A GradScaler instance may only be pickled between update() and the next step")
        return self.__dict__

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
            raise ScalerError("The source state dict is empty, possibly because it was saved from a disabled "
                                 "instance of GradScaler.")  # fmt: skip
        self._scale, self._growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]


class ScalerOf(GradScaler):
    """The older form of a GradScaler, which is told its device by its class: `cuda.amp.GradScaler`."""

    _of: ClassVar[str]

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(self._of, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
