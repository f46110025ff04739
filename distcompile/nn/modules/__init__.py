"""torch.nn.modules' names, for scripts that import layers from there: those of `distcompile.nn`."""

from __future__ import annotations

from distcompile.nn import *  # noqa: F403
