"""torch.utils.hooks' path: what registering a hook returns.

In: nothing. Out: `RemovableHandle`.
"""

from __future__ import annotations

from distcompile.nn.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
