"""torch.signal.windows. The functions are in compiler_core/ops/composite_windows.py; options: device, requires_grad."""

from __future__ import annotations

from distcompile.late import namespace

__all__, __getattr__ = namespace("signal.windows")
