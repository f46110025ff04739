"""torch.version's names: which torch is meant, and which GPU libraries it was built with: none.

In: nothing. Out: texts, or None.
"""

from __future__ import annotations

from distcompile.surface.torch_version import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

cuda: str | None = None
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
git_version = "unknown"
debug = False
