"""torch.cuda.amp's older names: autocast and GradScaler for GPUs.

In: whether they are enabled. Out: `amp.autocast("cuda", ...)`, `amp.GradScaler("cuda", ...)`; without a GPU they warn
and have no effect.
"""

from __future__ import annotations

from distcompile.amp.autocasting import cuda_autocast as autocast
from distcompile.amp.autocasting import custom_bwd, custom_fwd
from distcompile.amp.grad_scaler import GradScaler as _GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class GradScaler(_GradScaler):
    """`amp.GradScaler("cuda", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
