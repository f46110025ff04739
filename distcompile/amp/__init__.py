"""torch.amp's names: autocast and GradScaler, where they are switched off; nothing is cast behind your back here.

In: a device type and whether they are enabled. Out: on "cuda" what torch does on a machine without one: a warning, and
no effect. Enabled on the CPU: NotSupportedError, since a float32 result would be silently another than torch's.
"""

from __future__ import annotations

from distcompile.amp.autocasting import autocast, custom_bwd, custom_fwd, is_autocast_available
from distcompile.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
