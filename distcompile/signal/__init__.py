"""torch.signal: window functions."""

from distcompile.signal import windows

__all__ = ["windows"]
