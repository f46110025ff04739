"""torch._inductor's names: its `config`."""

from __future__ import annotations

from distcompile._inductor import config

__all__ = ["config"]
