"""torch.cpu.amp's older names: autocast and GradScaler on the CPU.

In: whether they are enabled. Out: `amp.autocast("cpu", ...)` and `amp.GradScaler("cpu", ...)`.
"""

from __future__ import annotations

from distcompile.amp.autocasting import cpu_autocast as autocast
from distcompile.amp.grad_scaler import GradScaler as _GradScaler

__all__ = ["GradScaler", "autocast"]


class GradScaler(_GradScaler):
    """`amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
