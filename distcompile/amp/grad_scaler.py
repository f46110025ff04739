"""GradScaler: a loss multiplied before backward so that float16 gradients do not vanish, and divided out before a step.

In: losses, optimizers. Out: scaled losses; steps that are left out where a gradient is not finite. For a device that is
not here it is disabled with a warning, as torch's is: then it passes everything on. Source: Micikevicius et al. 2018.
Scale and growth tracker are tensors, as torch's, on the device of the first loss. Where a function is compiled they are
inputs of the graph and written by it, and the step that is left out is a `where` (`optim/update_rules/in_graph.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

from compiler_core.breaking import breaks_graph
from compiler_core.capture.held_numbers import before_the_graph, float_held, keep_tensors
from compiler_core.dtype import float16, float32, int32
from compiler_core.errors import DistCompileError
from compiler_core.tensor.making.creation import full
from compiler_core.tensor.tensor import Tensor
from distcompile.amp.autocasting import is_here
from distcompile.amp.scaling import any_found, next_scale, unscaled
from distcompile.errors import ArgumentError


class ScalerError(DistCompileError, RuntimeError, AssertionError):
    """A scaler whose methods are called out of order, or with constants that make no sense. Torch raises either."""


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
        self._init_scale, self._growth_factor, self._backoff_factor = init_scale, growth_factor, backoff_factor
        self._growth_interval, self._init_growth_tracker = growth_interval, 0
        self._scale: Tensor | None = None  # f32[]
        self._growth_tracker: Tensor | None = None  # i32[]
        self._found: dict[
            int, Tensor | None
        ] = {}  # optimizer -> bool[]: its gradients hold inf or NaN; None: no gradients
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a tensor, or a list or tuple of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            before_the_graph(_make_tensors, (self, outputs.device), {})
            return outputs * self._scale.to(outputs.device)  # type: ignore[union-attr]
        if isinstance(outputs, Iterable):
            return type(outputs)(self.scale(output) for output in outputs)  # type: ignore[call-arg]
        raise ArgumentError("outputs must be a Tensor or an iterable of Tensors", got=type(outputs).__name__)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, once a step."""
        if not self._enabled:
            return
        scale, _ = self._tensors("unscale_")
        if id(optimizer) in self._stepped:
            raise ScalerError("unscale_() is being called after step().")
        if id(optimizer) in self._found:
            raise ScalerError("unscale_() has already been called on this optimizer since the last update().")
        for group in optimizer.param_groups:
            keep_tensors(group["params"])
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(gradient.dtype is float16 for gradient in gradients):
            raise ArgumentError("Attempting to unscale FP16 gradients.")
        self._found[id(optimizer)] = unscaled(gradients, scale) if gradients else None

    def _tensors(self, name: str) -> tuple[Tensor, Tensor]:
        """Scale and growth tracker, for the method of this name."""
        if self._scale is None or self._growth_tracker is None:
            raise ScalerError(f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                              "scaler.scale(loss or outputs) earlier in the iteration.")  # fmt: skip
        return self._scale, self._growth_tracker

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, with gradients divided; not at all (None) if one of them is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise ScalerError("Closure use is not currently supported if GradScaler is enabled.")
        self._tensors("step")
        if id(optimizer) in self._stepped:
            raise ScalerError("step() has already been called since the last update().")
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        found = self._found[id(optimizer)]
        if found is None:
            raise ScalerError("No inf checks were recorded for this optimizer.")
        self._stepped.add(id(optimizer))
        if not args and not kwargs and hasattr(optimizer, "step_unless") and optimizer.may_step_unless():
            return optimizer.step_unless(found)
        return None if _holds(found) else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """After the step of every optimizer: let the scale grow or shrink, or set it."""
        if not self._enabled:
            return
        scale, tracker = self._tensors("update")
        if isinstance(new_scale, Tensor):
            if new_scale.device.type != self._device or new_scale.numel() != 1 or new_scale.requires_grad:
                raise ScalerError(f"new_scale should be a float or a 1-element Tensor of {self._device} "
                                  "with requires_grad=False.")  # fmt: skip
            scale.copy_(new_scale.reshape(()))
        elif new_scale is not None:
            scale.fill_(new_scale)
        else:
            found = [one for one in self._found.values() if one is not None]
            if not found:
                raise ScalerError("No inf checks were recorded prior to update.")
            factors = self._growth_factor, self._backoff_factor, self._growth_interval
            next_scale(scale, tracker, any_found(found, scale), *factors)
        self._found.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale; 1 if disabled. A device is waited for."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float_held(self._scale)

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
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if not self._enabled:
            return self.__dict__
        if self._found:
            raise ScalerError("A GradScaler instance may only be pickled between update() and the next step")
        now = {"_init_scale": self.get_scale(), "_init_growth_tracker": self._get_growth_tracker()}
        return {**self.__dict__, **now, "_scale": None, "_growth_tracker": None}

    def state_dict(self) -> dict[str, Any]:
        """The scale and its constants; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` gave. Raises StateDictError for one of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise ScalerError("The source state dict is empty, possibly because it was saved from a disabled "
                                 "instance of GradScaler.")  # fmt: skip
        self._init_scale, self._init_growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]


def _make_tensors(given: tuple[GradScaler, Any]) -> None:
    """Scale and growth tracker of a scaler, on this device, where it has none."""
    scaler, device = given
    if scaler._scale is None:
        scaler._scale = full((), scaler._init_scale, dtype=float32, device=device)
        scaler._growth_tracker = full((), scaler._init_growth_tracker, dtype=int32, device=device)


@breaks_graph(
    "GradScaler.step() looks at what was found in the gradients",
    "it need not where the optimizer's update is a rule and there are no hooks on its step",
)
def _holds(found: Tensor) -> bool:
    return bool(found)


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
