"""torch.cuda.amp's older names: autocast and GradScaler for GPUs.

In: whether they are enabled. Out: `amp.autocast("cuda", ...)`, `amp.GradScaler("cuda", ...)`; without a GPU they warn
and have no effect.
"""

from __future__ import annotations

from distcompile.amp.autocasting import cuda_autocast as autocast
from distcompile.amp.autocasting import custom_bwd, custom_fwd
from distcompile.amp.grad_scaler import ScalerOf

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class GradScaler(ScalerOf):
    """`amp.GradScaler("cuda", ...)`."""

    _of = "cuda"
