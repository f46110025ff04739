"""torch.utils.data's path: everything is in `distcompile.data`.

In: nothing. Out: its names, and `distributed`.
"""

from __future__ import annotations

from distcompile.data import *  # noqa: F403
from distcompile.data import __all__ as __all__
from distcompile.utils.data import distributed as distributed
