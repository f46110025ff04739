"""torch.cpu.amp's older names: autocast and GradScaler on the CPU.

In: whether they are enabled. Out: `amp.autocast("cpu", ...)` and `amp.GradScaler("cpu", ...)`.
"""

from __future__ import annotations

from distcompile.amp.autocasting import cpu_autocast as autocast
from distcompile.amp.grad_scaler import ScalerOf

__all__ = ["GradScaler", "autocast"]


class GradScaler(ScalerOf):
    """`amp.GradScaler("cpu", ...)`."""

    _of = "cpu"
