"""torch.amp's names: autocast, and GradScaler.

In: a device type and whether they are enabled. Out: on the CPU what torch's do; on "cuda" what torch's do on a machine
without one: a warning, and no effect.
"""

from __future__ import annotations

from distcompile.amp.autocasting import autocast, custom_bwd, custom_fwd, is_autocast_available
from distcompile.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
