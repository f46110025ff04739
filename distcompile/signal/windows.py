"""torch.signal.windows. The functions are in compiler_core/ops/signal/window_functions.py; options: device,
requires_grad."""

from __future__ import annotations

from distcompile.surface.found import namespace

__all__, __getattr__ = namespace("signal.windows")
