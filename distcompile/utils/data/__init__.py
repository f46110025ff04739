"""torch.utils.data's path: everything is in `distcompile.data`.

In: nothing. Out: its names, and torch's files of them.
"""

from __future__ import annotations

from distcompile.data import *  # noqa: F403
from distcompile.data import __all__ as __all__
from distcompile.surface.laid_out import lay_out
from distcompile.utils.data import dataloader as dataloader
from distcompile.utils.data import distributed as distributed

globals().update(lay_out(__name__, "distcompile.data", {"dataset": "dataset", "sampler": "sampler"}))
