"""torch.utils.data's path: everything is in `distcompile.data`.

In: nothing. Out: its names.
"""

from __future__ import annotations

from distcompile.data import *  # noqa: F403
from distcompile.data import __all__ as __all__
