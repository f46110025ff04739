"""torch.nn.modules.batchnorm's names, `_BatchNorm` among them: scripts look for layers of that class."""

from __future__ import annotations

from distcompile.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from distcompile.nn.sync_batchnorm import SyncBatchNorm

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "_BatchNorm"]
