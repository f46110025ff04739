"""torch.utils.data.distributed's path.

In: nothing. Out: `DistributedSampler`.
"""

from __future__ import annotations

from distcompile.data.distributed import DistributedSampler

__all__ = ["DistributedSampler"]
