"""torch.distributed.optim's names: ZeroRedundancyOptimizer, PostLocalSGDOptimizer."""

from __future__ import annotations

from distcompile.distributed.optim.local_sgd import PostLocalSGDOptimizer
from distcompile.distributed.optim.zero import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
